// The device instructions that kernels use, each behind a small function: PTX under nvcc, and under g++ with
// -DLOOP_EMULATE the same functions in software (kernels/emulator). A kernel that keeps to them runs on both.
//
// Three rules make a source run on both:
//   - shared memory is one dynamic array, addressed in bytes from shared_base(), touched by these functions only;
//   - global memory is read and written by global_load, global_store and cp_async_16;
//   - kernels are launched by launch<kernel>(...), not by <<< >>>.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(LOOP_EMULATE)
#include "../emulator/emulator.h"
#else

#include <atomic>
#include <mutex>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "loop_kernel.h"

namespace simt {

#define SIMT_DEVICE __device__ __forceinline__

using SharedAddress = uint32_t;  // In the block's window of shared memory, in bytes.
using Words2 = uint2;
using Words4 = uint4;
using Floats2 = float2;
using Floats4 = float4;

// Shared memory ----------------------------------------------------------------------------------------------------

extern __shared__ __align__(1024) unsigned char shared_bytes[];

SIMT_DEVICE SharedAddress shared_base() { return static_cast<uint32_t>(__cvta_generic_to_shared(shared_bytes)); }

template <typename T>
SIMT_DEVICE T shared_load(SharedAddress address) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16 || sizeof(T) == 2, "2, 4, 8 or 16 bytes");
  T value;
  if constexpr (sizeof(T) == 2) {
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(reinterpret_cast<uint16_t &>(value)) : "r"(address));
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(reinterpret_cast<uint32_t &>(value)) : "r"(address));
  } else if constexpr (sizeof(T) == 8) {
    uint2 &words = reinterpret_cast<uint2 &>(value);
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(words.x), "=r"(words.y) : "r"(address));
  } else {
    uint4 &words = reinterpret_cast<uint4 &>(value);
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "r"(address));
  }
  return value;
}

template <typename T>
SIMT_DEVICE void shared_store(SharedAddress address, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16 || sizeof(T) == 2, "2, 4, 8 or 16 bytes");
  if constexpr (sizeof(T) == 2) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(reinterpret_cast<uint16_t &>(value)));
  } else if constexpr (sizeof(T) == 4) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(reinterpret_cast<uint32_t &>(value)));
  } else if constexpr (sizeof(T) == 8) {
    const uint2 &words = reinterpret_cast<uint2 &>(value);
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(address), "r"(words.x), "r"(words.y));
  } else {
    const uint4 &words = reinterpret_cast<uint4 &>(value);
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w));
  }
}

// Global memory ----------------------------------------------------------------------------------------------------

template <typename T>
SIMT_DEVICE T global_load(const T *data) {
  return *data;
}
// 16 bytes as one instruction: left to itself the compiler makes four of them.
template <typename T>
SIMT_DEVICE void global_store(T *data, T value) {
  if constexpr (sizeof(T) == 16) {
    const uint4 &words = reinterpret_cast<uint4 &>(value);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(data), "r"(words.x), "r"(words.y), "r"(words.z),
                 "r"(words.w)
                 : "memory");
  } else {
    *data = value;
  }
}

// 16 bytes to shared memory, past the registers and past L1; zeros when not `valid`. They are there after a
// cp_async_wait of this thread, and for others after a barrier that follows it.
SIMT_DEVICE void cp_async_16(SharedAddress destination, const void *source, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(destination), "l"(source), "r"(bytes));
}
SIMT_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;"); }
// Until at most kMayFly of this thread's committed groups are still on their way.
template <int kMayFly>
SIMT_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kMayFly));
}

// The warp together ------------------------------------------------------------------------------------------------

SIMT_DEVICE float shuffle_xor(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }
SIMT_DEVICE bool warp_any(bool holds) { return __any_sync(0xffffffffu, holds); }

// Four 8x8 matrices of two-byte elements; lane 8q + r gives the address of row r of matrix q.
SIMT_DEVICE void ldmatrix_x4(uint32_t (&registers)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(row));
}
SIMT_DEVICE void ldmatrix_x4_transposed(uint32_t (&registers)[4], SharedAddress row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
               : "r"(row));
}

// d += a b: 16x16 by 16x8, elements of type T, sums in float.
template <typename T>
SIMT_DEVICE void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (std::is_same<T, __half>::value) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    static_assert(std::is_same<T, __nv_bfloat16>::value, "the tensor core multiplies __half or __nv_bfloat16 here");
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

// One kernel after another -----------------------------------------------------------------------------------------

// Once all blocks have called this or ended, the next kernel's begin, if it is one of launch_early. From sm_90 on.
SIMT_DEVICE void allow_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
// Until the kernels before have ended, and what they wrote is there: the first that a kernel of launch_early does with
// memory.
SIMT_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Arithmetic -------------------------------------------------------------------------------------------------------

