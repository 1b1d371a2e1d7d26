// The emulator's side of loop_hopper.cuh.
#pragma once

#define __grid_constant__

namespace simt {

// What the driver checks, and says nothing of.
inline bool encode_tensor_map(TensorMap &map, const void *data, bool, const int64_t (&sizes)[4], const int64_t (&strides)[3],
                              int box_rows) {
  std::string wrong;
  if (!data) wrong = "a tensor map of no data";
  if (reinterpret_cast<uintptr_t>(data) % 16) wrong = "a tensor map of data at no multiple of 16 bytes";
  for (int64_t size : sizes)
    if (size < 1 || size > int64_t(1) << 32) wrong = emulator::format("a tensor map of size %lld", static_cast<long long>(size));
  for (int64_t stride : strides)
    if (stride % 8 || stride < 0 || stride >= int64_t(1) << 39)
      wrong = emulator::format("a tensor map with a stride of %lld elements: a multiple of 16 bytes, up to 2^40",
                               static_cast<long long>(stride));
  if (box_rows < 1 || box_rows > 256) wrong = emulator::format("a tensor map whose box has %d rows: 1 to 256", box_rows);
  map.data = static_cast<const char *>(data), map.box_rows = box_rows;
  for (int i = 0; i < 4; i++) map.sizes[i] = sizes[i];
  for (int i = 0; i < 3; i++) map.strides[i] = strides[i] * 2;
  emulator::launch_fault() = wrong;
  return wrong.empty();
}

inline unsigned uniform(unsigned value) { return value; }
inline uint32_t shuffle_xor(uint32_t value, int mask, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.value = value;
  lane.source = static_cast<int>(lane.thread % emulator::kLanes) ^ mask;
  lane.block->meet(lane, emulator::kShuffle, where);
  return lane.value;
}

inline void mbarrier_init(SharedAddress barrier, unsigned arrivals, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->make_mbarrier(lane, barrier, arrivals, where);
}
inline void fence_async_proxy() {
  auto &lane = emulator::Block::lane();
  lane.fenced = lane.writes;
}
inline void mbarrier_arrive(SharedAddress barrier, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->arrive(lane, barrier, 0, where);
}
inline void mbarrier_expect(SharedAddress barrier, unsigned bytes, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->arrive(lane, barrier, bytes, where);
}
inline void mbarrier_wait(SharedAddress barrier, unsigned parity, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->wait_mbarrier(lane, barrier, parity, where);
}

inline void named_barrier_sync(unsigned barrier, unsigned threads, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->arrive_named(lane, barrier, threads, true, where);
}
inline void named_barrier_arrive(unsigned barrier, unsigned threads, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->arrive_named(lane, barrier, threads, false, where);
}

inline void prefetch_tensor_map(const TensorMap &) {}
inline void tensor_load(SharedAddress destination, const TensorMap &map, SharedAddress barrier, int feature, int row,
                        int head, int batch, Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->copy_tensor(lane, map, destination, barrier, {feature, row, head, batch}, where);
}

template <int kRegisters>
void registers_down(Where where = Where::here()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "registers: a multiple of 8, 24 to 256");
  auto &lane = emulator::Block::lane();
  lane.value = kRegisters;
  lane.block->meet(lane, emulator::kRegistersDown, where);
}
template <int kRegisters>
void registers_up(Where where = Where::here()) {
  static_assert(kRegisters % 8 == 0 && kRegisters >= 24 && kRegisters <= 256, "registers: a multiple of 8, 24 to 256");
  auto &lane = emulator::Block::lane();
  do {
    lane.value = kRegisters;
    lane.block->meet(lane, emulator::kRegistersUp, where);
  } while (lane.block->registers_of(lane) != kRegisters);
}

inline void wgmma_fence(Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->meet(lane, emulator::kWgmmaFence, where);
}
inline void wgmma_commit(Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->meet(lane, emulator::kWgmmaCommit, where);
}
template <int kMayFly>
void wgmma_wait(Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.value = kMayFly;
  lane.block->meet(lane, emulator::kWgmmaWait, where);
}
template <int kCount>
void hold(float (&registers)[kCount], Where where = Where::here()) {
  auto &lane = emulator::Block::lane();
  lane.block->use_sums(lane, registers, where);
}

template <typename T, int kSums>
void wgmma_shared(float (&d)[kSums], uint64_t a, uint64_t b, bool add, Where where = Where::here()) {
  static_assert(kSums % 4 == 0 && kSums <= 128, "columns: a multiple of 8, up to 256");
  auto &lane = emulator::Block::lane();
  lane.accumulators = d, lane.operands[0] = a, lane.operands[1] = b, lane.add = add, lane.columns = 2 * kSums;
  constexpr bool kHalf = std::is_same<T, __half>::value;
  lane.block->meet(lane, kHalf ? emulator::kWgmmaHalf : emulator::kWgmmaBfloat, where);
}
template <typename T, int kSums>
void wgmma_registers(float (&d)[kSums], const uint32_t (&a)[4], uint64_t b, Where where = Where::here()) {
  static_assert(kSums % 4 == 0 && kSums <= 128, "columns: a multiple of 8, up to 256");
  auto &lane = emulator::Block::lane();
  lane.accumulators = d, lane.a = a, lane.operands[0] = 0, lane.operands[1] = b, lane.add = true, lane.columns = 2 * kSums;
  constexpr bool kHalf = std::is_same<T, __half>::value;
  lane.block->meet(lane, kHalf ? emulator::kWgmmaHalfRegisters : emulator::kWgmmaBfloatRegisters, where);
}

}  // namespace simt
