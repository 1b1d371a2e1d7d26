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
  const void *q, *k, *v;  // [batches, heads, queries or keys, depth]
  void *o;                // [batches, heads, queries, depth]
  Strides q_strides, k_strides, v_strides, o_strides;
  int batches, heads, queries, keys, depth;
  bool causal;
  bool negative;     // The scale is below zero: the queries' signs are turned instead.
  int diagonal;      // Under a causal mask query i sees key j when j <= i + diagonal.
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
SIMT_DEVICE Matrix<const T> head_of(const void *data, const Strides &strides, int rows, int depth) {
  const int64_t head = blockIdx.y * strides.head + blockIdx.z * strides.batch;
  return {static_cast<const T *>(data) + head, strides.row, rows, depth};
}

template <typename T>
SIMT_DEVICE Matrix<T> output_head_of(const Problem &problem) {
  const int64_t head = blockIdx.y * problem.o_strides.head + blockIdx.z * problem.o_strides.batch;
  return {static_cast<T *>(problem.o) + head, problem.o_strides.row, problem.queries, problem.depth};
}

// How many keys, from the first on, the rows up to `last_row` may see.
SIMT_DEVICE int visible_keys(const Problem &problem, int last_row) {
  if (!problem.causal) return problem.keys;
  const int end = last_row + 1 + problem.diagonal;
  return end < 0 ? 0 : end < problem.keys ? end : problem.keys;
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
