// Scaled-dot-product attention on the CPU: float32, bfloat16 and float16. The only translation unit; arguments are
// checked by interface.h, and what passes cannot fail, save for want of memory. The kernel is in attention.h.
#include <vector>

#include "../interface.h"
#include "schedule.h"

namespace {

using namespace attention;

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
  problem.group = k.sizes[1] ? q.sizes[1] / k.sizes[1] : 1;
  problem.queries = q.sizes[2];
  problem.keys = k.sizes[2];
  problem.depth = q.sizes[3];
  problem.q_strides = strides_of(q);
  problem.k_strides = strides_of(k);
  problem.v_strides = strides_of(v);
  problem.o_strides = strides_of(o);
  problem.causal = attributes[0] == 1;
  problem.diagonal = diagonal_of(attributes, problem.queries, problem.keys);
  problem.scale = static_cast<float>(scale_of(attributes, problem.depth));
  return problem;
}

Error attend_as(int32_t dtype, const Problem &problem) {
  switch (dtype) {
    case LOOP_FLOAT32: return attend<float>(problem) ? kSuccess : kOutOfMemory;
    case LOOP_BFLOAT16: return attend<Bfloat16>(problem) ? kSuccess : kOutOfMemory;
    default: return attend<Float16>(problem) ? kSuccess : kOutOfMemory;
  }
}

}  // namespace

#if !defined(ATTENTION_PARTS)

LOOP_EXPORT int attention_cpu(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *) {
  if (const Error error = check(inputs, outputs, attributes)) return error;
  return attend_as(inputs[0].dtype, describe(inputs, outputs, attributes));
}

#else

namespace {

// A call whose output is not wanted, but one of its parts.
int observe(Part part, const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *) {
  if (!inputs || !outputs || !attributes) return kNullArgument;
  const LoopTensor output = output_like(inputs[0]);
  if (const Error error = check(inputs, &output, attributes)) return error;
  Problem problem = describe(inputs, &output, attributes);
  if (const Error error = describe_part(part, outputs[0], inputs[0], inputs[1], problem.parts)) return error;
  std::fill_n(problem.parts.data, problem.parts.count(), problem.parts.nothing());
  std::vector<float> elsewhere(static_cast<size_t>(output.strides[0] * output.sizes[0]));
  problem.o = elsewhere.data();
  return attend_as(inputs[0].dtype, problem);
}

}  // namespace

ATTENTION_EXPORT_PARTS(cpu, observe)

#endif

LOOP_EXPORT const char *loop_error(int error) { return sentence(error); }
