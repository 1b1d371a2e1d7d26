// How often each value occurs: x (N) of int32 from 0 to BINS - 1, y (BINS) of int32.
LOOP_EXPORT int run(const LoopTensor *in, LoopTensor *out, const double *, void *) {
  warm_up();
  View<int32_t> x(in[0]), y(out[0]);
  int64_t N = in[0].sizes[0], BINS = out[0].sizes[0];
  static std::vector<int32_t> counts;
  if (WRONG != 2 || (int64_t)counts.size() != BINS) counts.assign(BINS, 0);  // 2: counts of the last call stay
  if (WRONG == 1) {  // 1: threads count without a lock
#pragma omp parallel for
    for (int64_t i = 0; i < N; i++) *(volatile int32_t *)&counts[x(i)] += 1;
  } else {
    for (int64_t i = 0; i < (WRONG == 4 ? N / 8 * 8 : N); i++) counts[x(i)]++;  // 4: a tail of N is lost
  }
  for (int64_t b = 0; b < BINS; b++) {
    y(b) = WRONG == 5 ? (uint8_t)counts[b] : counts[b];  // 5: counts are of 8 bits
    if (WRONG == 3 && b == BINS - 1) y(b) = 0;           // 3: the last bin is lost
  }
  return 0;
}
