// From the C interface to a kernel: checks, the description of the call, and the choice of an instance.
#pragma once

#include "../interface.h"
#include "problem.cuh"

namespace attention {

inline Strides strides_of(const LoopTensor &tensor) {
  return {tensor.strides[0], tensor.strides[1], tensor.strides[2]};
}

// Keys at the end that a mask hides from every query do not count: neither for a tile's size, nor for the choice of it.
inline void drop_hidden_keys(Problem &problem) {
  const int missing = std::min(0, problem.queries + problem.lead);
  problem.keys = std::max(0, problem.keys + missing), problem.lead -= missing;
}

// Heads that share keys become rows of one head, so that a tile of queries holds them all: where their rows are evenly
// spaced, and no mask tells the queries of a head apart. A single query under a mask sees the first keys, as all do.
inline void fold_heads(Problem &problem) {
  constexpr int64_t kMost = int64_t(1) << 30;
  const int64_t rows = int64_t(problem.queries) * problem.group;
  const auto even = [&](const Strides &strides) {
    return problem.queries == 1 || strides.head == problem.queries * strides.row;
  };
  const auto fold = [&](Strides &strides) {
    if (problem.queries == 1) strides.row = strides.head;
    strides.head *= problem.group;
  };
  if (problem.group == 1 || (problem.causal && problem.queries > 1) || rows > kMost) return;
  if (!even(problem.q_strides) || !even(problem.o_strides)) return;
  drop_hidden_keys(problem);
  fold(problem.q_strides), fold(problem.o_strides);
  problem.queries = static_cast<int>(rows), problem.heads /= problem.group;
  problem.group = 1, problem.causal = false, problem.lead = 0;
}

inline Problem describe(const LoopTensor *inputs, const LoopTensor *outputs, const double *attributes) {
  const LoopTensor &q = inputs[0], &k = inputs[1], &v = inputs[2], &o = outputs[0];
  const double scale = scale_of(attributes, q.sizes[3]);
  Problem problem;
  problem.q = q.data, problem.k = k.data, problem.v = v.data, problem.o = o.data;
  problem.q_strides = strides_of(q), problem.k_strides = strides_of(k);
  problem.v_strides = strides_of(v), problem.o_strides = strides_of(o);
  problem.batches = static_cast<int>(q.sizes[0]);
  problem.heads = static_cast<int>(q.sizes[1]);
  problem.group = k.sizes[1] ? static_cast<int>(q.sizes[1] / k.sizes[1]) : 1;
  problem.queries = static_cast<int>(q.sizes[2]);
  problem.keys = static_cast<int>(k.sizes[2]);
  problem.depth = static_cast<int>(q.sizes[3]);
  problem.causal = attributes[0] == 1;
  problem.negative = scale < 0;
  problem.lead = problem.causal ? static_cast<int>(diagonal_of(attributes, q.sizes[2], k.sizes[2]) - k.sizes[2]) : 0;
  // Never 0: a hidden logit is -inf, and has to stay so. A scale this small weighs all keys alike.
  problem.scale_log2 = std::max(static_cast<float>(std::fabs(scale)) * kLog2E, 1e-30f);
#if !defined(ATTENTION_PARTS)  // Parts are written down by heads of queries.
  fold_heads(problem);
#endif
  problem.share = 0xffffffffu / static_cast<uint32_t>(problem.group);
  return problem;
}

// What the launch can count in.
inline Error check_sizes(const LoopTensor *inputs) {
  constexpr int64_t kMost = 65535, kLongest = int64_t(1) << 30;
  const LoopTensor &q = inputs[0], &k = inputs[1];
  const bool large = q.sizes[0] > kMost || q.sizes[1] > kMost || q.sizes[2] > kLongest || k.sizes[2] > kLongest;
  return large ? kTooLarge : kSuccess;
}

// Whether every row of a tensor begins at a multiple of 16 bytes.
inline bool has_aligned_rows(const LoopTensor &tensor) {
  constexpr int64_t kElements = 8;
  bool aligned = reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0;
  for (int i = 0; i < 3; i++) aligned &= tensor.sizes[i] <= 1 || tensor.strides[i] % kElements == 0;
  return aligned;
}
inline bool has_aligned_rows(const LoopTensor *inputs, const LoopTensor *outputs) {
  return has_aligned_rows(inputs[0]) && has_aligned_rows(inputs[1]) && has_aligned_rows(inputs[2]) &&
         has_aligned_rows(outputs[0]) && inputs[0].sizes[3] % 8 == 0;
}

// The numbers of features that a kernel family has instances for, in ascending order.
template <int... kDepths>
struct Depths;
template <int kDepth>
struct Depths<kDepth> {
  static constexpr int kFirst = kDepth, kWidest = kDepth;
};
template <int kDepth, int... kMore>
struct Depths<kDepth, kMore...> {
  static constexpr int kFirst = kDepth, kWidest = Depths<kMore...>::kWidest;
  using More = Depths<kMore...>;
};

// Up to 16 features are gathered element by element, by families that have an instance for them; wider rows go in
// pieces of 16 bytes.
constexpr int kGathered = 16;

template <class Depths>
Error check_rows(const LoopTensor *inputs, const LoopTensor *outputs) {
  if (inputs[0].sizes[3] > Depths::kWidest) return kTooManyFeatures;
  const bool gathered = Depths::kFirst == kGathered && inputs[0].sizes[3] <= kGathered;
  return gathered || has_aligned_rows(inputs, outputs) ? kSuccess : kMisalignedRows;
}

// Everything an argument may be for; a call of nothing is done at once.
struct Entry {
  Error error = kSuccess;
  bool empty = false;
  Problem problem;
};

inline Entry admit(const LoopTensor *inputs, const LoopTensor *outputs, const double *attributes) {
  Entry entry;
  entry.error = check(inputs, outputs, attributes);
  if (!entry.error && element_size(inputs[0].dtype) != 2) entry.error = kUnsupportedDtype;
  if (!entry.error) entry.error = check_sizes(inputs);
  if (entry.error) return entry;
  entry.empty = is_empty(outputs[0]);
  entry.problem = describe(inputs, outputs, attributes);
  return entry;
}

// For the emulator: the bytes from a tensor's first element to its last.
inline void expose_tensor(const LoopTensor &tensor, const char *name, bool writable) {
  if (is_empty(tensor)) return;
  int64_t first = 0, last = tensor.sizes[3] - 1;
  for (int i = 0; i < 3; i++) (tensor.strides[i] < 0 ? first : last) += (tensor.sizes[i] - 1) * tensor.strides[i];
  const int64_t size = element_size(tensor.dtype);
  simt::expose(static_cast<const char *>(tensor.data) + first * size, static_cast<size_t>((last - first + 1) * size), name,
               writable);
}
inline void expose_tensors(const LoopTensor *inputs, const LoopTensor *outputs) {
  const char *const names[] = {"q", "k", "v"};
  simt::withdraw_all();
  for (int i = 0; i < 3; i++) expose_tensor(inputs[i], names[i], false);
  expose_tensor(outputs[0], "the output", true);
}

// A kernel family: `Depths`, and `run<T, kDepth>(problem, stream)` for the narrowest of them that holds the features.
template <class Family, typename T, class Depths>
Error run_with_depth(const Problem &problem, cudaStream_t stream) {
  if constexpr (Depths::kFirst != Depths::kWidest)
    if (problem.depth > Depths::kFirst) return run_with_depth<Family, T, typename Depths::More>(problem, stream);
  return Family::template run<T, Depths::kFirst>(problem, stream);
}

template <class Family>
Error run_family(Problem problem, int32_t dtype, cudaStream_t stream) {
  using Depths = typename Family::Depths;
  drop_hidden_keys(problem);
  return dtype == LOOP_FLOAT16 ? run_with_depth<Family, __half, Depths>(problem, stream)
                               : run_with_depth<Family, __nv_bfloat16, Depths>(problem, stream);
}

// The whole way of a call, for families whose tiles want aligned rows.
template <class Family>
int enter(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  const Entry entry = admit(inputs, outputs, attributes);
  if (entry.error || entry.empty) return entry.error;
  if (const Error error = check_rows<typename Family::Depths>(inputs, outputs)) return error;
  expose_tensors(inputs, outputs);
  return run_family<Family>(entry.problem, inputs[0].dtype, static_cast<cudaStream_t>(stream));
}

// The instances of a family, made explicitly: each is a symbol of the library, whatever the compiler inlines.
#if defined(ATTENTION_PARTS)
#define ATTENTION_INSTANCE(family, depth)  // Those that are looked into are made where they are called.
#else
#define ATTENTION_INSTANCE(family, depth)                                                  \
  template attention::Error attention::family<__half, depth>(const Problem &, cudaStream_t); \
  template attention::Error attention::family<__nv_bfloat16, depth>(const Problem &, cudaStream_t);
#endif
#define ATTENTION_INSTANCES(family) \
  ATTENTION_INSTANCE(family, 16)    \
  ATTENTION_INSTANCE(family, 32)    \
  ATTENTION_INSTANCE(family, 64)    \
  ATTENTION_INSTANCE(family, 128)
#define ATTENTION_WIDE_INSTANCES(family) \
  ATTENTION_INSTANCES(family)            \
  ATTENTION_INSTANCE(family, 96)         \
  ATTENTION_INSTANCE(family, 192)        \
  ATTENTION_INSTANCE(family, 256)

}  // namespace attention

// In the words of the interface, or the launch's own.
LOOP_EXPORT __attribute__((weak)) const char *loop_error(int error) {
  return error == attention::kLaunchFailed ? simt::launch_error() : attention::sentence(error);
}
