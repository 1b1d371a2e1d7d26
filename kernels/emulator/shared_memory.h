// The shared memory of one block, and who touched it when.
//
// Every two bytes have a record of their last write and their last reads: which thread, at which line, in which
// interval between barriers. Two accesses by different threads, one of them a write, are ordered when a
// __syncthreads lies between them, or a __syncwarp where both are of one warp. If neither does, it is a race,
// whatever order the schedule happened to choose. So a missing barrier is found on the first run that touches the
// memory twice, not on the run that is unlucky.
//
// A copy by cp.async belongs to its destination from its issue to its wait: until then nobody may read or write
// there, the issuing thread included; after it, other threads need a barrier as for any write.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fault.h"

namespace simt::emulator {

// One access, packed: thread 10 bits, several lanes of a warp 1, line 14, file 3, warp interval 16, block interval 19,
// in flight 1. Zero: never.
class Stamp {
 public:
  Stamp() = default;
  Stamp(unsigned thread, unsigned block_interval, unsigned warp_interval, unsigned site)
      : bits_(uint64_t(thread & 1023) | uint64_t(site & 0x1ffff) << 11 | uint64_t(warp_interval & 0xffff) << 28 |
              uint64_t(block_interval & 0x7ffff) << 44) {}

  bool never() const { return bits_ == 0; }
  unsigned thread() const { return bits_ & 1023; }
  unsigned warp() const { return thread() / 32; }
  bool several() const { return bits_ >> 10 & 1; }
  unsigned site() const { return bits_ >> 11 & 0x1ffff; }
  unsigned warp_interval() const { return bits_ >> 28 & 0xffff; }
  unsigned block_interval() const { return bits_ >> 44 & 0x7ffff; }
  bool in_flight() const { return bits_ >> 63; }

  Stamp flying() const { return from(bits_ | uint64_t(1) << 63); }
  Stamp with_others() const { return from(bits_ | uint64_t(1) << 10); }

  // Whether this access happened before anything that `now` may do.
  bool before(const Stamp &now) const {
    if (block_interval() != now.block_interval()) return true;
    if (thread() == now.thread() && !several()) return true;
    return warp() == now.warp() && warp_interval() != now.warp_interval();
  }

 private:
  static Stamp from(uint64_t bits) {
    Stamp made;
    made.bits_ = bits;
    return made;
  }
  uint64_t bits_ = 0;
};

class SharedMemory {
 public:
  static constexpr unsigned kGranule = 2;
  static constexpr unsigned kIntervals = 0x7ffff;

  // All NaN in every float type, and written by nobody.
  void reset(size_t bytes) {
    memory_.assign(bytes, 0xff);
    cells_.assign((bytes + kGranule - 1) / kGranule, Cell());
  }

  unsigned char *data() { return memory_.data(); }
  size_t size() const { return memory_.size(); }

  // Whether an access is allowed; it leaves its mark. What is wrong with it, `fault` says.
  bool read(uint32_t address, unsigned bytes, Stamp now) {
    if (!inside(address, bytes)) return false;
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      if (cell->write.never() || cell->write.in_flight() || !cell->write.before(now)) return unreadable(cell);
      note_read(cell, now);
    }
    return true;
  }

  bool write(uint32_t address, unsigned bytes, Stamp now) { return claim("writes", address, bytes, now, now); }

  // cp.async is issued: the destination is its own until it lands.
  bool depart(uint32_t address, unsigned bytes, Stamp now) {
    return claim("copies over", address, bytes, now, now.flying());
  }

  const std::string &fault() const { return fault_; }

  void land(uint32_t address, unsigned bytes, Stamp now) {
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) cell->write = now;
  }

  // A number for a place in the source, small enough for a stamp: places beyond the first eight files share one.
  unsigned site(Where where) {
    unsigned index = 0;
    while (index < files_.size() && files_[index] != where.file) index++;
    if (index == files_.size() && index < 7) files_.push_back(where.file);
    return (index & 7) << 14 | (static_cast<unsigned>(where.line) & 0x3fff);
  }

 private:
  struct Cell {
    Stamp write, read, other_read;  // The last reader, and the last one of another warp.
  };

  Cell *first(uint32_t address) { return cells_.data() + address / kGranule; }
  Cell *last(uint32_t address, unsigned bytes) { return cells_.data() + (address + bytes + kGranule - 1) / kGranule; }
  unsigned address_of(const Cell *cell) const { return static_cast<unsigned>(cell - cells_.data()) * kGranule; }

  static void note_read(Cell *cell, Stamp now) {
    const Stamp seen = cell->read;
    if (!seen.never() && seen.warp() != now.warp()) {
      cell->other_read = seen;
      cell->read = now;
    } else {
      const bool together = !seen.never() && seen.block_interval() == now.block_interval() &&
                            seen.warp_interval() == now.warp_interval() &&
                            (seen.several() || seen.thread() != now.thread());
      cell->read = together ? now.with_others() : now;
    }
  }

  // Whether bytes lie in the block's memory, at an address that is a multiple of their number.
  bool inside(uint32_t address, unsigned bytes) {
    if (address % bytes) return fail(format("address %u of shared memory is not a multiple of %u", address, bytes));
    if (address + uint64_t(bytes) > memory_.size())
      return fail(format("touches bytes %u to %u of shared memory, the block has %zu", address, address + bytes - 1,
                         memory_.size()));
    return true;
  }

  bool claim(const char *verb, uint32_t address, unsigned bytes, Stamp now, Stamp mark) {
    if (!inside(address, bytes)) return false;
    for (Cell *cell = first(address), *end = last(address, bytes); cell != end; cell++) {
      if (cell->write.in_flight()) return in_flight(verb, cell);
      if (!cell->write.never() && !cell->write.before(now)) return race(verb, cell, "wrote", cell->write);
      if (!cell->read.never() && !cell->read.before(now)) return race(verb, cell, "read", cell->read);
      if (!cell->other_read.never() && !cell->other_read.before(now)) return race(verb, cell, "read", cell->other_read);
      cell->write = mark;
    }
    return true;
  }

  bool unreadable(const Cell *cell) {
    if (cell->write.never())
      return fail(format("reads byte %u of shared memory, which nobody has written", address_of(cell)));
    return cell->write.in_flight() ? in_flight("reads", cell) : race("reads", cell, "wrote", cell->write);
  }

  bool race(const char *verb, const Cell *cell, const char *did, Stamp earlier) {
    return fail(format("race: %s byte %u of shared memory, which thread %u %s at %s; no barrier lies between", verb,
                       address_of(cell), earlier.thread(), did, place(earlier).c_str()));
  }

  bool in_flight(const char *verb, const Cell *cell) {
    return fail(format("%s byte %u of shared memory, where the copy that thread %u issued at %s has not been waited for",
                       verb, address_of(cell), cell->write.thread(), place(cell->write).c_str()));
  }

  bool fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  std::string place(Stamp stamp) const {
    const unsigned file = stamp.site() >> 14;
    const int line = static_cast<int>(stamp.site() & 0x3fff);
    return file < files_.size() ? Where{files_[file], line}.text() : format("line %d", line);
  }

  std::vector<unsigned char> memory_;
  std::vector<Cell> cells_;
  std::vector<const char *> files_;
  std::string fault_;
};

}  // namespace simt::emulator
