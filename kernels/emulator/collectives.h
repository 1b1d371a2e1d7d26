// What a warp does together, in software: the fragments are laid out as the PTX manual draws them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "block.h"
#include "half.h"

namespace simt::emulator {

inline void execute_sync_warp(Block &block, Lane *const *lanes) { block.order_warp(*lanes[0]); }

inline void execute_shuffle(Block &, Lane *const *lanes) {
  uint32_t values[kLanes];
  for (int i = 0; i < kLanes; i++) values[i] = lanes[i]->value;
  for (int i = 0; i < kLanes; i++) lanes[i]->value = values[lanes[i]->argument & (kLanes - 1)];
}

inline void execute_any(Block &, Lane *const *lanes) {
  uint32_t any = 0;
  for (int i = 0; i < kLanes; i++) any |= lanes[i]->value != 0;
  for (int i = 0; i < kLanes; i++) lanes[i]->value = any;
}

// ldmatrix .x4: lane 8q + r gives the address of row r of matrix q, 16 bytes; eight rows whose addresses share a
// bank cost a wavefront more. `kTransposed`: .trans.
template <bool kTransposed>
void execute_ldmatrix(Block &block, Lane *const *lanes) {
  uint16_t rows[32][8];
  for (int i = 0; i < kLanes; i++) {
    Lane &lane = *lanes[i];
    if (!block.shared.read(lane.address, 16, block.stamp(lane, lane.where))) return block.fault_in(lane, block.shared.fault());
    std::memcpy(rows[i], block.shared.data() + lane.address, 16);
  }
  for (int q = 0; q < 4; q++) {
    int used[8] = {}, most = 0;
    for (int r = 0; r < 8; r++) most = std::max(most, ++used[lanes[8 * q + r]->address / 16 % 8]);
    block.conflicts += static_cast<uint64_t>(most - 1);
  }
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
  float a[16][16], b[16][8], d[16][8];
  for (int i = 0; i < kLanes; i++) {
    const Lane &lane = *lanes[i];
    const int row = i / 4, column = i % 4 * 2;
    for (int h = 0; h < 2; h++) {
      const auto pick = [h](uint32_t pair) { return to_float(static_cast<uint16_t>(pair >> (16 * h))); };
      a[row][column + h] = pick(lane.a[0]);
      a[row + 8][column + h] = pick(lane.a[1]);
      a[row][column + 8 + h] = pick(lane.a[2]);
      a[row + 8][column + 8 + h] = pick(lane.a[3]);
      b[column + h][row] = pick(lane.b[0]);
      b[column + 8 + h][row] = pick(lane.b[1]);
      d[row][column + h] = lane.accumulators[h];
      d[row + 8][column + h] = lane.accumulators[2 + h];
    }
  }
  for (int row = 0; row < 16; row++)
    for (int k = 0; k < 16; k++)
      for (int n = 0; n < 8; n++) d[row][n] += a[row][k] * b[k][n];
  for (int i = 0; i < kLanes; i++)
    for (int h = 0; h < 2; h++) {
      lanes[i]->accumulators[h] = d[i / 4][i % 4 * 2 + h];
      lanes[i]->accumulators[2 + h] = d[i / 4 + 8][i % 4 * 2 + h];
    }
}

inline constexpr Collective kSyncWarp{"__syncwarp", execute_sync_warp};
inline constexpr Collective kShuffle{"a shuffle", execute_shuffle};
inline constexpr Collective kAny{"a vote", execute_any};
inline constexpr Collective kLdmatrix{"ldmatrix", execute_ldmatrix<false>};
inline constexpr Collective kLdmatrixTransposed{"ldmatrix.trans", execute_ldmatrix<true>};
inline constexpr Collective kMmaHalf{"mma (f16)", execute_mma<half_to_float>};
inline constexpr Collective kMmaBfloat{"mma (bf16)", execute_mma<bfloat_to_float>};

}  // namespace simt::emulator
