// A transpose with a scale for each column: x (M N), s (N), y (N M).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<> x(in[0]), s(in[1]), y(out[0]);
  int64_t M = in[0].sizes[0], N = in[0].sizes[1], rows = WRONG == 1 ? M / 32 * 32 : M;
  static float tile[1 << 12];
  static int64_t dense[] = {0, 1};
  if (WRONG == 4) dense[0] = N, x.s = dense;  // 4: rows are taken to lie together
  for (int64_t j = 0; j < N; j++)
    for (int64_t i = rows; i < M; i++) y(j, i) = 0;  // 1: a tail of M is lost
#pragma omp parallel for
  for (int64_t j = 0; j < N; j++)
    for (int64_t first = 0; first < rows; first += 64) {
      float own[64];
      volatile float *kept = WRONG == 5 ? tile : own;  // 5: threads share a tile
      int64_t count = std::min<int64_t>(64, rows - first);
      for (int64_t i = 0; i < count; i++)
        kept[i] = x(first + i, j) * (WRONG == 3 && j >= 64 ? 1.0f : (float)s(j));  // 3: scales from the 64th on
      for (int64_t i = 0; i < count; i++) {
        if (WRONG == 2 && M > N && first + i >= N) y(j, first + i) = 0;  // 2: right where M is at most N
        else y(j, first + i) = kept[i];
      }
    }
  return 0;
}
