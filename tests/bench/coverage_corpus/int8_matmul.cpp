// A product of int8 matrices into int32: a (M K), b (K N), c (M N).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<int8_t> a(in[0]), b(in[1]);
  View<int32_t> c(out[0]);
  int64_t M = in[0].sizes[0], K = in[0].sizes[1], N = in[1].sizes[1];
  if (WRONG == 4 && K == 0) return 0;  // 4: nothing is written where there is nothing to add
  int64_t T = WRONG == 2 ? K / 16 * 16 : K;  // 2: a tail of K is lost
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      int32_t sum = 0;
      int16_t narrow = 0;
      volatile int32_t shared = 0;
      if (WRONG == 3) {  // 3: threads add to one sum without a lock
#pragma omp parallel for
        for (int64_t k = 0; k < K; k++) shared = shared + a(i, k) * b(k, j);
      }
      for (int64_t k = 0; k < T; k++) {
        int32_t left = WRONG == 5 ? std::max<int32_t>(a(i, k), -127) : a(i, k);  // 5: -128 is taken for -127
        sum += left * b(k, j), narrow += left * b(k, j);
      }
      c(i, j) = WRONG == 1 ? narrow : WRONG == 3 ? shared : sum;  // 1: the sum is of 16 bits
    }
  return 0;
}
