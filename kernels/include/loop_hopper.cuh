// Hopper's own instructions (sm_90a), each behind a small function as in loop_device.cuh: PTX under nvcc, software under
// the emulator. Copies by tensor maps, mbarriers, named barriers, products of a warp group, registers that move between
// warps.
//
// Words of PTX that are kept: a *warp group* is four neighbouring warps, the first a multiple of four. An *mbarrier* lies in
// shared memory, counts arrivals and bytes, and ends a *phase* when none of either is missing; waits name a phase by its
// parity, the first one has 0. The *async proxy* is the way by which tensor copies and wgmma reach shared memory.
#pragma once

#include "loop_device.cuh"

namespace simt {

constexpr int kWarpGroup = 128;  // Threads.

// What wgmma is told of an operand in shared memory, kept in lines of 128 bytes whose 16-byte pieces are swizzled as a
// tensor map's 128-byte swizzle does (piece c of line r at c XOR r mod 8, tiles at multiples of 1024). kLeading: bytes
// from 64 elements along the contiguous dimension to the next 64, where that is the one of rows or columns of the product
// (else it does not count). kStride: bytes from eight lines to the next eight.
template <uint32_t kLeading, uint32_t kStride>
constexpr uint64_t kOperandLayout = uint64_t(1) << 62 | uint64_t(kStride >> 4) << 32 | uint64_t(kLeading >> 4) << 16;
SIMT_DEVICE uint64_t operand_at(uint64_t layout, SharedAddress address) {
  return layout | (address >> 4 & 0x3fff);
}

}  // namespace simt

#if defined(LOOP_EMULATE)
#include "../emulator/hopper.h"
#else

#include <cuda.h>

