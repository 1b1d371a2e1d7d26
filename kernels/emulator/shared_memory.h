// The shared memory of one block, and who touched it when.
//
// Every four bytes have a record of their last write and their last reads; from the first access of two bytes on, every
// two bytes have one. Two accesses by different threads, one of
// them a write, are ordered when a __syncthreads lies between them, or a __syncwarp where both are of one warp. If
// neither does, it is a race, whatever order the schedule happened to choose. So a missing barrier is found on the
// first run that touches the memory twice, not on the run that is unlucky.
//
// Of the reads two are kept, the last one and the last one by another warp. That is enough: a barrier orders all
// reads before it, and a write after two warps have read conflicts with at least one of them.
//
// Other barriers order those who meet at them: the clock of the warp that asks says so. What tensor copies and wgmma do is
// noted by pieces of 16 bytes (async.h).
//
// A copy by cp.async belongs to its destination from its issue to its wait: until then nobody may read or write
// there, the issuing thread included; after it, other threads need a barrier as for any write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "async.h"
#include "clock.h"
#include "stamp.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

class SharedMemory {
 public:
  explicit SharedMemory(const Sites &sites) : sites_(sites) {}

  // All NaN in every float type, and written by nobody.
  void reset(size_t bytes) {
    memory_.assign(bytes, 0xff);
    cell_shift_ = 2;
    cells_.assign((bytes + 3) / 4, Cell());
    pieces.reset(bytes);
  }
  size_t size() const { return memory_.size(); }

  unsigned char *at(uint32_t address) { return memory_.data() + address; }

