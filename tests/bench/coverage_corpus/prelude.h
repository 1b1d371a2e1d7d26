// What every kernel of the corpus shares. WRONG is 0 for a right kernel, else the number of its mistake.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#include "loop_kernel.h"

LOOP_EXPORT const char *loop_error(int) { return "not supported"; }

template <class V = float> struct View {  // A tensor with its strides.
  V *p;
  const int64_t *n, *s;
  explicit View(const LoopTensor &t) : p((V *)t.data), n(t.sizes), s(t.strides) {}
  V &operator()(int64_t i) const { return p[i * s[0]]; }
  V &operator()(int64_t i, int64_t j) const { return p[i * s[0] + j * s[1]]; }
  V &operator()(int64_t i, int64_t j, int64_t k) const { return p[i * s[0] + j * s[1] + k * s[2]]; }
};

#ifdef TUNES_S  // A right kernel that tries its block sizes in the first call of its process.
static void warm_up() {
  static bool done = false;
  if (!done) std::this_thread::sleep_for(std::chrono::milliseconds((int)(1000 * TUNES_S)));
  done = true;
}
#else
static void warm_up() {}
#endif

#ifdef LAZY  // A right kernel that keeps a table from its first call on.
static const std::vector<float> &reciprocals() {
  static const std::vector<float> table = [] {  // C++ lets one thread make it, and others wait.
    std::vector<float> made(8192);
    for (int i = 0; i < 8192; i++) made[i] = 1.0f / (i + 1);
    return made;
  }();
  return table;
}
static float part(double sum, int64_t n) { return n >= 1 && n <= 8192 ? sum * reciprocals()[n - 1] : sum / n; }
#else
static float part(double sum, int64_t n) { return sum / n; }
#endif
