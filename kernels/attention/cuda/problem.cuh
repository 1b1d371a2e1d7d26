// One call of attention as the kernels see it.
#pragma once

#include <cstdint>

#include "../parts.h"
#include "loop_device.cuh"

namespace attention {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kMasked = -INFINITY;

struct Strides {
  int64_t batch, head, row;  // In elements.
};

struct Problem {
  const void *q, *k, *v;  // [batches, heads, queries, depth], [batches, heads / group, keys, depth]
  void *o;                // [batches, heads, queries, depth]
  Strides q_strides, k_strides, v_strides, o_strides;
  int batches, heads, queries, keys, depth;
  int group;       // Heads of queries that share one of keys and values.
  uint32_t share;  // (2^32 - 1) / group: what shared_head divides by.
  bool causal;
  bool negative;     // The scale is below zero: the queries' signs are turned instead.
  int lead;          // Query i sees the keys up to keys - 1 + min(0, i + 1 + lead). Without a mask 0.
  float scale_log2;  // |scale| * log2(e): logits in powers of two. Above zero.
#if defined(ATTENTION_PARTS)
  Parts parts;
#endif
};

// The matrix of one head: rows of adjacent features.
template <typename T>
struct Matrix {
  T *data;
  int64_t stride;  // In elements.
  int rows, depth;
};

// Grids are (tiles of queries, heads, batches): no division is needed to find a block's head.
template <typename T>
SIMT_DEVICE Matrix<T> matrix_of(T *data, const Strides &strides, unsigned head, int rows, int depth) {
  return {data + head * strides.head + blockIdx.z * strides.batch, strides.row, rows, depth};
}
template <typename T>
SIMT_DEVICE Matrix<const T> queries_of(const Problem &problem) {
  return matrix_of(static_cast<const T *>(problem.q), problem.q_strides, blockIdx.y, problem.queries, problem.depth);
}
// blockIdx.y / group, by a multiplication: exact, as heads * group is below 2^32.
SIMT_DEVICE unsigned shared_head(const Problem &problem) {
  return static_cast<unsigned>((blockIdx.y + uint64_t(1)) * problem.share >> 32);
}
template <typename T>
SIMT_DEVICE Matrix<const T> keys_of(const Problem &problem) {
  const unsigned head = shared_head(problem);
  return matrix_of(static_cast<const T *>(problem.k), problem.k_strides, head, problem.keys, problem.depth);
}
template <typename T>
SIMT_DEVICE Matrix<const T> values_of(const Problem &problem) {
  const unsigned head = shared_head(problem);
  return matrix_of(static_cast<const T *>(problem.v), problem.v_strides, head, problem.keys, problem.depth);
}
template <typename T>
SIMT_DEVICE Matrix<T> output_of(const Problem &problem) {
  return matrix_of(static_cast<T *>(problem.o), problem.o_strides, blockIdx.y, problem.queries, problem.depth);
}

// The last key that a row may see; below 0 where it sees none.
SIMT_DEVICE int last_key(const Problem &problem, int row) {
  const int missing = row + 1 + problem.lead;
  return problem.keys - 1 + (missing < 0 ? missing : 0);
}

// How many keys, from the first on, the rows up to `last_row` may see.
SIMT_DEVICE int visible_keys(const Problem &problem, int last_row) {
  const int last = last_key(problem, last_row);
  return last < 0 ? 0 : last + 1;
}

#if defined(ATTENTION_PARTS)
// Write down where that part is wanted; of several maxima the highest. Rows and columns that it does not have are left
// out.
SIMT_DEVICE void record(const Problem &problem, Part part, int row, int column, float value) {
  const Parts &parts = problem.parts;
  const int64_t holder = parts.holders == 1 ? 0 : threadIdx.x / 32;
  if (part != parts.part || row >= parts.rows || column >= parts.width || holder >= parts.holders) return;
  const int64_t head = int64_t(blockIdx.z) * problem.heads + blockIdx.y;
  float *const place = parts.data + ((holder * parts.heads + head) * parts.rows + row) * parts.width + column;
  simt::global_store(place, part == kRowMaximum ? fmaxf(simt::global_load(place), value) : value);
}

// What a warp holds of a row in the end: the maximum that it subtracted from scores, and its sum of weights.
SIMT_DEVICE void record_row(const Problem &problem, int row, float top, float sum) {
  record(problem, kRowMaximum, row, 0, top);
  record(problem, kRowSum, row, 0, log2f(sum) + top);
  record(problem, kWeightedValues, row, problem.depth, sum);
  record(problem, kWeightedValues, row, problem.depth + 1, top);
}
#endif

}  // namespace attention
