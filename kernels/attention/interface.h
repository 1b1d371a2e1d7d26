// Attention's C interface, the same for every variant: what is passed, and what is wrong with it.
//
//   inputs      q [B, Hq, Sq, D], k and v [B, Hk, Sk, D]   all of one element type; Hq is a multiple of Hk
//   outputs     o [B, Hq, Sq, D]                           the same type; accumulation is in float32
//   attributes  causal (0, 1), alignment (0 top_left, 1 bottom_right), scale (NaN: 1 / sqrt(D))
//
// The features of a row are adjacent; the other strides are free (0 too, for an input that is broadcast).
// Arguments are checked here and nowhere else.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "loop_kernel.h"

namespace attention {

enum Error {
  kSuccess,
  kNullArgument,
  kUnsupportedDtype,
  kMixedDtypes,
  kWrongRank,
  kNegativeSize,
  kNoFeatures,
  kMismatchedBatch,
  kMismatchedHeads,
  kMismatchedQueries,
  kMismatchedKeys,
  kMismatchedFeatures,
  kStridedFeatures,
  kOverlappingOutput,
  kNullData,
  kMisalignedData,
  kOutputIsInput,
  kInvalidCausal,
  kInvalidAlignment,
  kOutOfMemory,
  kTooManyFeatures,
  kMisalignedRows,
  kTooLarge,
  kLaunchFailed,
  kInvalidScale,
  kUntakenStrides,
  kErrors
};

constexpr const char *kSentences[] = {
    "success",
    "inputs, outputs or attributes is a null pointer",
    "a tensor is not of an element type that this variant takes",
    "q, k, v and o are not all of the same type",
    "a tensor is not of rank 4: [batch, heads, sequence, features]",
    "a size is negative",
    "the tensors have no features: D must be at least 1",
    "q, k, v and o do not have the same batch size",
    "q and o, or k and v, do not have the same number of heads, or that of k does not divide that of q",
    "q and o do not have the same sequence length",
    "k and v do not have the same sequence length",
    "q, k, v and o do not have the same number of features",
    "the features of a row are not adjacent: the last stride must be 1",
    "elements of the output share memory: its strides overlap",
    "a tensor that is not empty has a null data pointer",
    "a data pointer is not aligned to the size of an element",
    "the output is also an input: give it memory of its own",
    "causal is neither 0 nor 1",
    "alignment is neither 0 (top_left) nor 1 (bottom_right)",
    "no memory for the scratch space",
    "more features than this variant takes: fa1 and auto take up to 1024, small and split_k 128, others 256",
    "rows do not begin at multiples of 16 bytes (pointers, strides, or D no multiple of 8): fa1 and auto take such",
    "a size is beyond what one launch can count: 65535 heads or batches, 2^30 queries or keys, 64 ranges",
    "the launch failed",
    "scale is not a finite number of type float",
    "strides that a tensor map cannot hold: zero, negative, or 2^40 bytes and more; auto takes such",
};
static_assert(sizeof kSentences / sizeof *kSentences == kErrors, "a sentence for every error");

inline const char *sentence(int error) {
  return error >= 0 && error < kErrors ? kSentences[error] : "not an error number of this kernel";
}

inline int64_t element_size(int32_t dtype) {
  switch (dtype) {
    case LOOP_FLOAT32: return 4;
    case LOOP_FLOAT16:
    case LOOP_BFLOAT16: return 2;
    default: return 0;
  }
}

inline bool is_empty(const LoopTensor &tensor) { return !tensor.sizes[0] || !tensor.sizes[1] || !tensor.sizes[2]; }

inline Error check_tensor(const LoopTensor &tensor) {
  const int64_t element = element_size(tensor.dtype);
  if (!element) return kUnsupportedDtype;
  if (tensor.rank != 4) return kWrongRank;
  for (int i = 0; i < 4; i++)
    if (tensor.sizes[i] < 0) return kNegativeSize;
  if (tensor.sizes[3] == 0) return kNoFeatures;
  if (tensor.sizes[3] > 1 && tensor.strides[3] != 1) return kStridedFeatures;
  if (is_empty(tensor)) return kSuccess;
  if (!tensor.data) return kNullData;
  if (reinterpret_cast<uintptr_t>(tensor.data) % static_cast<uintptr_t>(element)) return kMisalignedData;
  return kSuccess;
}

// Whether two elements may share memory: sorted by stride, each dimension must step over all those before it. In
// double, which does not overflow and is exact for any tensor that there is memory for.
inline bool overlaps_itself(const LoopTensor &tensor) {
  int order[] = {0, 1, 2};
  const auto step = [&](int i) { return std::fabs(static_cast<double>(tensor.strides[i])); };
  std::sort(order, order + 3, [&](int a, int b) { return step(a) < step(b); });
  double reach = static_cast<double>(tensor.sizes[3]);
  for (int i : order) {
    if (tensor.sizes[i] <= 1) continue;
    if (step(i) < reach) return true;
    reach += static_cast<double>(tensor.sizes[i] - 1) * step(i);
  }
  return false;
}

inline Error check(const LoopTensor *inputs, const LoopTensor *outputs, const double *attributes) {
  if (!inputs || !outputs || !attributes) return kNullArgument;
  const LoopTensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &o = outputs[0];
  const LoopTensor *const tensors[] = {&q, &k, &v, &o};
  for (const LoopTensor *tensor : tensors)
    if (const Error error = check_tensor(*tensor)) return error;
  for (const LoopTensor *tensor : tensors) {
    if (tensor->dtype != q.dtype) return kMixedDtypes;
    if (tensor->sizes[0] != q.sizes[0]) return kMismatchedBatch;
    if (tensor->sizes[3] != q.sizes[3]) return kMismatchedFeatures;
  }
  if (o.sizes[1] != q.sizes[1] || v.sizes[1] != k.sizes[1]) return kMismatchedHeads;
  if (k.sizes[1] ? q.sizes[1] % k.sizes[1] : q.sizes[1]) return kMismatchedHeads;
  if (o.sizes[2] != q.sizes[2]) return kMismatchedQueries;
  if (v.sizes[2] != k.sizes[2]) return kMismatchedKeys;
  if (!is_empty(o)) {
    if (overlaps_itself(o)) return kOverlappingOutput;
    if (o.data == q.data || o.data == k.data || o.data == v.data) return kOutputIsInput;
  }
  if (attributes[0] != 0 && attributes[0] != 1) return kInvalidCausal;
  if (attributes[1] != 0 && attributes[1] != 1) return kInvalidAlignment;
  if (std::fabs(attributes[2]) > static_cast<double>(std::numeric_limits<float>::max())) return kInvalidScale;
  return kSuccess;
}

// What a logit is multiplied by: the one given, or 1 / sqrt(D).
inline double scale_of(const double *attributes, int64_t depth) {
  return std::isnan(attributes[2]) ? 1.0 / std::sqrt(static_cast<double>(depth)) : attributes[2];
}

// Key j is visible to query i, under a causal mask, when j <= i + diagonal.
inline int64_t diagonal_of(const double *attributes, int64_t queries, int64_t keys) {
  return attributes[1] == 1 ? keys - queries : 0;
}

// An output like the queries, for checks of arguments; nothing is written to it.
inline LoopTensor output_like(const LoopTensor &q) {
  static char elsewhere alignas(16)[16];
  LoopTensor output = q;
  output.data = elsewhere;
  int64_t step = 1;
  for (int i = 3; i >= 0; i--) {
    output.strides[i] = step;
    step *= q.sizes[i];
  }
  return output;
}

}  // namespace attention
