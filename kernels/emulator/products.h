// wgmma in software: what a warp group multiplies, from shared memory as descriptors say, and when its sums are there.
#pragma once

#include <algorithm>
#include <cstdint>

#include "collectives.h"
#include "engines.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

constexpr int kGroupLanes = 128, kSteps = 16;  // Elements that one product adds up.

// Whether the four warps of a group are all there; then they go on together.
inline bool Block::execute_group(int warp) {
  const Lane &one = at(warp, 0);
  const int first = warp / 4 * 4;
  Lane *lanes[kGroupLanes];
  if (first + 4 > warps_) {
    fault_in(one, format("executes %s in a warp group of %d warps", one.collective->name, warps_ - first));
    return false;
  }
  for (int i = 0; i < kGroupLanes; i++) {
    Lane &lane = at(first + i / kLanes, i % kLanes);
    const bool here = lane.state == Lane::kInWarp && lane.collective == one.collective && lane.where == one.where;
    if (!here && (lane.thread / kLanes == one.thread / kLanes || lane.state == Lane::kDone)) return diverged(one, lane);
    if (!here && lane.state == Lane::kInWarp && lane.collective->group) return diverged(one, lane);
    if (!here) return true;  // Not yet.
    lanes[i] = &lane;
  }
  for (Lane *lane : lanes) lane->state = Lane::kReady;
  one.collective->execute(*this, lanes);
  return fault_.empty();
}

inline void Block::fence_products(Lane *const *lanes) { products_[lanes[0]->thread / kLanes].fenced = true; }
inline void Block::commit_products(Lane *const *lanes) { products_[lanes[0]->thread / kLanes].committed++; }