namespace simt {

// A tensor of up to four dimensions and the box that one copy takes of it.
using TensorMap = CUtensorMap;

// Rows of `sizes[0]` adjacent elements of two bytes, `strides` in elements; a copy takes 64 elements of `box_rows` rows.
// False where the driver declines: then launch_error() says why. The driver's function is asked for at run time, so
// nothing links with libcuda.
inline bool encode_tensor_map(TensorMap &map, const void *data, bool half, const int64_t (&sizes)[4],
                              const int64_t (&strides)[3], int box_rows) {
  using Encode = CUresult (*)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                              const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void *found = nullptr;
    cudaDriverEntryPointQueryResult result;
    const auto error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<Encode>(found) : nullptr;
  }();
  last_launch() = cudaErrorNotSupported;
  if (!encode) return false;
  const cuuint64_t counts[4] = {cuuint64_t(sizes[0]), cuuint64_t(sizes[1]), cuuint64_t(sizes[2]), cuuint64_t(sizes[3])};
  const cuuint64_t bytes[3] = {cuuint64_t(strides[0]) * 2, cuuint64_t(strides[1]) * 2, cuuint64_t(strides[2]) * 2};
  const cuuint32_t box[4] = {64, cuuint32_t(box_rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  const auto type = half ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUresult done = encode(&map, type, 4, const_cast<void *>(data), counts, bytes, box, steps,
                               CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  last_launch() = done == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
  return done == CUDA_SUCCESS;
}

// The same value in all lanes of a warp, told to the compiler.
SIMT_DEVICE unsigned uniform(unsigned value) { return __shfl_sync(0xffffffffu, value, 0); }
SIMT_DEVICE uint32_t shuffle_xor(uint32_t value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// mbarriers --------------------------------------------------------------------------------------------------------

// Eight bytes, at a multiple of eight. One thread makes it, then fences, then all threads meet.
SIMT_DEVICE void mbarrier_init(SharedAddress barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// What this thread has written to shared memory is there for the async proxy too, after the next barrier.
SIMT_DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
SIMT_DEVICE void mbarrier_arrive(SharedAddress barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// An arrival, and so many bytes that copies will bring in this phase.
SIMT_DEVICE void mbarrier_expect(SharedAddress barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of that parity has ended.
SIMT_DEVICE void mbarrier_wait(SharedAddress barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "AGAIN:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
      "@ended bra DONE;\n"
      "bra AGAIN;\n"
      "DONE:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Named barriers ---------------------------------------------------------------------------------------------------

// Barriers 1 to 15 of a block (0 is that of __syncthreads); `threads` is how many arrive in all, waiting or not.
SIMT_DEVICE void named_barrier_sync(unsigned barrier, unsigned threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
SIMT_DEVICE void named_barrier_arrive(unsigned barrier, unsigned threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// Copies by tensor maps --------------------------------------------------------------------------------------------

SIMT_DEVICE void prefetch_tensor_map(const TensorMap &map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}
// A box to shared memory, from element `feature` of row `row`; what the tensor does not have becomes zero. Its bytes count
// for the barrier when they are there.
SIMT_DEVICE void tensor_load(SharedAddress destination, const TensorMap &map, SharedAddress barrier, int feature, int row,
                             int head, int batch) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];" ::
          "r"(destination),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), "r"(feature), "r"(row), "r"(head), "r"(batch)
      : "memory");
}

// Registers --------------------------------------------------------------------------------------------------------

// Give registers back until each thread of the warp group has kRegisters; or wait until it can have as many.
template <int kRegisters>
SIMT_DEVICE void registers_down() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
SIMT_DEVICE void registers_up() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Products of a warp group -----------------------------------------------------------------------------------------

// Registers written before it may be read by products after it.
SIMT_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
SIMT_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Neither reads nor writes of these registers cross this place.
template <int kCount>
SIMT_DEVICE void hold(float (&registers)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i++) asm volatile("" : "+f"(registers[i])::"memory");
}
// Until at most kMayFly committed groups are still at work.
template <int kMayFly>
SIMT_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kMayFly) : "memory");
}

// Operands of an instruction by eights: their names, and the sums themselves.
// clang-format off
#define SIMT_NAMES_0 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SIMT_SUMS_0 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
#define SIMT_NAMES_1 "%8, %9, %10, %11, %12, %13, %14, %15"
#define SIMT_SUMS_1 "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
#define SIMT_NAMES_2 "%16, %17, %18, %19, %20, %21, %22, %23"
#define SIMT_SUMS_2 "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23])
#define SIMT_NAMES_3 "%24, %25, %26, %27, %28, %29, %30, %31"
#define SIMT_SUMS_3 "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define SIMT_NAMES_4 "%32, %33, %34, %35, %36, %37, %38, %39"
#define SIMT_SUMS_4 "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])
#define SIMT_NAMES_5 "%40, %41, %42, %43, %44, %45, %46, %47"
#define SIMT_SUMS_5 "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47])
#define SIMT_NAMES_6 "%48, %49, %50, %51, %52, %53, %54, %55"
#define SIMT_SUMS_6 "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55])
#define SIMT_NAMES_7 "%56, %57, %58, %59, %60, %61, %62, %63"
#define SIMT_SUMS_7 "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define SIMT_NAMES_8 "%64, %65, %66, %67, %68, %69, %70, %71"
#define SIMT_SUMS_8 "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]), "+f"(d[70]), "+f"(d[71])
#define SIMT_NAMES_9 "%72, %73, %74, %75, %76, %77, %78, %79"
#define SIMT_SUMS_9 "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]), "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79])
#define SIMT_NAMES_10 "%80, %81, %82, %83, %84, %85, %86, %87"
#define SIMT_SUMS_10 "+f"(d[80]), "+f"(d[81]), "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87])
#define SIMT_NAMES_11 "%88, %89, %90, %91, %92, %93, %94, %95"
#define SIMT_SUMS_11 "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]), "+f"(d[94]), "+f"(d[95])
#define SIMT_NAMES_12 "%96, %97, %98, %99, %100, %101, %102, %103"
#define SIMT_SUMS_12 "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]), "+f"(d[102]), "+f"(d[103])
#define SIMT_NAMES_13 "%104, %105, %106, %107, %108, %109, %110, %111"
#define SIMT_SUMS_13 "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]), "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111])
#define SIMT_NAMES_14 "%112, %113, %114, %115, %116, %117, %118, %119"
#define SIMT_SUMS_14 "+f"(d[112]), "+f"(d[113]), "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119])
#define SIMT_NAMES_15 "%120, %121, %122, %123, %124, %125, %126, %127"
#define SIMT_SUMS_15 "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]), "+f"(d[126]), "+f"(d[127])
#define SIMT_NAMES_TO_16 SIMT_NAMES_0
#define SIMT_NAMES_TO_32 SIMT_NAMES_TO_16 ", " SIMT_NAMES_1
#define SIMT_NAMES_TO_48 SIMT_NAMES_TO_32 ", " SIMT_NAMES_2
#define SIMT_NAMES_TO_64 SIMT_NAMES_TO_48 ", " SIMT_NAMES_3
#define SIMT_NAMES_TO_80 SIMT_NAMES_TO_64 ", " SIMT_NAMES_4
#define SIMT_NAMES_TO_96 SIMT_NAMES_TO_80 ", " SIMT_NAMES_5
#define SIMT_NAMES_TO_112 SIMT_NAMES_TO_96 ", " SIMT_NAMES_6
#define SIMT_NAMES_TO_128 SIMT_NAMES_TO_112 ", " SIMT_NAMES_7
#define SIMT_NAMES_TO_144 SIMT_NAMES_TO_128 ", " SIMT_NAMES_8
#define SIMT_NAMES_TO_160 SIMT_NAMES_TO_144 ", " SIMT_NAMES_9
#define SIMT_NAMES_TO_176 SIMT_NAMES_TO_160 ", " SIMT_NAMES_10
#define SIMT_NAMES_TO_192 SIMT_NAMES_TO_176 ", " SIMT_NAMES_11
#define SIMT_NAMES_TO_208 SIMT_NAMES_TO_192 ", " SIMT_NAMES_12
#define SIMT_NAMES_TO_224 SIMT_NAMES_TO_208 ", " SIMT_NAMES_13
#define SIMT_NAMES_TO_240 SIMT_NAMES_TO_224 ", " SIMT_NAMES_14
#define SIMT_NAMES_TO_256 SIMT_NAMES_TO_240 ", " SIMT_NAMES_15
#define SIMT_SUMS_TO_16 SIMT_SUMS_0
#define SIMT_SUMS_TO_32 SIMT_SUMS_TO_16, SIMT_SUMS_1
#define SIMT_SUMS_TO_48 SIMT_SUMS_TO_32, SIMT_SUMS_2
#define SIMT_SUMS_TO_64 SIMT_SUMS_TO_48, SIMT_SUMS_3
#define SIMT_SUMS_TO_80 SIMT_SUMS_TO_64, SIMT_SUMS_4
#define SIMT_SUMS_TO_96 SIMT_SUMS_TO_80, SIMT_SUMS_5
#define SIMT_SUMS_TO_112 SIMT_SUMS_TO_96, SIMT_SUMS_6
#define SIMT_SUMS_TO_128 SIMT_SUMS_TO_112, SIMT_SUMS_7
#define SIMT_SUMS_TO_144 SIMT_SUMS_TO_128, SIMT_SUMS_8
#define SIMT_SUMS_TO_160 SIMT_SUMS_TO_144, SIMT_SUMS_9
#define SIMT_SUMS_TO_176 SIMT_SUMS_TO_160, SIMT_SUMS_10
#define SIMT_SUMS_TO_192 SIMT_SUMS_TO_176, SIMT_SUMS_11
#define SIMT_SUMS_TO_208 SIMT_SUMS_TO_192, SIMT_SUMS_12
#define SIMT_SUMS_TO_224 SIMT_SUMS_TO_208, SIMT_SUMS_13
#define SIMT_SUMS_TO_240 SIMT_SUMS_TO_224, SIMT_SUMS_14
#define SIMT_SUMS_TO_256 SIMT_SUMS_TO_240, SIMT_SUMS_15
// clang-format on

// d = a b, or d += a b where `add`: 64 x 16 by 16 x N, sums in float. Thread t of the group has, in d[4 j + 2 h + i], row
// 16 (t / 32) + 8 h + t mod 32 / 4, column 8 j + 2 (t mod 4) + i. wgmma_shared: rows of a and columns of b are lines in
// shared memory. wgmma_registers: a comes in four registers, laid out as mma's; rows of b are the lines.
#define SIMT_WGMMA_OF(N, WORD, P0, P1, P2, P3, P4)                                                                 \
  SIMT_DEVICE void wgmma_shared_##WORD(float (&d)[N / 2], uint64_t a, uint64_t b, int add) {                         \
    asm volatile(                                                                                                    \
        "{\n.reg .pred add;\nsetp.ne.b32 add, %" #P2 ", 0;\n"                                                        \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #WORD "." #WORD " {" SIMT_NAMES_TO_##N "}, %" #P0          \
        ", %" #P1 ", add, 1, 1, 0, 0;\n}"                                                                            \
        : SIMT_SUMS_TO_##N                                                                                           \
        : "l"(a), "l"(b), "r"(add));                                                                                 \
  }                                                                                                                  \
  SIMT_DEVICE void wgmma_registers_##WORD(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b) {                   \
    asm volatile(                                                                                                    \
        "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                                               \
        "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." #WORD "." #WORD " {" SIMT_NAMES_TO_##N "}, {%" #P0 ", %"   \
        #P1 ", %" #P2 ", %" #P3 "}, %" #P4 ", add, 1, 1, 1;\n}"                                                      \
        : SIMT_SUMS_TO_##N                                                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                                       \
  }
#define SIMT_WGMMA(N, P0, P1, P2, P3, P4)    \
  SIMT_WGMMA_OF(N, f16, P0, P1, P2, P3, P4)  \
  SIMT_WGMMA_OF(N, bf16, P0, P1, P2, P3, P4)
SIMT_WGMMA(64, 32, 33, 34, 35, 36)
SIMT_WGMMA(80, 40, 41, 42, 43, 44)
SIMT_WGMMA(96, 48, 49, 50, 51, 52)
SIMT_WGMMA(112, 56, 57, 58, 59, 60)
SIMT_WGMMA(128, 64, 65, 66, 67, 68)
SIMT_WGMMA(144, 72, 73, 74, 75, 76)
SIMT_WGMMA(160, 80, 81, 82, 83, 84)
SIMT_WGMMA(176, 88, 89, 90, 91, 92)
SIMT_WGMMA(192, 96, 97, 98, 99, 100)
SIMT_WGMMA(256, 128, 129, 130, 131, 132)
template <typename T, int kSums>
SIMT_DEVICE void wgmma_shared(float (&d)[kSums], uint64_t a, uint64_t b, bool add) {
  if constexpr (std::is_same<T, __half>::value)
    wgmma_shared_f16(d, a, b, add);
  else
    wgmma_shared_bf16(d, a, b, add);
}
template <typename T, int kSums>
SIMT_DEVICE void wgmma_registers(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same<T, __half>::value)
    wgmma_registers_f16(d, a, b);
  else
    wgmma_registers_bf16(d, a, b);
}

}  // namespace simt

#endif
