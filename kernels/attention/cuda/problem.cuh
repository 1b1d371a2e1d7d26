// One call of attention as the kernels see it.
#pragma once

#include <cstdint>

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
SIMT_DEVICE int visible_keys(const Problem &problem, int last_row, bool causal) {
  if (!causal) return problem.keys;
  const int end = last_row + 1 + problem.diagonal;
  return end < 0 ? 0 : end < problem.keys ? end : problem.keys;
}

}  // namespace attention
