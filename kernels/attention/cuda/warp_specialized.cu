// Attention for Hopper: the C interface of the variant `warp_specialized`. The only translation unit.
#include "warp_specialized.cuh"

#define ATTENTION_GROUP_INSTANCES(family) \
  ATTENTION_INSTANCE(family, 64)          \
  ATTENTION_INSTANCE(family, 128)         \
  ATTENTION_INSTANCE(family, 192)         \
  ATTENTION_INSTANCE(family, 256)
ATTENTION_GROUP_INSTANCES(warp_specialized)

namespace {
struct WarpSpecialized {
  using Depths = attention::Depths<64, 128, 192, 256>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::warp_specialized<T, kDepth>(problem, stream);
  }
};
}  // namespace

LOOP_EXPORT int attention_warp_specialized(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes,
                                           void *stream) {
  return attention::enter<WarpSpecialized>(inputs, outputs, attributes, stream);
}
