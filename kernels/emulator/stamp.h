// When a thread touched memory, at which place in the source, and what that comes before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fault.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

// Places in the source, numbered: small enough for a stamp. Places beyond the first seven files share an eighth.
class Sites {
 public:
  unsigned number(Where where) {
    const unsigned line = static_cast<unsigned>(where.line) & 0x3fff;
    if (where.file == last_file_) return last_index_ << 14 | line;
    unsigned index = 0;
    while (index < files_.size() && files_[index] != where.file) index++;
    if (index == files_.size() && index < 7) files_.push_back(where.file);
    last_file_ = where.file, last_index_ = index & 7;
    return last_index_ << 14 | line;
  }
  std::string text(unsigned site) const {
    const unsigned file = site >> 14;
    const int line = static_cast<int>(site & 0x3fff);
    return file < files_.size() ? Where{files_[file], line}.text() : format("line %d", line);
  }

 private:
  std::vector<const char *> files_;
  const char *last_file_ = nullptr;  // Most accesses come from the file of the one before.
  unsigned last_index_ = 0;
};

// One access, packed: thread 10 bits, partner 5, place 17, warp interval 14, block interval 17, in flight 1.
// Intervals are counted in one block, from 1 on: those between its barriers, and within one of them those between the
// __syncwarp of a warp. Zero: never.
class Stamp {
 public:
  static constexpr unsigned kBlockIntervals = 1 << 17, kWarpIntervals = 1 << 14;

  Stamp() = default;
  explicit Stamp(uint64_t bits) : bits_(bits) {}
  Stamp(unsigned thread, unsigned block_interval, unsigned warp_interval, unsigned site)
      : bits_(thread | uint64_t(site) << 15 | uint64_t(warp_interval) << 32 | uint64_t(block_interval) << 46) {}

  uint64_t bits() const { return bits_; }
  bool never() const { return bits_ == 0; }
  unsigned thread() const { return bits_ & 1023; }
  unsigned warp() const { return thread() / 32; }
  unsigned site() const { return bits_ >> 15 & 0x1ffff; }
  bool in_flight() const { return bits_ >> 63; }
  bool landed() const { return static_cast<int64_t>(bits_) > 0; }  // Neither never nor in flight.

  Stamp flying() const { return Stamp(bits_ | uint64_t(1) << 63); }

  // The same access; when another lane made one like it in the same interval of the warp, that is remembered.
  Stamp with(Stamp other) const {
    if (!together(other)) return *this;
    const unsigned partner = other.thread() == thread() ? other.partner() : (other.thread() ^ thread()) & 31;
    return Stamp(bits_ | uint64_t(partner) << 10);
  }

  // A thread that did it, and is not the one that asks.
  unsigned thread_beside(unsigned asking) const { return thread() == asking ? thread() ^ partner() : thread(); }

  bool same_instruction(Stamp other) const { return together(other) && site() == other.site(); }

  bool in_earlier_interval(Stamp now) const { return block_interval() != now.block_interval(); }

  // Whether this access happened before anything that `now` may do.
  bool before(Stamp now) const {
    if (in_earlier_interval(now)) return true;
    if (thread() == now.thread() && !partner()) return true;
    return warp() == now.warp() && warp_interval() != now.warp_interval();
  }

  unsigned warp_interval() const { return bits_ >> 32 & 0x3fff; }

 private:
  unsigned partner() const { return bits_ >> 10 & 31; }  // XOR of two lanes that did the same; 0: one alone.
  unsigned block_interval() const { return bits_ >> 46 & 0x1ffff; }

  // Whether both are of one warp, and nothing orders its lanes between them.
  bool together(Stamp other) const {
    return warp() == other.warp() && warp_interval() == other.warp_interval() &&
           block_interval() == other.block_interval();
  }

  uint64_t bits_ = 0;
};

}  // namespace emulator
}  // namespace simt
