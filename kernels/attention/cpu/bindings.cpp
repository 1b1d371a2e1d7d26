// Scaled-dot-product attention on the CPU: the C interface. The only translation unit; the kernel is in attention.h.
//
//   inputs      q [B, H, Sq, D], k [B, H, Sk, D], v [B, H, Sk, D]     float32, bfloat16 or float16, all the same
//   outputs     o [B, H, Sq, D]                                       the same type; accumulation is in float32
//   attributes  causal (0, 1), alignment (0 top_left, 1 bottom_right), scale (NaN: 1 / sqrt(D))
//
// The features of a row are adjacent; the other strides are free (0 too, for an input that is broadcast).
// Arguments are checked here and nowhere else; what passes cannot fail, save for want of memory.
#include "loop_kernel.h"

#include <cmath>

#include "schedule.h"

namespace {

using namespace attention;

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
  kErrors
};

constexpr const char *kSentences[] = {
    "success",
    "inputs, outputs or attributes is a null pointer",
    "a tensor is not float32, bfloat16 or float16",
    "q, k, v and o are not all of the same type",
    "a tensor is not of rank 4: [batch, heads, sequence, features]",
    "a size is negative",
    "the tensors have no features: D must be at least 1",
    "q, k, v and o do not have the same batch size",
    "q, k, v and o do not have the same number of heads",
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
};
static_assert(sizeof kSentences / sizeof *kSentences == kErrors, "a sentence for every error");

int64_t element_size(int32_t dtype) {
  switch (dtype) {
    case LOOP_FLOAT32: return 4;
    case LOOP_FLOAT16:
    case LOOP_BFLOAT16: return 2;
    default: return 0;
  }
}

bool is_empty(const LoopTensor &tensor) { return !tensor.sizes[0] || !tensor.sizes[1] || !tensor.sizes[2]; }

Error check_tensor(const LoopTensor &tensor) {
  const int64_t element = element_size(tensor.dtype);
  if (!element) return kUnsupportedDtype;
  if (tensor.rank != 4) return kWrongRank;
  for (int i = 0; i < 4; i++)
    if (tensor.sizes[i] < 0) return kNegativeSize;
  if (tensor.sizes[3] == 0) return kNoFeatures;
  if (tensor.sizes[3] > 1 && tensor.strides[3] != 1) return kStridedFeatures;
  if (is_empty(tensor)) return kSuccess;
  if (!tensor.data) return kNullData;
  if (reinterpret_cast<uintptr_t>(tensor.data) % element) return kMisalignedData;
  return kSuccess;
}

// Whether two elements may share memory: sorted by stride, each dimension must step over all those before it.
bool overlaps_itself(const LoopTensor &tensor) {
  int order[] = {0, 1, 2};
  const auto step = [&](int i) { return std::abs(tensor.strides[i]); };
  std::sort(order, order + 3, [&](int a, int b) { return step(a) < step(b); });
  int64_t reach = tensor.sizes[3];
  for (int i : order) {
    if (tensor.sizes[i] <= 1) continue;
    if (step(i) < reach) return true;
    reach += (tensor.sizes[i] - 1) * step(i);
  }
  return false;
}

Error check(const LoopTensor *inputs, const LoopTensor *outputs, const double *attributes) {
  if (!inputs || !outputs || !attributes) return kNullArgument;
  const LoopTensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &o = outputs[0];
  const LoopTensor *const tensors[] = {&q, &k, &v, &o};
  for (const LoopTensor *tensor : tensors)
    if (const Error error = check_tensor(*tensor)) return error;
  for (const LoopTensor *tensor : tensors) {
    if (tensor->dtype != q.dtype) return kMixedDtypes;
    if (tensor->sizes[0] != q.sizes[0]) return kMismatchedBatch;
    if (tensor->sizes[1] != q.sizes[1]) return kMismatchedHeads;
    if (tensor->sizes[3] != q.sizes[3]) return kMismatchedFeatures;
  }
  if (o.sizes[2] != q.sizes[2]) return kMismatchedQueries;
  if (v.sizes[2] != k.sizes[2]) return kMismatchedKeys;
  if (!is_empty(o)) {
    if (overlaps_itself(o)) return kOverlappingOutput;
    if (o.data == q.data || o.data == k.data || o.data == v.data) return kOutputIsInput;
  }
  if (attributes[0] != 0 && attributes[0] != 1) return kInvalidCausal;
  if (attributes[1] != 0 && attributes[1] != 1) return kInvalidAlignment;
  return kSuccess;
}

Problem::Strides strides_of(const LoopTensor &tensor) {
  return {tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

Problem describe(const LoopTensor *inputs, const LoopTensor *outputs, const double *attributes) {
  const LoopTensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &o = outputs[0];
  Problem problem;
  problem.q = q.data;
  problem.k = k.data;
  problem.v = v.data;
  problem.o = o.data;
  problem.batches = q.sizes[0];
  problem.heads = q.sizes[1];
  problem.queries = q.sizes[2];
  problem.keys = k.sizes[2];
  problem.depth = q.sizes[3];
  problem.q_strides = strides_of(q);
  problem.k_strides = strides_of(k);
  problem.v_strides = strides_of(v);
  problem.o_strides = strides_of(o);
  problem.causal = attributes[0] == 1;
  problem.diagonal = attributes[1] == 1 ? problem.keys - problem.queries : 0;
  const double scale = attributes[2];
  problem.scale = static_cast<float>(std::isnan(scale) ? 1.0 / std::sqrt(static_cast<double>(problem.depth)) : scale);
  return problem;
}

}  // namespace

LOOP_EXPORT int attention_cpu(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *) {
  if (const Error error = check(inputs, outputs, attributes)) return error;
  const Problem problem = describe(inputs, outputs, attributes);
  bool computed;
  switch (inputs[0].dtype) {
    case LOOP_FLOAT32: computed = attend<float>(problem); break;
    case LOOP_BFLOAT16: computed = attend<Bfloat16>(problem); break;
    default: computed = attend<Float16>(problem); break;
  }
  return computed ? kSuccess : kOutOfMemory;
}

LOOP_EXPORT const char *loop_error(int error) {
  return error >= 0 && error < kErrors ? kSentences[error] : "not an error number of this kernel";
}
