// The shape of a warp-specialised kernel: its tile, its warp groups, its shared memory, and the order of its work.
//
// Shared memory of a block: its queries, then kStages tiles of keys and as many of values, then the mbarriers. A tile is cut
// into boxes of 64 features, lines of 128 bytes that a tensor copy swizzles.
//   D = 64   192 x 128: 24 + 64 KB, 128 x 128: 16 + 64 KB.     D = 128  192 x 80: 48 + 80 KB, 128 x 128: 32 + 128 KB.
//   D = 192  128 x 96: 48 + 144 KB.                            D = 256  128 x 64: 64 + 128 KB.
#pragma once

#include <algorithm>
#include <cstdint>

#include "problem.cuh"

namespace attention {

template <int kDepth_, int kGroups_, int kKeys_, int kStages_ = 2>
struct GroupShape {
  using Base = GroupShape;
  static constexpr int kDepth = kDepth_, kKeys = kKeys_, kStages = kStages_;
  static constexpr int kGroups = kGroups_;  // Warp groups that compute, of 64 query rows each.
  static constexpr int kRows = 64 * kGroups, kThreads = 128 * (kGroups + 1), kBoxes = kDepth / 64;
  static constexpr int kLine = 128;                   // Bytes of a box's row.
  static constexpr int kQueryBox = 64 * kLine, kKeyBox = kKeys * kLine;
  static constexpr int kQueryBytes = kBoxes * kQueryBox;  // Of one group.
  static constexpr int kTileBytes = kBoxes * kKeyBox;

  static constexpr int kKeysAt = kGroups * kQueryBytes, kValuesAt = kKeysAt + kStages * kTileBytes;
  // mbarriers: queries there and used, one of each for a group; then keys there, keys used, values there, values used.
  static constexpr int kBarriersAt = kValuesAt + kStages * kTileBytes, kBarriers = 2 * kGroups + 4 * kStages;
  static constexpr int kSharedBytes = kBarriersAt + 8 * kBarriers;

  // Registers of a thread that copies, and of one that computes; a multiprocessor has 65536.
  static constexpr int kFewRegisters = kGroups == 2 ? 24 : 32, kManyRegisters = kGroups == 2 ? 240 : 160;

  static_assert(kGroups == 2 || kGroups == 3, "warp groups that compute: 2 or 3, by the registers they need");
  static_assert(kDepth % 64 == 0 && kDepth <= 256, "features: a multiple of a box's 64, up to wgmma's 256");
  static_assert(kKeys % 16 == 0 && kKeys <= 256, "keys: a multiple of 16, the depth of a product, up to a box's 256");
  static_assert(kSharedBytes <= 232448, "shared memory: a block of an H100 may have 227 KB");
};

// A tile of query rows of one head.
struct Work {
  int first_row, head, batch;
};

// Which work comes when. Without a mask head after head. With one, heads are taken by sections, a quarter as many as
// multiprocessors: about four blocks read the same keys at a time. Of a section the tiles with most keys come first, and a
// block takes pieces in turn from the front and from the back of a round. A section has many rounds, so that the blocks'
// sums differ by a few percent; sections of a few rounds left some blocks with a third more.
struct Schedule {
  int row_tiles, units, section;  // Units: heads of all batches.
  int pieces;

  SIMT_DEVICE Work at(const Problem &problem, int piece, int rows) const {
    const int whole = section * row_tiles, first = piece / whole * section, rest = piece % whole;
    const int width = section < units - first ? section : units - first;
    const int unit = first + rest % width;
    return {(row_tiles - 1 - rest / width) * rows, unit % problem.heads, unit / problem.heads};
  }
};

// The pieces of work of one block, one after the other.
class Pieces {
 public:
  SIMT_DEVICE explicit Pieces(const Schedule &schedule) : pieces_(schedule.pieces) { place(); }
  SIMT_DEVICE bool more() const { return piece_ < pieces_; }
  SIMT_DEVICE int piece() const { return piece_; }
  SIMT_DEVICE void next() { begin_ += static_cast<int>(gridDim.x), back_ = !back_, place(); }

 private:
  SIMT_DEVICE void place() {
    piece_ = begin_ + static_cast<int>(back_ ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
  }
  int pieces_, begin_ = 0, piece_;
  bool back_ = false;
};

// Where a ring of stages stands: the stage that is next, and the parity of its phase.
template <int kStages>
struct Ring {
  unsigned stage = 0, parity = 0;
  SIMT_DEVICE void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace attention
