// Scalar attention: the C interface of the variant `fa1`. The only translation unit.
#include "fa1.cuh"

template attention::Error attention::fa1<__half>(const Problem &, cudaStream_t);
template attention::Error attention::fa1<__nv_bfloat16>(const Problem &, cudaStream_t);

#if !defined(ATTENTION_PARTS)

LOOP_EXPORT int attention_fa1(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  using namespace attention;
  const Entry entry = admit(inputs, outputs, attributes);
  if (entry.error || entry.empty) return entry.error;
  expose_tensors(inputs, outputs);
  const auto queue = static_cast<cudaStream_t>(stream);
  return inputs[0].dtype == LOOP_FLOAT16 ? fa1<__half>(entry.problem, queue) : fa1<__nv_bfloat16>(entry.problem, queue);
}

#else

namespace {
int observe_fa1(attention::Part part, const LoopTensor *inputs, LoopTensor *outputs, const double *attributes,
                void *stream) {
  return attention::observe(part, inputs, outputs, attributes, stream, false, attention::fa1<__half>);
}
}  // namespace

ATTENTION_EXPORT_PARTS(fa1, observe_fa1)

#endif
