// Parts of a kernel's work on a device: how they are written down, and the call that asks for one (../parts.h).
#pragma once

#if defined(ATTENTION_PARTS)

#include "dispatch.cuh"

namespace attention {

using namespace simt;

__global__ void __launch_bounds__(128) clear_parts_kernel(float *const data, const int64_t count, const float nothing) {
  const int64_t at = int64_t(blockIdx.x) * 128 + threadIdx.x;
  if (at < count) global_store(data + at, nothing);
}

// A call of `run(problem, stream)` whose output is not wanted, but one of its parts.
template <class Run>
int observe(Part part, const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream,
            bool aligned, Run run) {
  if (!inputs || !outputs || !attributes) return kNullArgument;
  const LoopTensor output = output_like(inputs[0]);
  Entry entry = admit(inputs, &output, attributes);
  if (entry.error || entry.empty) return entry.error;
  if (const Error error = aligned ? check_rows<Depths<16, 32, 64, 128>>(inputs, &output) : kSuccess) return error;
  if (inputs[0].dtype != LOOP_FLOAT16) return kUnsupportedDtype;  // One type tells enough, and compiles sooner.
  Parts &parts = entry.problem.parts;
  if (const Error error = describe_part(part, outputs[0], inputs[0], inputs[1], parts)) return error;
  const auto queue = static_cast<cudaStream_t>(stream);
  simt::withdraw_all();
  const char *const names[] = {"q", "k", "v"};
  for (int i = 0; i < 3; i++) expose_tensor(inputs[i], names[i], false);
  simt::expose(parts.data, static_cast<size_t>(parts.count()) * sizeof(float), "the part", true);
  const Workspace workspace(static_cast<size_t>(output.strides[0] * output.sizes[0]) * 2, queue);
  if (!workspace.data()) return kOutOfMemory;
  entry.problem.o = workspace.data();
  const int64_t count = parts.count();
  const dim3 grid(static_cast<unsigned>((count + 127) / 128));
  if (count && !launch<clear_parts_kernel>(grid, dim3(128), 0, queue, parts.data, count, parts.nothing()))
    return kLaunchFailed;
  return run(entry.problem, queue);
}

// For families of instances: a few tell enough here too.
template <class Family>
int observe_family(Part part, const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream) {
  return observe(part, inputs, outputs, attributes, stream, true, [](const Problem &problem, cudaStream_t queue) {
    if (problem.depth <= kGathered) return Family::template run<__half, 16>(problem, queue);
    return problem.depth <= 64 ? Family::template run<__half, 64>(problem, queue)
                               : Family::template run<__half, 128>(problem, queue);
  });
}

}  // namespace attention

#endif
