// FlashAttention-1 in scalar arithmetic: the variant to read first, and the one that takes any number of features
// (up to 1024), any strides and any alignment.
//
// A block takes 16 query rows, each of its 4 warps 4 of them, and walks over the keys 32 at a time; a lane has a key.
//   logits    features go by in slices of 64: a slice of the queries and of the keys in shared memory, then every
//             lane multiplies its key with the warp's 4 rows
//   softmax   a row's 32 logits lie in 32 lanes: maximum and sum by shuffles; the weights go to shared memory
//   values    a slice of 64 features at a time again: a lane has two features, and adds up 32 keys
// The output stays in shared memory, as float, and is rescaled when a row's maximum grows.
//
// Shared memory, floats: slice of queries 16 x 64, slice of keys or values 32 x 65 (65: lanes that read a column meet
// 32 banks), weights 16 x 32, output 16 x D.   D = 64: 18 KB.   D = 1024: 78 KB.
#pragma once

#include "dispatch.cuh"
#include "parts.cuh"

namespace attention {

using namespace simt;

struct Fa1 {
  static constexpr int kWarps = 4, kThreads = kWarps * 32, kRowsPerWarp = 4, kRows = kWarps * kRowsPerWarp;
  static constexpr int kKeys = 32, kSlice = 64, kPitch = kSlice + 1, kMostFeatures = 1024;

  static constexpr int kQueries = 0;
  static constexpr int kTile = kQueries + kRows * kSlice * 4;
  static constexpr int kWeights = kTile + kKeys * kPitch * 4;
  static constexpr int kOutput = kWeights + kRows * kKeys * 4;

  static constexpr int shared_bytes(int depth) { return kOutput + kRows * depth * 4; }
};
static_assert(Fa1::shared_bytes(Fa1::kMostFeatures) <= 101376, "shared memory: a block of an L4 may have 99 KB");
static_assert(Fa1::kKeys == 32, "keys of a tile: one for each lane");

// Features [feature, feature + 64) of rows [first, first + count) as floats, zeros where there are none.
template <typename T>
SIMT_DEVICE void load_slice(SharedAddress place, int pitch, const Matrix<const T> &matrix, int first, int count,
                            int feature) {
  for (int i = threadIdx.x; i < count * Fa1::kSlice; i += Fa1::kThreads) {
    const int row = i / Fa1::kSlice, column = i % Fa1::kSlice;
    const bool inside = first + row < matrix.rows && feature + column < matrix.depth;
    const float value =
        inside ? to_float(global_load(matrix.data + (first + row) * matrix.stride + feature + column)) : 0.0f;
    shared_store(place + (row * pitch + column) * 4, value);
  }
}

SIMT_DEVICE float warp_maximum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value = fmaxf(value, shuffle_xor(value, mask));
  return value;
}
SIMT_DEVICE float warp_sum(float value) {
  for (int mask = 16; mask > 0; mask /= 2) value += shuffle_xor(value, mask);
  return value;
}

