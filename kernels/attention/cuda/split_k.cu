// Attention in two passes: the C interface of the variant `split_k`, and of each pass alone. The only translation unit.
#include "split_k.cuh"

ATTENTION_INSTANCES(split_k)

namespace {

using namespace attention;

struct SplitK {
  using Depths = attention::Depths<16, 32, 64, 128>;
  template <typename T, int kDepth>
  static Error run(const Problem &problem, cudaStream_t stream) {
    return split_k<T, kDepth>(problem, stream);
  }
};

// The passes alone take and give [ranges, B, H, Sq, D + 4] floats, contiguous, from a multiple of 16 bytes on.
Error check_partials(const LoopTensor &tensor) {
  if (tensor.dtype != LOOP_FLOAT32) return kUnsupportedDtype;
  if (tensor.rank != 5) return kWrongRank;
  int64_t step = 1;
  for (int i = 4; i >= 0; i--) {
    if (tensor.sizes[i] < 0) return kNegativeSize;
    if (tensor.sizes[i] > 1 && tensor.strides[i] != step) return kStridedFeatures;
    step *= tensor.sizes[i];
  }
  if (step && !tensor.data) return kNullData;
  if (reinterpret_cast<uintptr_t>(tensor.data) % 16) return kMisalignedData;
  if (tensor.sizes[0] > kMostRanges) return kTooLarge;
  if (tensor.sizes[4] > kMostDepth + kPartialExtra) return kTooManyFeatures;
  return tensor.sizes[4] > kPartialExtra ? kSuccess : kNoFeatures;
}

Partials partials_of(const LoopTensor &tensor) {
  return {static_cast<float *>(tensor.data), static_cast<int>(tensor.sizes[0]),
          static_cast<int>(tensor.sizes[4]) - kPartialExtra};
}

size_t bytes_of(const LoopTensor &tensor) {
  size_t bytes = sizeof(float);
  for (int i = 0; i < 5; i++) bytes *= static_cast<size_t>(tensor.sizes[i]);
  return bytes;
}

template <typename T>
Error partial_alone(const Problem &problem, const Partials &partials, cudaStream_t stream) {
  if (problem.depth <= 16) return split_partial<T, 16>(problem, partials, stream);
  if (problem.depth <= 32) return split_partial<T, 32>(problem, partials, stream);
  if (problem.depth <= 64) return split_partial<T, 64>(problem, partials, stream);
  return split_partial<T, 128>(problem, partials, stream);
}

}  // namespace

LOOP_EXPORT int attention_split_k(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  return enter<SplitK>(inputs, outputs, attributes, stream);
}

// q, k, v -> partials [ranges, B, H, Sq, D + 4]
LOOP_EXPORT int attention_split_partial(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes,
                                        void *stream) {
  if (!inputs || !outputs || !attributes) return kNullArgument;
  if (const Error error = check_partials(outputs[0])) return error;
  const LoopTensor output = output_like(inputs[0]);  // The first pass is checked as a call of attention.
  const Entry entry = admit(inputs, &output, attributes);
  if (entry.error || entry.empty || !outputs[0].sizes[0]) return entry.error;
  if (const Error error = check_rows<SplitK::Depths>(inputs, &output)) return error;
  const LoopTensor &q = inputs[0], &partial = outputs[0];
  if (partial.sizes[1] != q.sizes[0]) return kMismatchedBatch;
  if (partial.sizes[2] != q.sizes[1] || inputs[1].sizes[1] != q.sizes[1]) return kMismatchedHeads;
  if (partial.sizes[3] != q.sizes[2]) return kMismatchedQueries;
  if (partial.sizes[4] != q.sizes[3] + kPartialExtra) return kMismatchedFeatures;
  simt::withdraw_all();
  const char *const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++) expose_tensor(inputs[i], names[i], false);
  simt::expose(partial.data, bytes_of(partial), "the partials", true);
  const auto queue = static_cast<cudaStream_t>(stream);
  return q.dtype == LOOP_FLOAT16 ? partial_alone<__half>(entry.problem, partials_of(partial), queue)
                                 : partial_alone<__nv_bfloat16>(entry.problem, partials_of(partial), queue);
}

// partials [ranges, B, H, Sq, D + 4] -> o [B, H, Sq, D]
LOOP_EXPORT int attention_split_reduce(const LoopTensor *inputs, LoopTensor *outputs, const double *, void *stream) {
  if (!inputs || !outputs) return kNullArgument;
  const LoopTensor &partial = inputs[0], &o = outputs[0];
  if (const Error error = check_partials(partial)) return error;
  if (const Error error = check_tensor(o)) return error;
  if (element_size(o.dtype) != 2) return kUnsupportedDtype;
  if (partial.sizes[1] != o.sizes[0]) return kMismatchedBatch;
  if (partial.sizes[2] != o.sizes[1]) return kMismatchedHeads;
  if (partial.sizes[3] != o.sizes[2]) return kMismatchedQueries;
  if (partial.sizes[4] != o.sizes[3] + kPartialExtra) return kMismatchedFeatures;
  if (is_empty(o)) return kSuccess;
  Problem problem = {};
  problem.o = o.data, problem.o_strides = strides_of(o);
  problem.batches = static_cast<int>(o.sizes[0]), problem.heads = static_cast<int>(o.sizes[1]);
  problem.queries = static_cast<int>(o.sizes[2]), problem.depth = static_cast<int>(o.sizes[3]);
  simt::withdraw_all();
  simt::expose(partial.data, bytes_of(partial), "the partials", false);
  expose_tensor(o, "the output", true);
  const auto queue = static_cast<cudaStream_t>(stream);
  return o.dtype == LOOP_FLOAT16 ? split_reduce<__half>(problem, partials_of(partial), queue)
                                 : split_reduce<__nv_bfloat16>(problem, partials_of(partial), queue);
}
