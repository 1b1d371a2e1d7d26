// Attention for few heads and short sequences: the C interface of the variant `small`. The only translation unit.
#include "small.cuh"

ATTENTION_INSTANCES(small)

namespace {
struct Small {
  using Depths = attention::Depths<16, 32, 64, 128>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::small<T, kDepth>(problem, stream);
  }
};
}  // namespace

#if !defined(ATTENTION_PARTS)

LOOP_EXPORT int attention_small(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  return attention::enter<Small>(inputs, outputs, attributes, stream);
}

#else

ATTENTION_EXPORT_PARTS(small, attention::observe_family<Small>)

#endif
