// What a warp does together, in software: the fragments are laid out as the PTX manual draws them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "block.h"
#include "half.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

inline void execute_sync_warp(Block &block, Lane *const *lanes) {
  for (int i = 0; i < kLanes; i++)
    if (lanes[i]) return block.order_warp(*lanes[i]);
}

inline void execute_shuffle(Block &block, Lane *const *lanes) {
  uint32_t values[kLanes] = {};
  for (int i = 0; i < kLanes; i++)
    if (lanes[i]) values[i] = lanes[i]->value;
  for (int i = 0; i < kLanes; i++) {
    if (!lanes[i]) continue;
    const int source = lanes[i]->source & (kLanes - 1);
    if (!lanes[source])
      return block.fault_in(*lanes[i], format("shuffles a value from lane %d, which is not there", source));
    lanes[i]->value = values[source];
  }
}

inline void execute_any(Block &, Lane *const *lanes) {
  uint32_t any = 0;
  for (int i = 0; i < kLanes; i++) any |= lanes[i] && lanes[i]->value;
  for (int i = 0; i < kLanes; i++)
    if (lanes[i]) lanes[i]->value = any;
}

// Wavefronts beyond the first that eight rows of 16 bytes take: rows that differ and share banks come one by one.
inline unsigned conflicts_of(Lane *const *lanes) {
  unsigned used[8] = {}, most = 1;
  for (int r = 0; r < 8; r++) {
    const uint32_t address = lanes[r]->address;
    bool again = false;
    for (int other = 0; other < r; other++) again |= lanes[other]->address == address;
    if (!again) most = std::max(most, ++used[address / 16 % 8]);
  }
  return most - 1;
}

// ldmatrix .x4: lane 8q + r gives the address of row r of matrix q, 16 bytes. `kTransposed`: .trans.
template <bool kTransposed>
void execute_ldmatrix(Block &block, Lane *const *lanes) {
  uint16_t rows[32][8];
  for (int i = 0; i < kLanes; i++) {
    Lane &lane = *lanes[i];
    if (!block.shared.read(lane.address, 16, block.stamp(lane, lane.where)))
      return block.fault_in(lane, block.shared.fault());
    std::memcpy(rows[i], block.shared.at(lane.address), 16);
  }
  for (int q = 0; q < 4; q++) block.conflicts += conflicts_of(lanes + 8 * q);
  block.fetches++;
  for (int i = 0; i < kLanes; i++)
    for (int q = 0; q < 4; q++) {
      const int row = 8 * q + i / 4, column = i % 4 * 2;
      const uint16_t low = kTransposed ? rows[8 * q + column][i / 4] : rows[row][column];
      const uint16_t high = kTransposed ? rows[8 * q + column + 1][i / 4] : rows[row][column + 1];
      lanes[i]->registers[q] = low | static_cast<uint32_t>(high) << 16;
    }
}

// mma.sync m16n8k16, row.col, accumulators in float. The tensor core adds in an order of its own: the last bits are
// not those of a GPU.
template <float (*to_float)(uint16_t)>
void execute_mma(Block &, Lane *const *lanes) {
  typedef float Row __attribute__((vector_size(32)));
  constexpr int kA = 16 * 16, kB = 16 * 8;
  uint16_t elements[kA + kB];  // a[16][16], then b[16][8].
  Row d[16];
  for (int i = 0; i < kLanes; i++) {
    const Lane &lane = *lanes[i];
    const int row = i / 4, column = i % 4 * 2;
    const auto put = [&elements](int first, int step, uint32_t pair) {
      elements[first] = static_cast<uint16_t>(pair), elements[first + step] = static_cast<uint16_t>(pair >> 16);
    };
    for (int part = 0; part < 4; part++) put((row + part % 2 * 8) * 16 + column + part / 2 * 8, 1, lane.a[part]);
    for (int part = 0; part < 2; part++) put(kA + (column + part * 8) * 8 + row, 8, lane.b[part]);
    for (int part = 0; part < 4; part++) d[row + part / 2 * 8][column + part % 2] = lane.accumulators[part];
  }
  alignas(32) float values[kA + kB];
  for (int i = 0; i < kA + kB; i++) values[i] = to_float(elements[i]);
  const Row *b = reinterpret_cast<const Row *>(values + kA);
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++) d[row] += values[row * 16 + k] * b[k];
  for (int i = 0; i < kLanes; i++)
    for (int part = 0; part < 4; part++) lanes[i]->accumulators[part] = d[i / 4 + part / 2 * 8][i % 4 * 2 + part % 2];
}

inline constexpr Collective kSyncWarp{"__syncwarp", execute_sync_warp, false};
inline constexpr Collective kShuffle{"a shuffle", execute_shuffle, false};
inline constexpr Collective kAny{"a vote", execute_any, false};
inline constexpr Collective kLdmatrix{"ldmatrix", execute_ldmatrix<false>, true};
inline constexpr Collective kLdmatrixTransposed{"ldmatrix.trans", execute_ldmatrix<true>, true};
inline constexpr Collective kMmaHalf{"mma (f16)", execute_mma<half_to_float>, true};
inline constexpr Collective kMmaBfloat{"mma (bf16)", execute_mma<bfloat_to_float>, true};

}  // namespace emulator
}  // namespace simt
