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
#include "tiles.cuh"

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

// Query rows of one head: 64 for each of the first `groups` warp groups, none for the others; and tiles of its keys.
struct Work {
  int first_row, step;  // The first group's first row, and how far it is to the next group's.
  int groups, head, batch;
  int begin = 0, end = 0;  // Tiles of keys.
  int slot = -1;           // Of the workspace, where the rows see other tiles too.

  SIMT_DEVICE int row(int group) const { return first_row + group * step; }
  // The last of all rows that any group has.
  SIMT_DEVICE int last_row() const { return (step > 0 ? row(groups - 1) : first_row) + 63; }
};

class Pieces;
class EvenPieces;

// Which work comes when. Without a mask head after head; the last round's tiles may be cut into parts of fewer groups. With
// a mask, heads are taken by sections whose blocks read the same keys at about the same time; of a section the tiles with
// most keys come first. Folded, a piece is a late tile of 64 rows and an early one, counted from both ends of a head.
struct Schedule {
  int row_tiles, units, section;  // Units: heads of all batches.
  int pieces, span;               // Of all sections, and of those that are shared out together.
  int groups;                     // With rows in a piece, but for
  int whole, parts, few;          // pieces from `whole` on: a tile is so many of them, of `few` groups each.
  bool folded;
  using Pieces = attention::Pieces;

  SIMT_DEVICE Work at(const Problem &problem, int piece) const {
    const int beyond = piece < whole ? 0 : piece - whole, part = beyond % parts;
    const int tile = piece - beyond + beyond / parts, section_tiles = section * row_tiles;
    const int first = tile / section_tiles * section, rest = tile % section_tiles;
    const int width = section < units - first ? section : units - first, early = rest / width;
    const int unit = first + rest % width, head = unit % problem.heads, batch = unit / problem.heads;
    if (folded) {
      const int late = (problem.queries - 1) / 64 - early;
      return {64 * late, 64 * (early - late), early < late ? 2 : 1, head, batch};
    }
    const int most = piece < whole ? groups : few, left = groups - part * few;
    return {64 * (groups * (row_tiles - early) - left), 64, most < left ? most : left, head, batch};
  }
};

// A quarter as many heads as multiprocessors, so that about four blocks read the same keys; more where that is less than
// two rounds of pieces. All sections have the same number of heads, or the last a little less.
inline int64_t heads_of_section(int64_t units, int64_t row_tiles) {
  const int64_t most = std::max(kSms / 4, (2 * kSms - 1) / row_tiles + 1), sections = (units - 1) / most + 1;
  return (units - 1) / sections + 1;
}

// Into how many parts the tiles of the last round are cut. A group computes faster alone, so it has as few groups as let each
// part have a multiprocessor.
inline int last_parts(int64_t tiles, int groups) {
  for (int few = 1; few < groups; few++)
    if (const int parts = (groups - 1) / few + 1; tiles % kSms * parts <= kSms) return parts;
  return 1;
}

// `folded` counts under a mask only.
inline Schedule make_schedule(const Problem &problem, int groups, bool folded) {
  const int units = problem.heads * problem.batches, row_tiles = (problem.queries - 1) / (64 * groups) + 1;
  const int tiles = units * row_tiles;
  if (problem.causal) {
    const int section = static_cast<int>(heads_of_section(units, row_tiles));
    return {row_tiles, units, section, tiles, section * row_tiles, groups, tiles, 1, groups, folded};
  }
  const int parts = last_parts(tiles, groups), last = parts > 1 ? tiles % static_cast<int>(kSms) : 0;
  const int whole = tiles - last, pieces = whole + last * parts;
  return {row_tiles, units, 1, pieces, pieces, groups, whole, parts, (groups - 1) / parts + 1, false};
}

// The pieces of work of one block, one after the other: in turn from the front and from the back of a round. The next
// section begins with the block behind the last that had a piece. So the blocks' sums of keys differ by a few percent; where
// sections began in the middle of a round, some blocks had a third more.
class Pieces {
 public:
  SIMT_DEVICE explicit Pieces(const Schedule &schedule) : schedule_(schedule) { place(); }
  SIMT_DEVICE bool more() const { return begin_ < schedule_.pieces; }
  // `keys`: of a tile.
  SIMT_DEVICE Work work(const Problem &problem, int keys) const {
    Work work = schedule_.at(problem, begin_ + within_);
    work.end = (visible_keys(problem, work.last_row()) + keys - 1) / keys;
    return work;
  }
  SIMT_DEVICE void next() { round_++, place(); }

