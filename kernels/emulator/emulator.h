// The emulator's side of loop_device.cuh: the same functions under g++. See README.md.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "launch.h"

// CUDA's own words.
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define SIMT_DEVICE inline
#define __launch_bounds__(...)
#define threadIdx (simt::emulator::Block::lane().index)
#define blockIdx (simt::emulator::Block::lane().block->index())
#define blockDim (simt::emulator::Block::lane().block->shape().block)
#define gridDim (simt::emulator::Block::lane().block->shape().grid)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
using cudaStream_t = void *;

inline void __syncthreads(simt::emulator::Where where = simt::emulator::Where::here()) {
  auto &lane = simt::emulator::Block::lane();
  lane.block->meet_block(lane, where);
}
inline void __syncwarp(simt::emulator::Where where = simt::emulator::Where::here()) {
  auto &lane = simt::emulator::Block::lane();
  lane.block->meet(lane, simt::emulator::kSyncWarp, where);
}

namespace simt {

using emulator::Where;
using SharedAddress = uint32_t;

struct alignas(8) Words2 {
  uint32_t x, y;
};
struct alignas(16) Words4 {
  uint32_t x, y, z, w;
};
struct alignas(8) Floats2 {
  float x, y;
};
struct alignas(16) Floats4 {
  float x, y, z, w;
};

// Shared memory ----------------------------------------------------------------------------------------------------

inline SharedAddress shared_base() { return 0; }

template <typename T>
T shared_load(SharedAddress address, Where where = Where::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16 || sizeof(T) == 2, "2, 4, 8 or 16 bytes");
  auto &lane = emulator::Block::lane();
  lane.block->read_shared(lane, address, sizeof(T), where);
  T value;
  std::memcpy(&value, lane.block->shared.at(address), sizeof value);
  return value;
}
template <typename T>
void shared_store(SharedAddress address, T value, Where where = Where::here()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16 || sizeof(T) == 2, "2, 4, 8 or 16 bytes");
  auto &lane = emulator::Block::lane();
  lane.block->write_shared(lane, address, &value, sizeof(T), where);
  std::memcpy(lane.block->shared.at(address), &value, sizeof value);
}

// Global memory ----------------------------------------------------------------------------------------------------

template <typename T>
T global_load(const T *data, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->read_global(lane, data, sizeof(T), alignof(T), where);
  return *data;
}
template <typename T>
void global_store(T *data, T value, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->write_global(lane, data, &value, sizeof(T), alignof(T), where);
  *data = value;
}

inline void cp_async_16(SharedAddress destination, const void *source, bool valid, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->issue(lane, {destination, source, 16, valid ? 16u : 0u}, where);
}
inline void cp_async_commit() {
  auto &lane = emulator::Block::lane();
  lane.groups.push_back(std::move(lane.copies));
  lane.copies.clear();
}
template <int kMayFly>
void cp_async_wait(Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->land(lane, kMayFly, where);
}

// The warp together ------------------------------------------------------------------------------------------------

inline float shuffle_xor(float value, int mask, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.value = emulator::as_bits(value);
  lane.source = static_cast<int>(lane.thread % emulator::kLanes) ^ mask;
  lane.block->meet(lane, emulator::kShuffle, where);
  return emulator::as_float(lane.value);
}
inline bool warp_any(bool holds, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.value = holds;
  lane.block->meet(lane, emulator::kAny, where);
  return lane.value != 0;
}
inline void ldmatrix_x4(uint32_t (&registers)[4], SharedAddress row, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.address = row, lane.registers = registers;
  lane.block->meet(lane, emulator::kLdmatrix, where);
}
inline void ldmatrix_x4_transposed(uint32_t (&registers)[4], SharedAddress row, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.address = row, lane.registers = registers;
  lane.block->meet(lane, emulator::kLdmatrixTransposed, where);
}
template <typename T>
void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.accumulators = d, lane.a = a, lane.b[0] = b0, lane.b[1] = b1;
  constexpr bool kHalf = std::is_same<T, __half>::value;
  lane.block->meet(lane, kHalf ? emulator::kMmaHalf : emulator::kMmaBfloat, where);
}

