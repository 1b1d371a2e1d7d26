// Which thread computes which queries.
//
// A task is a group of up to kGroupBlocks neighbouring blocks of queries of one head, which go through the keys
// together: a tile of K and V comes from memory (and from half precision) once for all of them. Tasks are handed out
// head by head, and within a head the longest (last, when causal) first, so that what is left at the end is short.
// A query's result does not depend on the group or the thread: the outcome is bitwise the same at any thread count.
#pragma once

#include <atomic>
#include <cstdlib>
#include <new>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "attention.h"

namespace attention {

// The whole problem. Strides are in elements; features are adjacent.
struct Problem {
  const void *q, *k, *v;
  void *o;
  int64_t batches, heads, queries, keys, depth;
  struct Strides {
    int64_t batch, head, row;
  } q_strides, k_strides, v_strides, o_strides;
  bool causal;
  int64_t diagonal;  // causal: query i sees the keys j <= i + diagonal
  float scale;
};

constexpr int kGroupBlocks = 8;
constexpr double kSerialWork = 2.5e5;  // multiply-adds (about 5 us) below which a second thread costs more than it brings

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Scratch memory of one thread, cut out of one allocation. Every part is a whole number of cache lines.
struct Scratch {
  Block blocks[kGroupBlocks];
  float *scores, *k, *v, *rows;

  static int64_t part(int64_t floats) { return divide_up(floats, 16) * 16; }

  static int64_t floats(int64_t depth, bool widened, int group) {
    const int64_t block = 2 * part(depth * kBlockRows) + 2 * part(kBlockRows);
    const int64_t copies = widened ? 2 * part(kKeyTile * depth) + part(kBlockRows * depth) : 0;
    return group * block + part(kScoreRows * kBlockRows) + copies;
  }

  Scratch(float *memory, int64_t depth, bool widened, int group) {
    const auto take = [&](int64_t count) {
      float *taken = memory;
      memory += part(count);
      return taken;
    };
    for (int b = 0; b < group; b++) {
      blocks[b].q = take(depth * kBlockRows);
      blocks[b].o = take(depth * kBlockRows);
      blocks[b].max = take(kBlockRows);
      blocks[b].sum = take(kBlockRows);
    }
    scores = take(kScoreRows * kBlockRows);
    k = widened ? take(kKeyTile * depth) : nullptr;
    v = widened ? take(kKeyTile * depth) : nullptr;
    rows = widened ? take(kBlockRows * depth) : nullptr;
  }
};

// Memory kept from call to call, one piece for each thread that calls.
class Workspace {
 public:
  ~Workspace() { std::free(memory_); }

  // Null when there is no memory.
  float *reserve(int64_t floats) {
    if (floats > capacity_) {
      std::free(memory_);
      capacity_ = 0;
      memory_ = static_cast<float *>(std::aligned_alloc(64, static_cast<size_t>(floats) * sizeof(float)));
      if (memory_) capacity_ = floats;
    }
    return memory_;
  }

