// Sums of each row's first elements: x (N D), y (N D).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<> x(in[0]), y(out[0]);
  int64_t N = in[0].sizes[0], D = in[0].sizes[1];
  if (WRONG == 5) x.s = out[0].strides;  // 5: the input's strides are taken for the output's
  static double carry = 0;
  static volatile double shared = 0;
#pragma omp parallel for
  for (int64_t i = 0; i < N; i++) {
    double sum = WRONG == 2 && i == 0 ? carry : 0;  // 2: the last call's sum goes on
    if (WRONG == 3) shared = 0;                     // 3: rows of several threads share a sum
    for (int64_t j = 0; j < D; j++) {
      if (WRONG == 1 && j && j % 1024 == 0) sum = 0;  // 1: blocks do not hand their sum on
      sum += x(i, j);
      if (WRONG == 3) shared = shared + x(i, j);
      y(i, j) = WRONG == 3 ? shared : sum;
    }
    if (WRONG == 4 && D == 1) y(i, 0) = 0;  // 4: one element is taken for none
    if (i == 0) carry = sum;
  }
  return 0;
}