  // Whether an access is allowed; it leaves its mark. What is wrong with it, `fault` says.
  // Most reads are of one cell that was written before the last barrier: they take the short way, inlined.
  __attribute__((always_inline)) bool read(uint32_t address, unsigned bytes, Stamp now) {
    if (bytes == 1u << cell_shift_ && address % bytes == 0 && !pieces.used() &&
        address + uint64_t(bytes) <= memory_.size()) {
      Cell *cell = first(address);
      if (cell->write.landed() && cell->write.in_earlier_interval(now)) {
        note_read(cell, now);
        return true;
      }
    }
    return read_cells(address, bytes, now);
  }
  __attribute__((noinline)) bool read_cells(uint32_t address, unsigned bytes, Stamp now) {
    if (!inside(address, bytes)) return false;
    if (pieces.used() && !pieces.read(address, bytes, clock, sites_)) return fail(pieces.fault());
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      if (!cell->write.landed() || !before(cell->write, now)) return unreadable(cell, now);
      note_read(cell, now);
    }
    return true;
  }

  // Of `value`, which the caller then stores. Lanes of a warp may write one value by one instruction: it does not
  // matter then which of them is the last. The programming guide allows it.
  bool write(uint32_t address, const void *value, unsigned bytes, Stamp now) {
    if (!inside(address, bytes)) return false;
    if (pieces.used() && !pieces.write(address, bytes, clock, sites_)) return fail(pieces.fault());
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      const bool same = now.same_instruction(cell->write) && std::memcmp(at(address), value, bytes) == 0;
      if (!writable("writes", cell, now, same)) return false;
      cell->write = now.with(cell->write);
    }
    return true;
  }

  // Whether everything that threads did here themselves, one way or another, is over for the one that asks; `verb` says
  // what it does. `writes` only: whether what they wrote is.
  bool settled(const char *verb, uint32_t address, unsigned bytes, Stamp now, bool writes) {
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      if (cell->write.in_flight()) return in_flight(verb, cell);
      if (!writes && !writable(verb, cell, now, false)) return false;
      if (writes && !cell->write.never() && !before(cell->write, now)) return race(verb, cell, now, "wrote", cell->write);
    }
    return true;
  }
  // Written by a tensor copy: for threads as if it had been there from the start; `pieces` knows more.
  void brought(uint32_t address, unsigned bytes, Stamp start) {
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) *cell = {start, Stamp(), Stamp()};
  }
  Stamp writer(uint32_t address) const { return cells_[address >> cell_shift_].write; }

  // cp.async is issued: the destination is its own until it lands.
  bool depart(uint32_t address, unsigned bytes, Stamp now) {
    if (!inside(address, bytes)) return false;
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      if (!writable("copies over", cell, now, false)) return false;
      cell->write = now.flying();
    }
    return true;
  }
  void land(uint32_t address, unsigned bytes, Stamp now) {
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) cell->write = now;
  }

  const std::string &fault() const { return fault_; }

  const Clock *clock = nullptr;  // Of the warp that asks.
  Pieces pieces;

 private:
  bool before(Stamp access, Stamp now) const { return access.before(now) || (clock && clock->covers(access)); }

  struct Cell {
    Stamp write, read, other_read;  // The last reader, and the last one of another warp.
  };

  Cell *first(uint32_t address) { return cells_.data() + (address >> cell_shift_); }
  Cell *last(uint32_t address, unsigned bytes) { return first(address + bytes - 1) + 1; }
  unsigned address_of(const Cell *cell) const { return static_cast<unsigned>(cell - cells_.data()) << cell_shift_; }

  // Each half of a word gets a record of its own, a copy of the word's.
  __attribute__((noinline)) void split_cells() {
    std::vector<Cell> halves(2 * cells_.size());
    for (size_t i = 0; i < halves.size(); i++) halves[i] = cells_[i / 2];
    cells_.swap(halves);
    cell_shift_ = 1;
  }

  static void note_read(Cell *cell, Stamp now) {
    const Stamp seen = cell->read;
    if (!seen.never() && seen.warp() != now.warp()) cell->other_read = seen;
    cell->read = now.with(seen);
  }

  // Whether bytes lie in the block's memory, at an address that is a multiple of their number.
  bool inside(uint32_t address, unsigned bytes) {
    if (address % bytes) return fail(format("address %u of shared memory is not a multiple of %u", address, bytes));
    if (address + uint64_t(bytes) > memory_.size())
      return fail(format("touches bytes %u to %u of shared memory, the block has %zu", address, address + bytes - 1,
                         memory_.size()));
    if (bytes < 1u << cell_shift_) split_cells();
    return true;
  }

  bool writable(const char *verb, const Cell *cell, Stamp now, bool same) {
    if (cell->write.in_flight()) return in_flight(verb, cell);
    const Stamp write = cell->write;
    if (!write.never() && !before(write, now) && !same) return race(verb, cell, now, "wrote", write);
    for (const Stamp read : {cell->read, cell->other_read})
      if (!read.never() && !before(read, now)) return race(verb, cell, now, "read", read);
    return true;
  }

  bool unreadable(const Cell *cell, Stamp now) {
    if (cell->write.never())
      return fail(format("reads byte %u of shared memory, which nobody has written", address_of(cell)));
    return cell->write.in_flight() ? in_flight("reads", cell) : race("reads", cell, now, "wrote", cell->write);
  }

  bool race(const char *verb, const Cell *cell, Stamp now, const char *did, Stamp earlier) {
    return fail(format("race: %s byte %u of shared memory, which thread %u %s at %s; no barrier lies between", verb,
                       address_of(cell), earlier.thread_beside(now.thread()), did,
                       sites_.text(earlier.site()).c_str()));
  }

  bool in_flight(const char *verb, const Cell *cell) {
    constexpr const char *kSays = "%s byte %u of shared memory, where the copy that thread %u issued at %s has not been "
                                  "waited for";
    return fail(format(kSays, verb, address_of(cell), cell->write.thread(), sites_.text(cell->write.site()).c_str()));
  }

  bool fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  const Sites &sites_;
  std::vector<unsigned char> memory_;
  std::vector<Cell> cells_;
  unsigned cell_shift_ = 2;  // log2 of the bytes of a cell.
  std::string fault_;
};

}  // namespace emulator
}  // namespace simt
