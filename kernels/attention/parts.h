// What goes on inside a kernel, written down for the components of target.yaml. A library built with -DATTENTION_PARTS
// exports it; without that flag nothing of it is compiled, and the kernels are what they were.
//
//   attention_<variant>_<part>    takes what the variant takes, and gives one part of its work as float32
//   scores, weights               [B, Hq, Sq, Sk], of each query and key; -inf where a query does not see the key
//   row_maximum, row_sum          [P, B, Hq, Sq], of each warp that works on a row; -inf where there is none
//   weighted_values               [P, B, Hq, Sq, D + 2], before the division by the row sum; that sum, and the reference
//
// Scores are x = scale * q.k * log2(e). A weight is 2^(x - m), and kernels differ in the reference m: of weights and
// their sums the logarithm is written down, plus m.
#pragma once

#if defined(ATTENTION_PARTS)

#include "interface.h"

namespace attention {

enum Part { kNoPart, kScores, kRowMaximum, kWeights, kRowSum, kWeightedValues };

struct Parts {
  Part part = kNoPart;  // Which of them is wanted.
  float *data = nullptr;
  int64_t holders = 0, heads = 0, rows = 0, width = 0;

  int64_t count() const { return holders * heads * rows * width; }
  // What stands where a kernel writes nothing.
  float nothing() const { return part == kWeightedValues ? 0.0f : -INFINITY; }
};

// Where a part is to be written, and whether that has the shape it needs.
inline Error describe_part(Part part, const LoopTensor &tensor, const LoopTensor &q, const LoopTensor &k, Parts &parts) {
  const bool by_key = part == kScores || part == kWeights, wide = part == kWeightedValues;
  if (tensor.dtype != LOOP_FLOAT32) return kUnsupportedDtype;
  if (tensor.rank != (wide ? 5 : 4)) return kWrongRank;
  const int64_t *const sizes = tensor.sizes + (by_key ? 0 : 1), width = by_key || wide ? sizes[3] : 1;
  if (sizes[0] != q.sizes[0]) return kMismatchedBatch;
  if (sizes[1] != q.sizes[1]) return kMismatchedHeads;
  if (sizes[2] != q.sizes[2]) return kMismatchedQueries;
  if (by_key && width != k.sizes[2]) return kMismatchedKeys;
  if (wide && width != q.sizes[3] + 2) return kMismatchedFeatures;
  parts = {part, static_cast<float *>(tensor.data), by_key ? 1 : tensor.sizes[0], sizes[0] * sizes[1], sizes[2], width};
  return kSuccess;
}

}  // namespace attention

#define ATTENTION_PART(variant, name, part, observe)                                                              \
  LOOP_EXPORT int attention_##variant##_##name(const LoopTensor *inputs, LoopTensor *outputs,                     \
                                               const double *attributes, void *stream) {                          \
    return observe(attention::part, inputs, outputs, attributes, stream);                                         \
  }
#define ATTENTION_EXPORT_PARTS(variant, observe)                     \
  ATTENTION_PART(variant, scores, kScores, observe)                  \
  ATTENTION_PART(variant, row_maximum, kRowMaximum, observe)         \
  ATTENTION_PART(variant, weights, kWeights, observe)                \
  ATTENTION_PART(variant, row_sum, kRowSum, observe)                 \
  ATTENTION_PART(variant, weighted_values, kWeightedValues, observe)

// A statement that only a library with parts has.
#define ATTENTION_SEEN(...) __VA_ARGS__

#else

#define ATTENTION_SEEN(...)

#endif