 private:
  SIMT_DEVICE void place() {
    const int blocks = static_cast<int>(gridDim.x);
#pragma unroll 1
    while (begin_ < schedule_.pieces) {
      const int left = schedule_.pieces - begin_, count = schedule_.span < left ? schedule_.span : left;
      const int own = static_cast<int>(blockIdx.x) - first_ + (static_cast<int>(blockIdx.x) < first_ ? blocks : 0);
      within_ = round_ * blocks + (round_ % 2 ? blocks - 1 - own : own);
      if (within_ < count) return;
      first_ += count / blocks % 2 ? blocks - count % blocks : count % blocks;
      if (first_ >= blocks) first_ -= blocks;
      begin_ += count, round_ = 0;
    }
  }
  const Schedule &schedule_;
  int begin_ = 0, within_ = 0, round_ = 0;  // The section's first piece, that of this block in it, and its round.
  int first_ = 0;                           // The block that has the section's first piece.
};

// Where a block's share begins: at a tile of rows, after so many tiles of its keys, counted from the last.
struct Place {
  int tile, step;
};

// All keys of all tiles of rows, one after the other, shared out evenly: every block has a range. So the device is busy to
// the end, however few tiles there are; rows at which a share ends are put together by a second kernel. Head after head,
// the tiles that see most keys first.
struct EvenSchedule {
  using Pieces = EvenPieces;
  int row_tiles, groups, blocks;
  Place starts[kSms + 1];  // And the end of the last share.

  SIMT_DEVICE Work at(const Problem &problem, int tile) const {
    const int unit = tile / row_tiles, late = row_tiles - 1 - tile % row_tiles;
    return {64 * groups * late, 64, groups, unit % problem.heads, unit / problem.heads};
  }
};

// The pieces of a block's share. Only the first and the last can have a part of the keys that their rows see.
class EvenPieces {
 public:
  SIMT_DEVICE explicit EvenPieces(const EvenSchedule &schedule)
      : schedule_(schedule), tile_(start().tile), step_(start().step) {}
  SIMT_DEVICE bool more() const { return tile_ < stop().tile || (tile_ == stop().tile && step_ < stop().step); }
  SIMT_DEVICE void next() { tile_++, step_ = 0; }
  SIMT_DEVICE Work work(const Problem &problem, int keys) const {
    Work work = schedule_.at(problem, tile_);
    const int seen = (visible_keys(problem, work.last_row()) + keys - 1) / keys;
    work.end = seen - step_;
    if (tile_ == stop().tile) work.begin = seen - stop().step;
    if (step_ || work.begin) work.slot = 2 * static_cast<int>(blockIdx.x) + (tile_ != start().tile);
    return work;
  }

 private:
  SIMT_DEVICE Place start() const { return schedule_.starts[blockIdx.x]; }
  SIMT_DEVICE Place stop() const { return schedule_.starts[blockIdx.x + 1]; }
  const EvenSchedule &schedule_;
  int tile_, step_;
};

// How many tiles of keys the rows up to `last_row` see.
inline int tiles_seen(const Problem &problem, int last_row, int keys) {
  const int seen = problem.keys + std::min(0, last_row + 1 + problem.lead);
  return seen > 0 ? (seen - 1) / keys + 1 : 0;
}

constexpr double kPieceSteps = 1.5;  // To begin and end a piece takes as long as so many tiles of keys, on an H100.

// Shares that take as long as `most` tiles of keys, or less. False where that is not enough for all.
inline bool share_out(const Problem &problem, EvenSchedule &schedule, int keys, double most) {
  const int tiles = problem.heads * problem.batches * schedule.row_tiles, rows = 64 * schedule.groups;
  double left = most;
  int block = 0;
  schedule.starts[0] = {0, 0};
  for (int tile = 0; tile < tiles; tile++) {
    const int steps = tiles_seen(problem, rows * (schedule.row_tiles - tile % schedule.row_tiles) - 1, keys);
    int step = 0;
    while (steps - step + kPieceSteps > left) {
      step += std::max(0, static_cast<int>(left - kPieceSteps));
      if (++block == schedule.blocks) return false;
      schedule.starts[block] = {tile, step}, left = most;
    }
    left -= steps - step + kPieceSteps;
  }
  while (block < schedule.blocks) schedule.starts[++block] = {tiles, 0};
  return true;
}

inline EvenSchedule even_schedule(const Problem &problem, int groups, int keys) {
  const int rows = 64 * groups;
  EvenSchedule schedule = {(problem.queries - 1) / rows + 1, groups, static_cast<int>(kSms), {}};
  double steps = 0.0;
  for (int tile = 1; tile <= schedule.row_tiles; tile++) steps += kPieceSteps + tiles_seen(problem, rows * tile - 1, keys);
  // Each share but one begins a piece more.
  double most = steps * problem.heads * problem.batches / schedule.blocks + kPieceSteps;
  while (!share_out(problem, schedule, keys, std::max(most, 1.0 + kPieceSteps))) most *= 1.01;
  return schedule;
}

// Where a ring of stages stands: the stage that is next, and the parity of its phase.
template <int kStages>
struct Ring {
  unsigned stage = 0, parity = 0;
  SIMT_DEVICE void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

}  // namespace attention
