// A matrix product: a (M K), b (K N), c (M N).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<> a(in[0]), b(in[1]), c(out[0]);
  int64_t M = in[0].sizes[0], K = in[0].sizes[1], N = in[1].sizes[1], T = WRONG == 1 ? K / 4 * 4 : K;
  if (WRONG == 5) b.s = out[0].strides;  // 5: b's rows are taken to be as far apart as c's
  static volatile double shared;
  static std::vector<float> packed;
  if (WRONG == 4 ? (int64_t)packed.size() != K * N : true) {  // 4: b is packed again only when its size changes
    packed.clear();
    for (int64_t k = 0; k < K; k++)
      for (int64_t j = 0; j < N; j++) packed.push_back(b(k, j));
  }
#pragma omp parallel for
  for (int64_t i = 0; i < M; i++)
    for (int64_t j = 0; j < N; j++) {
      double sum = 0;
      shared = 0;
      for (int64_t k = 0; k < T; k++) {  // 1: a tail of K is lost
        sum += (double)a(i, k) * packed[k * N + j];
        if (WRONG == 3) shared = shared + (double)a(i, k) * packed[k * N + j];  // 3: threads share a sum
      }
      c(i, j) = WRONG == 2 && K > 256 ? (float)(sum / 2) : WRONG == 3 ? shared : sum;  // 2: wrong from K = 257 on
    }
  return 0;
}
