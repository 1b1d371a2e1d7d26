// Scaled-dot-product attention on the CPU: float32, bfloat16 and float16. The only translation unit; arguments are
// checked by interface.h, and what passes cannot fail, save for want of memory. The kernel is in attention.h.
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

LOOP_EXPORT const char *loop_error(int error) { return sentence(error); }
