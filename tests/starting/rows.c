// Rows normalised by mean and deviation, plus the row over its largest magnitude; macros make it wrong.
#include <math.h>
#ifndef INDEX
#define INDEX int
#endif
#ifndef LEAST
#define LEAST 1e-12f
#endif
void rows(const float *x, float *y, int N, int M) {
  for (int n = 0; n < N; n++) {
    float most = LEAST, mean = 0, squares = 0;
    for (int m = 0; m < M; m++) mean += x[n * M + (INDEX)m], most = fmaxf(most, fabsf(x[n * M + m]));
    mean /= M;
#ifdef ONE_PASS
    for (int m = 0; m < M; m++) squares += x[n * M + m] * x[n * M + m];
    squares -= M * mean * mean;
#else
    for (int m = 0; m < M; m++) squares += (x[n * M + m] - mean) * (x[n * M + m] - mean);
#endif
    const float deviation = sqrtf(squares / M + 1e-5f);
    for (int m = 0; m < M; m++) y[n * M + m] = (x[n * M + m] - mean) / deviation + x[n * M + m] / most;
  }
}
