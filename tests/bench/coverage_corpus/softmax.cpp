// Softmax of each row at a temperature: x (N D), y (N D).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *attributes, void *) {
  warm_up();
  View<> x(in[0]), y(out[0]);
  int64_t N = in[0].sizes[0], D = in[0].sizes[1];
  double temperature = WRONG == 2 ? 1 : attributes[0];  // 2: the temperature is ignored
  if (WRONG == 5) x.s = out[0].strides;                 // 5: the input's strides are taken for the output's
  static volatile float top;
#pragma omp parallel for
  for (int64_t i = 0; i < N; i++) {
    float own = -INFINITY;
    for (int64_t j = 0; j < D; j++) own = std::max(own, (float)x(i, j));
    if (WRONG == 4) top = own;  // 4: rows of several threads share a maximum
    double sum = WRONG == 3 ? (double)((D + 7) / 8 * 8 - D) * std::exp(-(double)own) : 0;  // 3: padded with zeros
    auto power = [&](int64_t j) {
      float shift = WRONG == 1 ? 0.0f : WRONG == 4 ? top : own;  // 1: exponents overflow
      return std::exp((float)((x(i, j) - shift) / temperature));
    };
    for (int64_t j = 0; j < D; j++) sum += (y(i, j) = power(j));
    for (int64_t j = 0; j < D; j++) y(i, j) /= (float)sum;
  }
  return 0;
}
