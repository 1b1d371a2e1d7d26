// Attention on tensor cores: the C interface of the variant `tensor_core`. The only translation unit.
#include "tensor_core.cuh"

ATTENTION_WIDE_INSTANCES(tensor_core)

namespace {
struct TensorCore {
  using Depths = attention::Depths<16, 32, 64, 96, 128, 192, 256>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::tensor_core<T, kDepth>(problem, stream);
  }
};
}  // namespace

#if !defined(ATTENTION_PARTS)

LOOP_EXPORT int attention_tensor_core(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes,
                                      void *stream) {
  return attention::enter<TensorCore>(inputs, outputs, attributes, stream);
}

#else

ATTENTION_EXPORT_PARTS(tensor_core, attention::observe_family<TensorCore>)

#endif