// 2^x to 2 units in the last place; subnormal results are 0.
SIMT_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// 1/x to one unit in the last place; of a subnormal x it is infinite, where x is too large it is 0.
SIMT_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
SIMT_DEVICE float to_float(float value) { return value; }
SIMT_DEVICE float to_float(__half value) { return __half2float(value); }
SIMT_DEVICE float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
SIMT_DEVICE T from_float(float value) {
  if constexpr (std::is_same<T, float>::value) {
    return value;
  } else if constexpr (std::is_same<T, __half>::value) {
    return __float2half_rn(value);
  } else {
    return __float2bfloat16_rn(value);
  }
}

// Two elements in a register, the first in its lower half.
template <typename T>
SIMT_DEVICE uint32_t pack(float low, float high) {
  if constexpr (std::is_same<T, __half>::value) {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t &>(pair);
  } else {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t &>(pair);
  }
}

// The host ---------------------------------------------------------------------------------------------------------

// For `loop kernels resources --launches`: why a call goes to the kernel that it goes to. Under the emulator it is written down.
template <typename... Values>
void remark(const char *, Values...) {}

// For the emulator: what a kernel may touch. On a GPU compute-sanitizer sees that.
inline void expose(const void *, size_t, const char *, bool) {}
inline void withdraw_all() {}

inline cudaError_t &last_launch() {
  static thread_local cudaError_t error = cudaSuccess;
  return error;
}
inline const char *launch_error() { return cudaGetErrorString(last_launch()); }

// Let a kernel have that much shared memory; above 48 KB it has to be asked for, once on each device.
template <auto kKernel>
cudaError_t allow_shared(size_t bytes) {
  constexpr size_t kWithoutAsking = 48 << 10, kDevices = 64;
  static std::atomic<size_t> allowed[kDevices];
  static std::mutex one_at_a_time;  // What one thread has asked for, another that needs less would take back.
  int device = 0;
  if (bytes <= kWithoutAsking) return cudaSuccess;
  if (const cudaError_t error = cudaGetDevice(&device)) return error;
  std::atomic<size_t> &most = allowed[device % kDevices];
  if (bytes <= most) return cudaSuccess;
  const std::lock_guard<std::mutex> alone(one_at_a_time);
  if (bytes <= most) return cudaSuccess;
  const auto error = cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  return error;
}

// Launch on a stream; false when the launch itself failed, then launch_error() says why. kEarly: the kernel may begin
// while the one before it still runs.
template <auto kKernel, bool kEarly, typename... Arguments>
bool launch_when(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Arguments &...arguments) {
  last_launch() = allow_shared<kKernel>(shared_bytes);
  if (last_launch() != cudaSuccess) return false;
  if constexpr (kEarly) {
    cudaLaunchAttribute early;
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared_bytes, config.stream = stream;
    config.attrs = &early, config.numAttrs = 1;
    last_launch() = cudaLaunchKernelEx(&config, kKernel, arguments...);
  } else {
    kKernel<<<grid, block, shared_bytes, stream>>>(arguments...);
    last_launch() = cudaGetLastError();
  }
  return last_launch() == cudaSuccess;
}
template <auto kKernel, typename... Arguments>
bool launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Arguments &...arguments) {
  return launch_when<kKernel, false>(grid, block, shared_bytes, stream, arguments...);
}

// The same for a kernel that calls wait_for_previous. GPUs before sm_90 know no such launch.
constexpr int kBuiltFor[] = {__CUDA_ARCH_LIST__};
constexpr bool kEarlyLaunches = kBuiltFor[0] >= 900;
template <auto kKernel, typename... Arguments>
bool launch_early(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, const Arguments &...arguments) {
  return launch_when<kKernel, kEarlyLaunches>(grid, block, shared_bytes, stream, arguments...);
}
// Shared memory with which a block has a multiprocessor to itself, where kernels are launched early: more than half.
constexpr size_t kWholeMultiprocessor = kEarlyLaunches && kBuiltFor[0] < 1200 ? 116 << 10 : 0;

// Memory that the program around lends (loop_kernel.h); without functions while it lends none.
inline LoopMemory &lent_memory() {
  static LoopMemory memory = {};
  return memory;
}

// Device memory for the time of a call, in the order of its stream: can be captured in a graph.
class Workspace {
 public:
  Workspace(size_t bytes, cudaStream_t stream) : stream_(stream) {
    if (lent_memory().take) {
      data_ = lent_memory().take(bytes, &loan_);
    } else {
      last_launch() = cudaMallocAsync(&data_, bytes, stream);
      if (last_launch() != cudaSuccess) data_ = nullptr;
    }
  }
  ~Workspace() {
    if (loan_)
      lent_memory().give(loan_);
    else if (data_)
      cudaFreeAsync(data_, stream_);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  void *data() const { return data_; }

 private:
  cudaStream_t stream_;
  void *data_ = nullptr, *loan_ = nullptr;
};

}  // namespace simt

LOOP_EXPORT __attribute__((weak)) void loop_lend(const LoopMemory *memory) { simt::lent_memory() = *memory; }

#endif