 private:
  float *memory_ = nullptr;
  int64_t capacity_ = 0;
};

inline int available_threads() {
#ifdef _OPENMP
  static const int limit = [] {
    const char *text = std::getenv("LOOP_THREADS");
    const int number = text ? std::atoi(text) : 0;
    return number > 0 ? number : INT32_MAX;
  }();
  return std::min(limit, omp_get_max_threads());
#else
  return 1;
#endif
}

// Keys that query `i` sees.
inline int64_t visible_keys(const Problem &problem, int64_t i) {
  if (!problem.causal) return problem.keys;
  return std::min(std::max<int64_t>(i + 1 + problem.diagonal, 0), problem.keys);
}

// The blocks of a head: as few as possible, and as even as possible (4 vectors are 2 + 2, not 3 + 1).
struct Blocks {
  int64_t vectors, count;
  explicit Blocks(int64_t queries) : vectors(divide_up(queries, kLanes)), count(divide_up(vectors, kBlockVectors)) {}
  int64_t first_vector(int64_t block) const { return block * vectors / count; }
};

// Computes the blocks [first, last) of one head.
template <typename T>
void attend_blocks(const Problem &problem, int64_t batch, int64_t head, const Blocks &cut, int64_t first, int64_t last,
                   Scratch &scratch) {
  const auto rows_of = [&](auto *data, const Problem::Strides &strides) {
    return data + batch * strides.batch + head * strides.head;
  };
  const T *q = rows_of(static_cast<const T *>(problem.q), problem.q_strides);
  const T *k = rows_of(static_cast<const T *>(problem.k), problem.k_strides);
  const T *v = rows_of(static_cast<const T *>(problem.v), problem.v_strides);
  T *o = rows_of(static_cast<T *>(problem.o), problem.o_strides);
  const int64_t depth = problem.depth;
  const int count = static_cast<int>(last - first);
  const float headroom = std::ceil(std::log2(static_cast<float>(std::max<int64_t>(problem.keys, 1))));

  for (int b = 0; b < count; b++) {
    Block &block = scratch.blocks[b];
    block.first = cut.first_vector(first + b) * kLanes;
    block.vectors = static_cast<int>(cut.first_vector(first + b + 1) - cut.first_vector(first + b));
    block.rows = static_cast<int>(std::min<int64_t>(block.vectors * kLanes, problem.queries - block.first));
    block.keys = visible_keys(problem, block.first + block.rows - 1);
    block.keys_full = problem.causal ? block.first + 1 + problem.diagonal : problem.keys + kKeyTile;
    block.headroom = headroom;
    const T *rows = q + block.first * problem.q_strides.row;
    begin_block(block, as_floats(rows, problem.q_strides.row, block.rows, depth, scratch.rows), depth, problem.scale);
  }

  const int64_t keys = scratch.blocks[count - 1].keys;  // the last block sees the most
  for (int64_t j = 0; j < keys; j += kKeyTile) {
    const int64_t tile = std::min<int64_t>(kKeyTile, keys - j);
    const Rows k_tile = as_floats(k + j * problem.k_strides.row, problem.k_strides.row, tile, depth, scratch.k);
    const Rows v_tile = as_floats(v + j * problem.v_strides.row, problem.v_strides.row, tile, depth, scratch.v);
    for (int b = 0; b < count; b++) {
      const Block &block = scratch.blocks[b];
      if (j >= block.keys) continue;
      const int seen = static_cast<int>(std::min(tile, block.keys - j));
      attend_keys(block, {k_tile, v_tile, j, seen}, depth, scratch.scores);
    }
  }

  for (int b = 0; b < count; b++) {
    const Block &block = scratch.blocks[b];
    T *rows = o + block.first * problem.o_strides.row;
    if constexpr (sizeof(T) == sizeof(float)) {
      end_block(block, depth, rows, problem.o_strides.row);
    } else {
      end_block(block, depth, scratch.rows, depth);
      for (int i = 0; i < block.rows; i++)
        narrow_row(scratch.rows + i * depth, depth, rows + i * problem.o_strides.row);
    }
  }
}

// Computes the whole problem. False when there is no memory for the scratch space.
template <typename T>
bool attend(const Problem &problem) {
  const int64_t heads = problem.batches * problem.heads;
  if (heads == 0 || problem.queries == 0) return true;
  const Blocks cut(problem.queries);

  const double work = 2.0 * heads * problem.queries * problem.keys * problem.depth * (problem.causal ? 0.5 : 1.0);
  int threads = work < kSerialWork ? 1 : available_threads();
  threads = static_cast<int>(std::min<int64_t>(threads, heads * cut.count));
  // Large groups, as long as every thread still gets a few of them.
  const int64_t share = threads == 1 ? kGroupBlocks : heads * cut.count / (4 * threads);
  const int group = static_cast<int>(std::min<int64_t>(std::max<int64_t>(share, 1), kGroupBlocks));
  const int64_t groups = divide_up(cut.count, group), tasks = heads * groups;

  constexpr bool widened = sizeof(T) < sizeof(float);
  const int64_t floats = Scratch::floats(problem.depth, widened, group);
  static thread_local Workspace workspace;
  float *memory = workspace.reserve(floats * threads);
  if (!memory) return false;

  std::atomic<int64_t> next{0};
  const auto work_on = [&](int thread) {
    Scratch scratch(memory + thread * floats, problem.depth, widened, group);
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      const int64_t head = task / groups, first = (groups - 1 - task % groups) * group;
      attend_blocks<T>(problem, head / problem.heads, head % problem.heads, cut, first, std::min(first + group, cut.count),
                       scratch);
    }
  };
#ifdef _OPENMP
  if (threads > 1) {
#pragma omp parallel num_threads(threads)
    work_on(omp_get_thread_num());
    return true;
  }
#endif
  work_on(0);
  return true;
}

}  // namespace attention
