// What tensor copies and products do to shared memory, noted for every 16 bytes of it.
//
// A copy brings bytes to a piece from its issue on; they are there for those who know that the phase of its mbarrier has
// ended in which they were counted. A product reads a piece until a wait for its group; a copy over it has to know of that
// wait, by a barrier or an mbarrier that the reader arrived at. What a thread wrote itself, products and copies see only
// after its fence.proxy.async. Where what a copy brought came from is kept, so that a descriptor that reads it in another
// order is found.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "clock.h"

namespace simt {

// A tensor of the host, as one copy takes boxes of it.
struct TensorMap {
  const char *data = nullptr;
  int64_t sizes[4] = {}, strides[3] = {};  // Strides in bytes.
  int box_rows = 0;
};

namespace emulator SIMT_PRIVATE {

struct Piece {
  enum Last : uint8_t { kNobody, kThread, kCopy };
  static constexpr unsigned kGroups = 8;

  Last last = kNobody;
  bool flying = false;   // A copy is on its way.
  bool touched = false;  // By threads themselves, at any time.
  bool barrier = false;  // An mbarrier lies here.
  uint16_t mbarrier = 0;
  uint32_t phase = 0;               // In which the copy's bytes were counted.
  uint32_t thread = 0, site = 0;    // Who wrote, or issued the copy.
  uint32_t number = 0;              // Of that thread's writes.
  uint32_t origin = 0;              // Which matrix it came from; 0: none.
  int32_t line = 0, column = 0;     // Its first element there.
  uint32_t reads[kGroups] = {};     // Of each warp group: the last group of products that reads it.
  uint32_t read_site = 0;
};

class Pieces {
 public:
  static constexpr unsigned kBytes = 16;

  void reset(size_t bytes) { used_ = false, count_ = (bytes + kBytes - 1) / kBytes; }
  // Nothing is noted before anybody uses mbarriers, copies or products.
  void begin() {
    if (used_) return;
    used_ = true;
    pieces_.assign(count_, Piece());
  }
  bool used() const { return used_; }
  Piece &at(uint32_t address) { return pieces_[address / kBytes]; }

  // A thread reads, or writes, bytes of one piece.
  bool read(uint32_t address, unsigned, const Clock *clock, const Sites &sites) {
    Piece &piece = at(address);
    piece.touched = true;
    return there("reads", address, *clock, sites);
  }
  bool write(uint32_t address, unsigned, const Clock *clock, const Sites &sites) {
    Piece &piece = at(address);
    if (piece.barrier) return fail(format("writes byte %u of shared memory, where an mbarrier lies", address));
    piece.touched = true;
    return there("writes", address, *clock, sites) && unread("writes", address, *clock, sites);
  }

  // Whether what a copy brings to a piece is known to be there.
  bool there(const char *verb, uint32_t address, const Clock &clock, const Sites &sites) {
    const Piece &piece = at(address);
    if (piece.last != Piece::kCopy) return true;
    constexpr const char *kFlying = "%s byte %u of shared memory, where the copy that thread %u issued at %s is still on "
                                    "its way: wait for its mbarrier";
    constexpr const char *kUnseen = "%s byte %u of shared memory, which the copy that thread %u issued at %s brings; the "
                                    "phase of its mbarrier that says so has not been waited for";
    if (!piece.flying && clock.phases[piece.mbarrier] > piece.phase) return true;
    return fail(format(piece.flying ? kFlying : kUnseen, verb, address, piece.thread, sites.text(piece.site).c_str()));
  }
  // Whether all products that read a piece are known to have ended.
  bool unread(const char *verb, uint32_t address, const Clock &clock, const Sites &sites) {
    const Piece &piece = at(address);
    for (unsigned group = 0; group < Piece::kGroups; group++)
      for (unsigned warp = 4 * group; piece.reads[group] && warp < 4 * group + 4; warp++)
        if (clock.products[warp] < piece.reads[group])
          return fail(format("%s byte %u of shared memory, which products of warp %u read that were begun at %s; nothing "
                             "that was waited for says that they have ended",
                             verb, address, warp, sites.text(piece.read_site).c_str()));
    return true;
  }

  const std::string &fault() const { return fault_; }

 private:
  bool fail(std::string fault) {
    fault_ = std::move(fault);
    return false;
  }

  bool used_ = false;
  size_t count_ = 0;
  std::vector<Piece> pieces_;
  std::string fault_;
};

// An mbarrier of a block.
struct Mbarrier {
  uint32_t address, index;
  unsigned arrivals;  // That a phase takes.
  Stamp made;
  unsigned maker;         // The thread, and
  uint32_t number;        // which of its writes this was.
  unsigned missing = 0;   // Arrivals in this phase.
  int64_t bytes = 0;      // Expected and not yet there.
  uint32_t ended = 0;     // Phases.
  Clock pending = {}, known = {};  // What those who arrived knew: in this phase, in all that have ended.

  bool has_ended(unsigned parity) const { return (ended & 1) != parity; }
};

// One of a block's sixteen barriers.
struct NamedBarrier {
  unsigned threads = 0, here = 0;
  uint32_t rounds = 0;
  unsigned site = 0;
  Clock pending, known;
};

// A tensor copy on its way.
struct TensorCopy {
  TensorMap map;
  uint32_t destination, mbarrier;
  int feature, row, head, batch;
  unsigned thread, site;

  static constexpr int kLine = 128, kElements = 64;
  uint32_t bytes() const { return static_cast<uint32_t>(map.box_rows * kLine); }
};

// Sums of one warp that products in flight will write.
struct Sums {
  float *registers[32];
  unsigned count;  // Registers of a lane.
  std::vector<float> values;  // 16 rows of 2 `count` columns.
  uint32_t group;             // The last that writes them.
  unsigned site;
  uint32_t held = 0;          // Lanes that took theirs since that group ended, a bit each.

  // What a register of a lane stands for.
  float &of(unsigned lane, unsigned index) {
    const unsigned row = lane / 4 + index / 2 % 2 * 8, column = index / 4 * 8 + lane % 4 * 2 + index % 2;
    return values[row * 2 * count + column];
  }
};

// Registers of one warp that products in flight read: a left operand.
struct Operand {
  const uint32_t *registers[32];
  uint32_t values[32][4];
  uint32_t group;
  unsigned site;
};

// What a warp has begun of wgmma.
struct WarpProducts {
  uint32_t committed = 0, ended = 0;  // Groups.
  bool fenced = false;                // Since the last wait.
  std::vector<Sums> flying;
  std::vector<Operand> operands;
  unsigned registers = 0;  // Of each thread (setmaxnreg).
};

// In the place of a sum that is not there yet: a NaN of its own.
constexpr uint32_t kUnfinished = 0x7fd05e1f;

}  // namespace emulator
}  // namespace simt
