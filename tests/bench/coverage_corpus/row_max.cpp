// The largest element of each row: x (N D), y (N).
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<> x(in[0]), y(out[0]);
  int64_t N = in[0].sizes[0], D = in[0].sizes[1], T = D;
  if (WRONG == 2 && D >= 4) T = D / 4 * 4;                       // 2: a tail of D is lost
  if (WRONG == 5) T = std::min<int64_t>(D, 512);                 // 5: no more than 512 columns are read
  static bool first = true;
  for (int64_t i = 0; i < N; i++) {
    float top = WRONG == 1 ? 0.0f : -INFINITY;  // 1: negative rows have a maximum of 0
    for (int64_t j = 0; j < T; j++) top = std::max(top, (float)x(i, j));
    y(i) = WRONG == 3 && first ? 0 : WRONG == 4 && N == 1 ? 0 : top;  // 3: the first call; 4: one row
  }
  first = false;
  return 0;
}