template <typename T>
__global__ void __launch_bounds__(Fa1::kThreads) fa1_kernel(const Problem problem) {
  constexpr int kRows = Fa1::kRows, kMine = Fa1::kRowsPerWarp, kKeys = Fa1::kKeys, kSlice = Fa1::kSlice;
  const SharedAddress shared = shared_base();
  const SharedAddress query_slice = shared + Fa1::kQueries, tile = shared + Fa1::kTile;
  const SharedAddress weights = shared + Fa1::kWeights, output = shared + Fa1::kOutput;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, depth = problem.depth;
  const int first_row = blockIdx.x * kRows, mine = warp * kMine;
  const auto queries = queries_of<T>(problem);
  const auto keys = keys_of<T>(problem);
  const auto values = values_of<T>(problem);
  const float scale_log2 = problem.negative ? -problem.scale_log2 : problem.scale_log2;

  float top[kMine], sum[kMine];
  for (int r = 0; r < kMine; r++) {
    top[r] = kMasked, sum[r] = 0.0f;
    for (int d = lane; d < depth; d += 32) shared_store(output + ((mine + r) * depth + d) * 4, 0.0f);
  }

  const int visible = visible_keys(problem, first_row + kRows - 1);
  for (int first_key = 0; first_key < visible; first_key += kKeys) {
    float logits[kMine] = {};
    for (int feature = 0; feature < depth; feature += kSlice) {
      __syncthreads();  // Nobody reads the last slice any more.
      load_slice(query_slice, kSlice, queries, first_row, kRows, feature);
      load_slice(tile, Fa1::kPitch, keys, first_key, kKeys, feature);
      __syncthreads();
      for (int d = 0; d < kSlice; d++) {
        const float key = shared_load<float>(tile + (lane * Fa1::kPitch + d) * 4);
        for (int r = 0; r < kMine; r++)
          logits[r] += shared_load<float>(query_slice + ((mine + r) * kSlice + d) * 4) * key;
      }
    }

    float shrink[kMine];
    for (int r = 0; r < kMine; r++) {
      const int row = first_row + mine + r, key = first_key + lane;
      const float logit = key <= last_key(problem, row) ? logits[r] * scale_log2 : kMasked;
      const float highest = fmaxf(top[r], warp_maximum(logit));
      const float subtracted = highest == kMasked ? 0.0f : highest;  // -inf minus it stays -inf: weight 0.
      const float weight = exp2_approx(logit - subtracted);
      ATTENTION_SEEN(record(problem, kScores, row, key, logit));
      ATTENTION_SEEN(record(problem, kWeights, row, key, log2f(weight) + subtracted));
      shrink[r] = exp2_approx(top[r] - subtracted);
      sum[r] = sum[r] * shrink[r] + warp_sum(weight);
      top[r] = highest;
      shared_store(weights + ((mine + r) * kKeys + lane) * 4, weight);
    }

    for (int feature = 0; feature < depth; feature += kSlice) {
      __syncthreads();  // Nobody reads the keys, or the last slice of values, any more.
      load_slice(tile, Fa1::kPitch, values, first_key, kKeys, feature);
      __syncthreads();
      for (int d = lane; d < kSlice && feature + d < depth; d += 32)
        for (int r = 0; r < kMine; r++) {
          const SharedAddress place = output + ((mine + r) * depth + feature + d) * 4;
          float value = shared_load<float>(place) * shrink[r];
          for (int key = 0; key < kKeys; key++)
            value += shared_load<float>(weights + ((mine + r) * kKeys + key) * 4) *
                     shared_load<float>(tile + (key * Fa1::kPitch + d) * 4);
          shared_store(place, value);
        }
    }
  }

  const Matrix<T> result = output_of<T>(problem);
  for (int r = 0; r < kMine && first_row + mine + r < problem.queries; r++) {
    if (lane == 0) { ATTENTION_SEEN(record_row(problem, first_row + mine + r, top[r], sum[r])); }
    const float inverse = sum[r] == 0.0f ? 0.0f : 1.0f / sum[r];
    for (int d = lane; d < depth; d += 32) {
      const float value = shared_load<float>(output + ((mine + r) * depth + d) * 4);
      ATTENTION_SEEN(record(problem, kWeightedValues, first_row + mine + r, d, value));
      global_store(result.data + (first_row + mine + r) * result.stride + d, from_float<T>(value * inverse));
    }
  }
}

template <typename T>
Error fa1(const Problem &problem, cudaStream_t stream) {
  if (problem.depth > Fa1::kMostFeatures) return kTooManyFeatures;
  const dim3 grid((problem.queries + Fa1::kRows - 1) / Fa1::kRows, problem.heads, problem.batches);
  const size_t shared_bytes = static_cast<size_t>(Fa1::shared_bytes(problem.depth));
  return launch<fa1_kernel<T>>(grid, dim3(Fa1::kThreads), shared_bytes, stream, problem) ? kSuccess : kLaunchFailed;
}

}  // namespace attention