// One kernel after another: here each has ended before the next begins, and one of launch_early has to wait all the same.
inline void allow_next() {}
inline void wait_for_previous() { emulator::Block::lane().may_touch = true; }

// Arithmetic -------------------------------------------------------------------------------------------------------

inline float exp2_approx(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0.0f : y;  // .ftz
}
inline float reciprocal_approx(float x) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  const float y = 1.0f / (std::fabs(x) < kSmallest ? std::copysign(0.0f, x) : x);
  return std::fabs(y) < kSmallest ? std::copysign(0.0f, y) : y;  // .ftz
}
inline float to_float(float value) { return value; }
inline float to_float(__half value) { return emulator::half_to_float(value.bits); }
inline float to_float(__nv_bfloat16 value) { return emulator::bfloat_to_float(value.bits); }

template <typename T>
T from_float(float value);
template <>
inline float from_float<float>(float value) { return value; }
template <>
inline __half from_float<__half>(float value) { return {emulator::float_to_half(value)}; }
template <>
inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) { return {emulator::float_to_bfloat(value)}; }

// Two elements in a register, the first in its lower half.
template <typename T>
uint32_t pack(float low, float high) {
  return from_float<T>(low).bits | static_cast<uint32_t>(from_float<T>(high).bits) << 16;
}

// The host ---------------------------------------------------------------------------------------------------------

// Into the file of launches, as a line of its own: why the launches after it are those that they are.
template <typename... Values>
void remark(const char *words, Values... values) {
  if (const char *path = std::getenv("LOOP_EMULATOR_LAUNCHES"))
    emulator::append(path, "{\"remark\": \"" + emulator::format(words, values...) + "\"}\n");
}

// What a kernel may touch: read only, or written too. Without any, global memory is not checked.
inline void expose(const void *data, size_t bytes, const char *name, bool writable) {
  emulator::global_memory().expose(data, bytes, name, writable);
}
inline void withdraw_all() { emulator::global_memory().clear(); }

template <bool kEarly, auto kKernel, typename... Arguments>
bool launch_when(dim3 grid, dim3 block, size_t shared_bytes, const Arguments &...arguments) {
  const emulator::Shape shape{{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes, kEarly};
  const auto call = [&arguments...] { kKernel(arguments...); };
  const emulator::Kernel kernel{[](const void *bound) { (*static_cast<decltype(&call)>(bound))(); }, &call};
  return emulator::Launch(reinterpret_cast<const void *>(kKernel), shape).run(kernel);
}
template <auto kKernel, typename... Arguments>
bool launch(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t, const Arguments &...arguments) {
  return launch_when<false, kKernel>(grid, block, shared_bytes, arguments...);
}
template <auto kKernel, typename... Arguments>
bool launch_early(dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t, const Arguments &...arguments) {
  return launch_when<true, kKernel>(grid, block, shared_bytes, arguments...);
}
constexpr bool kEarlyLaunches = false;  // No kernel runs beside another.
constexpr size_t kWholeMultiprocessor = 0;
inline const char *launch_error() { return emulator::launch_fault().c_str(); }

// For `loop`, of any library that is emulated: the seed of the launch that just faulted, once; 0 where none did.
extern "C" __attribute__((used, visibility("default"))) inline uint64_t loop_fault_seed() {
  return std::exchange(emulator::launch_seed(), 0);
}

// Device memory for the time of a call; all NaN.
class Workspace {
 public:
  Workspace(size_t bytes, cudaStream_t) : data_(std::aligned_alloc(256, (bytes + 255) / 256 * 256)) {
    if (!data_) return;
    std::memset(data_, 0xff, bytes);
    expose(data_, bytes, "the workspace", true);
  }
  ~Workspace() {
    emulator::global_memory().withdraw(data_);
    std::free(data_);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  void *data() const { return data_; }

 private:
  void *data_;
};

}  // namespace simt
