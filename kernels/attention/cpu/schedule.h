// Which thread computes which queries.
//
// A task is a group of up to kGroupBlocks neighbouring blocks of queries of one head, which go through the keys
// together: a tile of K and V comes from memory, and from half precision, once for all of them. Tasks are handed out
// head by head, and within a head the longest (last, when causal) first, so that what is left at the end is short.
// A query's arithmetic depends neither on the group nor on the thread: outputs are bitwise equal at any thread count.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "attention.h"
#include "workspace.h"

namespace attention {

// Multiply-adds below which a second thread costs more (waking and joining it: 2 to 3 us) than it brings: some 5 us.
constexpr double kSerialWork = 2.5e5;

inline int available_threads() {
#ifdef _OPENMP
  static const int limit = [] {
    const char *const text = std::getenv("LOOP_THREADS");
    const int number = text ? std::atoi(text) : 0;
    return number > 0 ? number : INT32_MAX;
  }();
  return std::min(limit, omp_get_max_threads());
#else
  return 1;
#endif
}

// Nothing to make ready: the units of vectors are always there.
struct VectorUnits {};

// Computes the whole problem. False when there is no memory for the scratch space.
template <class Products, class Units>
bool attend_with(const Problem &problem) {
  if (problem.batches == 0 || problem.heads == 0 || problem.queries == 0) return true;
  const int64_t heads = problem.batches * problem.heads;
  const Blocks blocks(problem.queries);

  const double pairs = 1.0 * heads * problem.queries * problem.keys * (problem.causal ? 0.5 : 1.0);
  const bool alone = pairs * (2.0 * problem.depth + 16) < kSerialWork;  // an exponential is worth 16 multiply-adds
  const int threads = alone ? 1 : static_cast<int>(std::min<int64_t>(available_threads(), heads * blocks.count));
  // Large groups, as long as every thread still gets a few of them.
  const int64_t share = threads == 1 ? kGroupBlocks : heads * blocks.count / (4 * threads);
  const int group = static_cast<int>(std::min<int64_t>(std::max<int64_t>(share, 1), kGroupBlocks));
  const int64_t groups = divide_up(blocks.count, group), tasks = heads * groups;

  constexpr bool widened = sizeof(typename Products::Element) < sizeof(float);
  const int64_t depth = Products::padded(problem.depth), floats = Scratch::floats(depth, widened, group);
  static thread_local Workspace workspace;
  float *const memory = workspace.reserve(floats * threads);
  if (!memory) return false;

  std::atomic<int64_t> next{0};
  const auto work = [&](int thread) {
    [[maybe_unused]] const Units units;
    Scratch scratch(memory + thread * floats, depth, widened, group);
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const int64_t head = task / groups, first = (groups - 1 - task % groups) * group;
      attend_blocks<Products>(problem, head, blocks, first, std::min(first + group, blocks.count), scratch);
    }
  };
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    work(omp_get_thread_num());
    return true;
  }
#endif
  work(0);
  return true;
}

template <typename T>
bool attend(const Problem &problem) {
#if defined(ATTENTION_MATRIX)
  if constexpr (sizeof(T) == 2)
    if (has_matrix_units()) return attend_with<MatrixProducts<T>, MatrixUnits>(problem);
#endif
  return attend_with<VectorProducts<T>, VectorUnits>(problem);
}

}  // namespace attention
