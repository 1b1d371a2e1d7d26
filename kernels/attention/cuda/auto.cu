// The variant `auto`: every kernel in one translation unit, and a choice by shape.
#include "auto.cuh"

ATTENTION_WIDE_INSTANCES(choose)

namespace {
struct Auto {
  using Depths = attention::Depths<16, 32, 64, 96, 128, 192, 256>;
  template <typename T, int kDepth>
  static attention::Error run(const attention::Problem &problem, cudaStream_t stream) {
    return attention::choose<T, kDepth>(problem, stream);
  }
};
}  // namespace

LOOP_EXPORT int attention_auto(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  using namespace attention;
  const Entry entry = admit(inputs, outputs, attributes);
  if (entry.error || entry.empty) return entry.error;
  expose_tensors(inputs, outputs);
  const auto queue = static_cast<cudaStream_t>(stream);
  if (check_rows<Auto::Depths>(inputs, outputs) == kSuccess) return run_family<Auto>(entry.problem, inputs[0].dtype, queue);
  return inputs[0].dtype == LOOP_FLOAT16 ? fa1<__half>(entry.problem, queue) : fa1<__nv_bfloat16>(entry.problem, queue);
}