// Sums of groups that have ended are there; a lane has them once it holds them. Without that a compiler may use registers
// as they were before the wait.
inline void Block::wait_products(Lane *const *lanes) {
  const unsigned warp = lanes[0]->thread / kLanes;
  WarpProducts &own = products_[warp];
  const uint32_t may_fly = lanes[0]->value;
  own.ended = std::max(own.ended, own.committed > may_fly ? own.committed - may_fly : 0);
  own.fenced = false;
  clocks_[warp].products[warp] = own.ended;
  for (size_t i = own.flying.size(); i-- > 0;) {
    Sums &sums = own.flying[i];
    if (sums.group > own.ended) continue;
    for (int lane = 0; lane < kLanes; lane++)
      for (unsigned n = 0; n < sums.count; n++) {
        if (!(sums.held >> lane & 1) && as_bits(sums.registers[lane][n]) != kUnfinished)
          return fault_in(*lanes[lane], format("register %u of the sums that products begun at %s write was changed before "
                                               "they had ended", n, sites_.text(sums.site).c_str()));
      }
  }
  for (size_t i = own.operands.size(); i-- > 0;) {
    const Operand &operand = own.operands[i];
    if (operand.group > own.ended) continue;
    for (int lane = 0; lane < kLanes; lane++)
      if (std::memcmp(operand.registers[lane], operand.values[lane], sizeof operand.values[lane]))
        return fault_in(*lanes[lane], format("registers that the product begun at %s reads were changed before it had ended",
                                             sites_.text(operand.site).c_str()));
    own.operands.erase(own.operands.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// A thread uses registers that products wrote, and may still write.
inline void Block::use_sums(Lane &lane, const float *registers, Where where) {
  WarpProducts &own = products_[lane.thread / kLanes];
  const unsigned index = lane.thread % kLanes;
  for (size_t i = 0; i < own.flying.size(); i++) {
    Sums &sums = own.flying[i];
    if (sums.registers[index] != registers) continue;
    if (sums.group > own.ended)
      fail(lane, where, format("uses sums of the product that was begun at %s: wgmma_wait for its group is missing",
                               sites_.text(sums.site).c_str()));
    for (unsigned n = 0; n < sums.count && !(sums.held >> index & 1); n++) sums.registers[index][n] = sums.of(index, n);
    sums.held |= 1u << index;
    if (sums.held == 0xffffffffu) own.flying.erase(own.flying.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
}

// Whether the four warps from `first_warp` on may read a piece as an operand.
inline bool Block::see_piece(const Lane &lane, const char *name, uint32_t address, unsigned first_warp) {
  Piece &piece = shared.pieces.at(address);
  for (unsigned warp = first_warp; warp < first_warp + 4; warp++) {
    if (!shared.pieces.there(name, address, clocks_[warp], sites_)) {
      fault_in(lane, shared.pieces.fault());
      return false;
    }
    if (piece.last == Piece::kCopy) continue;
    const Stamp writer = shared.writer(address);
    if (writer.never()) {
      fault_in(lane, format("%s byte %u of shared memory, which nobody has written", name, address));
      return false;
    }
    shared.clock = &clocks_[warp];
    const Stamp now(warp * kLanes, block_interval_, warp_intervals_[warp], sites_.number(lane.where));
    if (!shared.settled(name, address, Pieces::kBytes, now, true)) {
      fault_in(lane, shared.fault());
      return false;
    }
    const Lane &who = *lanes_[writer.thread()];
    if (piece.last == Piece::kThread ? who.fenced < piece.number : who.fenced == 0) {
      fault_in(lane, format("%s byte %u of shared memory, which thread %u wrote at %s: no fence.proxy.async of that thread "
                            "lies between", name, address, writer.thread(), sites_.text(writer.site()).c_str()));
      return false;
    }
  }
  return true;
}

// An operand as [rows][16] (rows of a, columns of b), or turned around as [16][rows] where lines run along `rows`.
inline bool Block::fetch_operand(const Lane &lane, const char *name, uint64_t layout, int rows, bool turned,
                                 float (*to_float)(uint16_t), float *values) {
  const uint32_t start = static_cast<uint32_t>(layout & 0x3fff) << 4;
  const uint32_t leading = static_cast<uint32_t>(layout >> 16 & 0x3fff) << 4;
  const uint32_t stride = static_cast<uint32_t>(layout >> 32 & 0x3fff) << 4;
  if (layout >> 62 != 1 || layout >> 49 & 7) {
    fault_in(lane, format("%s by a descriptor that is not of lines of 128 bytes, swizzled, at a multiple of 1024", name));
    return false;
  }
  const unsigned first_warp = lane.thread / kGroupLanes * 4;
  const int lines = turned ? kSteps : rows, across = (turned ? rows : kSteps) / 8;  // Pieces of a line.
  const Piece *origin = nullptr;
  for (int line = 0; line < lines; line++)
    for (int piece = 0; piece < across; piece++) {
      const uint32_t offset = turned ? piece / 8 * leading + piece % 8 * 16 : piece * 16;
      uint32_t address = start + line / 8 * stride + line % 8 * 128 + offset;
      address ^= address >> 3 & 0x70;
      if (address + 16 > shared.size()) {
        fault_in(lane, format("%s by a descriptor that reaches byte %u of shared memory, the block has %zu", name,
                              address + 15, shared.size()));
        return false;
      }
      if (!see_piece(lane, name, address, first_warp)) return false;
      Piece &found = shared.pieces.at(address);
      if (!origin) origin = &found;
      const int line_meant = origin->line + line, column_meant = origin->column + 8 * piece;
      const bool other = origin->origin && found.origin && found.origin != origin->origin;
      if (other || (origin->origin && found.origin && (found.line != line_meant || found.column != column_meant))) {
        fault_in(lane, format("%s line %d, element %d of what its descriptor describes: that is row %d, feature %d of "
                              "%s tensor copy, where row %d, feature %d follows: address, leading %u or stride %u is wrong",
                              name, line, 8 * piece, found.line, found.column, other ? "another" : "the", line_meant,
                              column_meant, leading, stride));
        return false;
      }
      found.reads[first_warp / 4] = products_[lane.thread / kLanes].committed + 1;
      found.read_site = sites_.number(lane.where);
      uint16_t elements[8];
      std::memcpy(elements, shared.at(address), 16);
      for (int i = 0; i < 8; i++) {
        const int element = 8 * piece + i;
        values[turned ? line * rows + element : element * rows + line] = to_float(elements[i]);
      }
    }
  return true;
}

// d = a b, or d += a b: values of b are [16][N].
inline void Block::multiply(Lane *const *lanes, bool half, bool from_registers) {
  const Lane &one = *lanes[0];
  float (*const to_float)(uint16_t) = half ? half_to_float : bfloat_to_float;
  const int columns = static_cast<int>(one.columns);
  shared.pieces.begin();
  for (int i = 1; i < kGroupLanes; i++)
    if (lanes[i]->operands[0] != one.operands[0] || lanes[i]->operands[1] != one.operands[1] || lanes[i]->add != one.add)
      return fault_in(*lanes[i], format("gives wgmma other descriptors than thread %u of its warp group", one.thread));
  typedef float Row __attribute__((vector_size(32), aligned(4)));
  operands_.resize(kSteps * (64 + 256));
  float *const a = operands_.data(), *const b = a + kSteps * 64;
  if (!fetch_operand(one, "operand b reads", one.operands[1], columns, from_registers, to_float, b)) return;
  if (!from_registers && !fetch_operand(one, "operand a reads", one.operands[0], 64, false, to_float, a)) return;
  for (int i = 0; from_registers && i < kGroupLanes; i++)
    for (int part = 0; part < 4; part++) {
      const int row = i / kLanes * 16 + i % kLanes / 4 + part % 2 * 8, column = i % 4 * 2 + part / 2 * 8;
      a[column * 64 + row] = to_float(static_cast<uint16_t>(lanes[i]->a[part]));
      a[(column + 1) * 64 + row] = to_float(static_cast<uint16_t>(lanes[i]->a[part] >> 16));
    }
  for (int w = 0; w < 4; w++) {
    Lane *const *own = lanes + w * kLanes;
    WarpProducts &products = products_[own[0]->thread / kLanes];
    const auto count = static_cast<unsigned>(columns / 2);
    Sums *sums = nullptr;
    for (Sums &each : products.flying)
      if (each.registers[0] == own[0]->accumulators) sums = &each;
    if (!sums) {
      if (!products.fenced)
        return fault_in(*own[0], "begins a product without wgmma.fence: registers written since the last wait may be missed");
      products.flying.push_back({{}, count, std::vector<float>(size_t(kLanes) * count), 0, 0});
      sums = &products.flying.back();
      for (int i = 0; i < kLanes; i++) {
        sums->registers[i] = own[i]->accumulators;
        for (unsigned n = 0; n < count; n++) {
          sums->of(static_cast<unsigned>(i), n) = own[i]->accumulators[n];
          own[i]->accumulators[n] = as_float(kUnfinished);
        }
      }
    }
    if (sums->group && sums->group <= products.ended)
      return fault_in(*own[0], format("adds to sums of the product that was begun at %s; nobody held them after the wait for "
                                      "its group (hold in loop_hopper.cuh)", sites_.text(sums->site).c_str()));
    if (sums->count != count) return fault_in(*own[0], "adds to sums of a product of another shape that is in flight");
    sums->group = products.committed + 1, sums->site = sites_.number(own[0]->where);
    if (from_registers) {
      Operand operand;
      operand.group = sums->group, operand.site = sums->site;
      for (int i = 0; i < kLanes; i++) {
        operand.registers[i] = own[i]->a;
        std::memcpy(operand.values[i], own[i]->a, sizeof operand.values[i]);
      }
      products.operands.push_back(operand);
    }
    if (!one.add) std::fill(sums->values.begin(), sums->values.end(), 0.0f);
    for (int row = 0; row < 16; row++)
      for (int k = 0; k < kSteps; k++) {
        const float factor = a[k * 64 + 16 * w + row];
        Row *const d = reinterpret_cast<Row *>(&sums->values[static_cast<size_t>(row * columns)]);
        const Row *const values = reinterpret_cast<const Row *>(b + k * columns);
        for (int i = 0; i < columns / 8; i++) d[i] += factor * values[i];
      }
  }
}

inline void Block::ask_registers(Lane *const *lanes, bool more) {
  WarpProducts &own = products_[lanes[0]->thread / kLanes];
  const unsigned wanted = lanes[0]->value;
  if (more ? wanted < own.registers : wanted > own.registers)
    return fault_in(*lanes[0], format("asks for %s registers a thread, %u, and has %u", more ? "more" : "fewer", wanted,
                                      own.registers));
  const unsigned difference = (more ? wanted - own.registers : own.registers - wanted) * kLanes;
  if (more && difference > free_registers_) {
    for (int i = 0; i < kLanes; i++) lanes[i]->state = Lane::kForRegisters;
    return;
  }
  free_registers_ = more ? free_registers_ - difference : free_registers_ + difference;
  own.registers = wanted;
  if (!more) wake(Lane::kForRegisters, 0);
}

inline void execute_fence(Block &block, Lane *const *lanes) { block.fence_products(lanes); }
inline void execute_commit(Block &block, Lane *const *lanes) { block.commit_products(lanes); }
inline void execute_wait(Block &block, Lane *const *lanes) { block.wait_products(lanes); }
template <bool kHalf, bool kRegisters>
void execute_wgmma(Block &block, Lane *const *lanes) {
  block.multiply(lanes, kHalf, kRegisters);
}
template <bool kMore>
void execute_setmaxnreg(Block &block, Lane *const *lanes) {
  block.ask_registers(lanes, kMore);
}

inline constexpr Collective kWgmmaFence{"wgmma.fence", execute_fence, true};
inline constexpr Collective kWgmmaCommit{"wgmma.commit_group", execute_commit, true};
inline constexpr Collective kWgmmaWait{"wgmma.wait_group", execute_wait, true};
inline constexpr Collective kWgmmaHalf{"wgmma (f16)", execute_wgmma<true, false>, true, true};
inline constexpr Collective kWgmmaBfloat{"wgmma (bf16)", execute_wgmma<false, false>, true, true};
inline constexpr Collective kWgmmaHalfRegisters{"wgmma (f16, a in registers)", execute_wgmma<true, true>, true, true};
inline constexpr Collective kWgmmaBfloatRegisters{"wgmma (bf16, a in registers)", execute_wgmma<false, true>, true, true};
inline constexpr Collective kRegistersUp{"setmaxnreg.inc", execute_setmaxnreg<true>, true};
inline constexpr Collective kRegistersDown{"setmaxnreg.dec", execute_setmaxnreg<false>, true};

}  // namespace emulator
}  // namespace simt
