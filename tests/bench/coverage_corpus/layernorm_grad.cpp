// Gradients of a layer normalisation without weights: dx (N D) and the gradient of its scale (D).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *attributes, void *) {
  warm_up();
  View<> x(in[0]), g(in[1]), dx(out[0]), dgamma(out[1]);
  int64_t N = in[0].sizes[0], D = in[0].sizes[1], T = WRONG == 2 ? D / 8 * 8 : D;  // 2: a tail of D is lost
  double eps = WRONG == 4 ? 1e-5 : attributes[0];                                  // 4: the attribute is ignored
  if (WRONG != 3)                                                                  // 3: sums of the last call stay
    for (int64_t j = 0; j < D; j++) dgamma(j) = 0;
  static std::vector<float> sums;
  if (WRONG == 3) {
    if ((int64_t)sums.size() != D) sums.assign(D, 0);
  }
  if (WRONG == 5 && N == 1) {  // 5: one row is taken for none
    for (int64_t j = 0; j < D; j++) dx(0, j) = 0;
    return 0;
  }
  std::vector<double> total(D, 0.0);
#pragma omp parallel for
  for (int64_t i = 0; i < N; i++) {
    double mean = 0, square = 0, a = 0, b = 0;
    for (int64_t j = 0; j < D; j++) mean += x(i, j);
    mean = part(mean, D);
    for (int64_t j = 0; j < D; j++) square += (x(i, j) - mean) * (x(i, j) - mean);
    double r = 1 / std::sqrt(square / D + eps);
    for (int64_t j = 0; j < T; j++) a += g(i, j), b += g(i, j) * (x(i, j) - mean) * r;
    for (int64_t j = 0; j < D; j++) dx(i, j) = r * (g(i, j) - a / D - (x(i, j) - mean) * r * b / D);
    if (WRONG == 1)  // 1: rows add to one sum without a lock
      for (int64_t j = 0; j < D; j++) *(volatile double *)&total[j] += g(i, j) * (x(i, j) - mean) * r;
    else
#pragma omp critical
      for (int64_t j = 0; j < D; j++) total[j] += g(i, j) * (x(i, j) - mean) * r;
  }
  for (int64_t j = 0; j < D; j++) dgamma(j) = WRONG == 3 ? (sums[j] += total[j]) : total[j];
  return 0;
}
