// A depthwise convolution with zeros at both ends: x (B C L), w (C K), y (B C L).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<> x(in[0]), w(in[1]), y(out[0]);
  int64_t B = in[0].sizes[0], C = in[0].sizes[1], L = in[0].sizes[2], K = in[1].sizes[1], half = K / 2;
  if (WRONG == 3) x.s = out[0].strides;  // 3: the input's strides are taken for the output's
  static std::vector<float> kept;
  if ((int64_t)kept.size() != C * K) {
    kept.clear();
    for (int64_t c = 0; c < C; c++)
      for (int64_t k = 0; k < K; k++) kept.push_back(w(c, k));
  }
  static float row[1 << 16];
#pragma omp parallel for collapse(2)
  for (int64_t b = 0; b < B; b++)
    for (int64_t c = 0; c < C; c++) {
      std::vector<float> own(L);
      volatile float *sums = WRONG == 5 ? row : own.data();  // 5: threads share a row
      for (int64_t l = 0; l < L; l++) {
        sums[l] = 0;
        for (int64_t k = 0; k < K; k++) {
          int64_t at = l + k - half;
          if (WRONG == 2 ? at < 0 || at >= L - 1 : at < 0 || at >= L) continue;  // 2: the last element is padding
          sums[l] = sums[l] + x(b, c, at) * (WRONG == 4 ? kept[c * K + k] : w(c, k));  // 4: the first weights stay
        }
      }
      for (int64_t l = 0; l < L; l++) y(b, c, l) = WRONG == 1 && l >= L / 8 * 8 ? 0 : sums[l];  // 1: a tail of L
    }
  return 0;
}
