// Attention for few queries and many keys: the C interface of the variant `decode`. The only translation unit.
#include "decode.cuh"

namespace {
struct Decode {
  using Depths = attention::Depths<64, 128, 256>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::decode<T, kDepth>(problem, stream);
  }
};
}  // namespace

ATTENTION_INSTANCE(decode, 64)
ATTENTION_INSTANCE(decode, 128)
ATTENTION_INSTANCE(decode, 256)

LOOP_EXPORT int attention_decode(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  return attention::enter<Decode>(inputs, outputs, attributes, stream);
}
