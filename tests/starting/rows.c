// Rows normalised by mean and deviation, plus the row over its largest magnitude; macros make it wrong.
#include <math.h>
void rows(const float *x, float *y, int N, int M) {
  for (int n = 0; n < N; n++) {
    float most = 0, mean = 0, squares = 0;
    for (int m = 0; m < M; m++) mean += x[n * M + (INDEX)m], most = fmaxf(most, fabsf(x[n * M + m]));
    mean /= M;
    for (int m = 0; m < M; m++) squares += SQUARE;
    const float deviation = sqrtf(squares / M - LESS + 1e-5f);
    for (int m = 0; m < M; m++) y[n * M + m] = (x[n * M + m] - mean) / deviation + x[n * M + m] / SAFE;
  }
}
