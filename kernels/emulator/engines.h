// What a block's mbarriers, named barriers and tensor copies do, and who may go on because of them.
#pragma once

#include <algorithm>

#include "block.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

constexpr unsigned kRegistersOfBlock = 65536;

inline void Block::begin_async(uint64_t seed) {
  const auto warps = static_cast<size_t>(warps_);
  clocks_.assign(warps, Clock()), touched_.assign(warps, 0), products_.assign(warps, WarpProducts());
  mbarriers_.clear(), named_.assign(16, NamedBarrier()), flying_.clear(), origins_.clear();
  mbarriers_.reserve(Clock::kBarriers);
  // As __launch_bounds__(threads, 1) gives them.
  const unsigned each = kRegistersOfBlock / static_cast<unsigned>(shape_.threads()) / 8 * 8;
  for (WarpProducts &warp : products_) warp.registers = std::min(each, 248u);
  free_registers_ = 0;
  Random drawn(~seed ^ number_);
  landing_ = static_cast<Landing>(drawn.below(3));
}

inline void Block::note_write(const Lane &lane, uint32_t address, Where where) {
  Piece &piece = shared.pieces.at(address);
  piece.last = Piece::kThread;
  piece.thread = lane.thread, piece.number = lane.writes, piece.site = sites_.number(where);
}

// What others may know of a warp that arrives: all that it did up to now, and all that it knows.
inline const Clock &Block::release_of(const Lane &lane) {
  const unsigned warp = lane.thread / kLanes;
  if (touched_[warp]) order_warp(lane);
  touched_[warp] = false;
  clocks_[warp].accesses[warp] = warp_intervals_[warp];
  return clocks_[warp];
}

inline void Block::wake(Lane::State state, unsigned barrier) {
  for (unsigned i = 0; i < shape_.threads(); i++) {
    Lane &lane = *lanes_[i];
    if (lane.state == state && (state == Lane::kForRegisters || lane.barrier == barrier)) lane.state = Lane::kReady;
  }
}

// mbarriers --------------------------------------------------------------------------------------------------------

inline Mbarrier *Block::find_mbarrier(uint32_t address) {
  for (Mbarrier &barrier : mbarriers_)
    if (barrier.address == address) return &barrier;
  return nullptr;
}

inline void Block::make_mbarrier(Lane &lane, uint32_t address, unsigned arrivals, Where where) {
  const uint64_t nothing = 0;
  shared.pieces.begin();
  if (find_mbarrier(address)) fail(lane, where, format("makes an mbarrier at byte %u, where there is one", address));
  if (mbarriers_.size() == Clock::kBarriers) fail(lane, where, "makes more mbarriers than the emulator can tell apart");
  if (!arrivals) fail(lane, where, "makes an mbarrier of no arrivals");
  shared.pieces.at(address / 16 * 16 < shared.size() ? address : 0).barrier = false;  // A neighbour may lie there.
  write_shared(lane, address, &nothing, 8, where);
  shared.pieces.at(address).barrier = true;
  Mbarrier made{address, static_cast<uint32_t>(mbarriers_.size()), arrivals, stamp(lane, where), lane.thread, lane.writes};
  made.missing = arrivals;
  mbarriers_.push_back(made);
}

inline Mbarrier &Block::mbarrier_of(Lane &lane, uint32_t address, Where where) {
  Mbarrier *const barrier = find_mbarrier(address);
  if (!barrier) fail(lane, where, format("byte %u of shared memory is no mbarrier: nobody has made one there", address));
  const Stamp now = stamp(lane, where);
  if (!barrier->made.before(now) && !clock(lane).covers(barrier->made))
    fail(lane, where, format("race: uses the mbarrier at byte %u, which thread %u made at %s; no barrier lies between",
                             address, barrier->maker, sites_.text(barrier->made.site()).c_str()));
  return *barrier;
}

inline void Block::end_phase(Mbarrier &barrier) {
  if (barrier.missing || barrier.bytes) return;
  barrier.known.join(barrier.pending);
  barrier.pending = Clock();
  barrier.missing = barrier.arrivals, barrier.ended++;
  for (unsigned i = 0; i < shape_.threads(); i++) {
    Lane &lane = *lanes_[i];
    if (lane.state == Lane::kAtMbarrier && lane.barrier == barrier.index && barrier.has_ended(lane.parity))
      lane.state = Lane::kReady;
  }
}

inline void Block::arrive(Lane &lane, uint32_t address, unsigned bytes, Where where) {
  Mbarrier &barrier = mbarrier_of(lane, address, where);
  if (!barrier.missing)
    fail(lane, where, format("arrives at the mbarrier at byte %u once more than the %u times that a phase takes", address,
                             barrier.arrivals));
  touched_[lane.thread / kLanes] = true;
  barrier.pending.join(release_of(lane));
  barrier.bytes += bytes, barrier.missing--;
  end_phase(barrier);
}

inline void Block::wait_mbarrier(Lane &lane, uint32_t address, unsigned parity, Where where) {
  Mbarrier &barrier = mbarrier_of(lane, address, where);
  if (parity > 1) fail(lane, where, "waits for a parity that is neither 0 nor 1");
  while (!barrier.has_ended(parity)) {
    lane.barrier = barrier.index, lane.parity = parity;
    wait(lane, Lane::kAtMbarrier, where);
  }
  clock(lane).join(barrier.known);
  clock(lane).phases[barrier.index] = std::max(clock(lane).phases[barrier.index], barrier.ended);
}

// Named barriers ---------------------------------------------------------------------------------------------------

inline void Block::arrive_named(Lane &lane, unsigned number, unsigned threads, bool stay, Where where) {
  if (!number || number >= named_.size()) fail(lane, where, format("there is no named barrier %u: 1 to 15", number));
  if (!threads || threads % kLanes || threads > (shape_.threads() + kLanes - 1) / kLanes * kLanes)
    fail(lane, where, format("named barrier %u for %u threads: a multiple of 32, no more than the block has", number,
                             threads));
  NamedBarrier &barrier = named_[number];
  if (barrier.here && barrier.threads != threads)
    fail(lane, where, format("comes to named barrier %u for %u threads, others came at %s for %u", number, threads,
                             sites_.text(barrier.site).c_str(), barrier.threads));
  barrier.threads = threads, barrier.site = sites_.number(where);
  barrier.pending.join(release_of(lane));
  const uint32_t round = barrier.rounds;
  if (++barrier.here == threads) {
    barrier.known.join(barrier.pending);
    barrier.pending = Clock();
    barrier.here = 0, barrier.rounds++;
    wake(Lane::kAtNamed, number);
  }
  while (stay && barrier.rounds == round) {
    lane.barrier = number;
    wait(lane, Lane::kAtNamed, where);
  }
  if (stay) clock(lane).join(barrier.known);
}

// Tensor copies ----------------------------------------------------------------------------------------------------

inline uint32_t Block::origin_of(const TensorMap &map, int head, int batch) {
  for (size_t i = 0; i < origins_.size(); i++)
    if (origins_[i].data == map.data && origins_[i].head == head && origins_[i].batch == batch)
      return static_cast<uint32_t>(i + 1);
  origins_.push_back({map.data, head, batch});
  return static_cast<uint32_t>(origins_.size());
}

inline void Block::copy_tensor(Lane &lane, const TensorMap &map, uint32_t destination, uint32_t address, const int (&at)[4],
                               Where where) {
  Mbarrier &barrier = mbarrier_of(lane, address, where);
  if (!map.data) fail(lane, where, "copies by a tensor map that was never encoded");
  if (lanes_[barrier.maker]->fenced < barrier.number)
    fail(lane, where, format("the mbarrier at byte %u, which thread %u made at %s, may not be there for the copy: "
                             "fence.proxy.async is missing after it", address, barrier.maker,
                             sites_.text(barrier.made.site()).c_str()));
  const TensorCopy copy{map, destination, barrier.index, at[0], at[1], at[2], at[3], lane.thread, sites_.number(where)};
  if (destination % TensorCopy::kLine)
    fail(lane, where, format("copies to byte %u of shared memory, no multiple of 128", destination));
  if (destination + uint64_t(copy.bytes()) > shared.size())
    fail(lane, where, format("copies to bytes %u to %u of shared memory, the block has %zu", destination,
                             destination + copy.bytes() - 1, shared.size()));
  // What is read: rows of the box that the tensor has.
  if (at[2] >= 0 && at[2] < map.sizes[2] && at[3] >= 0 && at[3] < map.sizes[3])
    for (int line = 0; line < map.box_rows; line++) {
      const int64_t row = int64_t(at[1]) + line, first = std::max(at[0], 0);
      const int64_t last = std::min<int64_t>(at[0] + TensorCopy::kElements, map.sizes[0]);
      if (row < 0 || row >= map.sizes[1] || first >= last) continue;
      const char *source = map.data + row * map.strides[0] + at[2] * map.strides[1] + at[3] * map.strides[2] + 2 * first;
      lane.accesses = 0;
      read_global(lane, source, static_cast<unsigned>(2 * (last - first)), 2, where);
    }
  const uint32_t origin = origin_of(map, at[2], at[3]);
  const Stamp now = stamp(lane, where);
  for (uint32_t byte = 0; byte < copy.bytes(); byte += Pieces::kBytes) {
    const uint32_t line = byte / TensorCopy::kLine;
    const uint32_t place = (destination + byte) ^ ((destination + byte) / TensorCopy::kLine % 8 * 16);
    Piece &piece = shared.pieces.at(place);
    if (piece.barrier) fail(lane, where, format("copies over an mbarrier at byte %u of shared memory", place));
    if (!shared.pieces.there("copies over", place, clock(lane), sites_) ||
        !shared.pieces.unread("copies over", place, clock(lane), sites_))
      fail(lane, where, shared.pieces.fault());
    if (piece.touched && !shared.settled("copies over", place, Pieces::kBytes, now, false))
      fail(lane, where, shared.fault());
    if (piece.last == Piece::kThread && lanes_[piece.thread]->fenced < piece.number)
      fail(lane, where, format("copies over byte %u of shared memory, which thread %u wrote at %s: no fence.proxy.async "
                               "of that thread lies between", place, piece.thread, sites_.text(piece.site).c_str()));
    piece = Piece();
    piece.last = Piece::kCopy, piece.flying = true;
    piece.mbarrier = static_cast<uint16_t>(barrier.index), piece.thread = lane.thread, piece.site = copy.site;
    piece.origin = origin, piece.line = at[1] + static_cast<int>(line);
    piece.column = at[0] + static_cast<int>(byte % TensorCopy::kLine / 2);
  }
  shared.brought(destination, copy.bytes(), Stamp(0, 0, 0, copy.site ? copy.site : 1));
  flying_.push_back(copy);
  if (landing_ == kAtOnce) land_copy(flying_.size() - 1);
}

inline void Block::land_copy(size_t which) {
  const TensorCopy copy = flying_[which];
  flying_.erase(flying_.begin() + static_cast<std::ptrdiff_t>(which));
  Mbarrier &barrier = mbarriers_[copy.mbarrier];
  const TensorMap &map = copy.map;
  const bool inside = copy.head >= 0 && copy.head < map.sizes[2] && copy.batch >= 0 && copy.batch < map.sizes[3];
  for (uint32_t byte = 0; byte < copy.bytes(); byte += Pieces::kBytes) {
    const int64_t row = copy.row + int64_t(byte / TensorCopy::kLine), feature = copy.feature + byte % TensorCopy::kLine / 2;
    const uint32_t place = (copy.destination + byte) ^ ((copy.destination + byte) / TensorCopy::kLine % 8 * 16);
    const bool row_inside = inside && row >= 0 && row < map.sizes[1];
    unsigned char *const to = shared.at(place);
    std::memset(to, 0, Pieces::kBytes);
    const int64_t first = std::max<int64_t>(feature, 0), last = std::min<int64_t>(feature + 8, map.sizes[0]);
    const char *from = map.data + row * map.strides[0] + copy.head * map.strides[1] + copy.batch * map.strides[2];
    if (row_inside && first < last)
      std::memcpy(to + 2 * (first - feature), from + 2 * first, static_cast<size_t>(2 * (last - first)));
    Piece &piece = shared.pieces.at(place);
    piece.flying = false, piece.phase = barrier.ended;
  }
  barrier.bytes -= copy.bytes();
  end_phase(barrier);
}

inline void Block::maybe_land(Random &random) {
  if (landing_ == kAnyTime && !flying_.empty() && !random.below(8))
    land_copy(random.below(static_cast<unsigned>(flying_.size())));
}

// What somebody waits for who can wait for ever.
inline std::string Block::waits_for(const Lane &lane) {
  const unsigned warp = lane.thread / kLanes;
  if (lane.state == Lane::kAtMbarrier) {
    const Mbarrier &barrier = mbarriers_[lane.barrier];
    return format("for the phase of parity %u of the mbarrier at byte %u, made at %s: %u phases have ended, the next lacks "
                  "%u of %u arrivals and %lld bytes",
                  lane.parity, barrier.address, sites_.text(barrier.made.site()).c_str(), barrier.ended, barrier.missing,
                  barrier.arrivals, static_cast<long long>(barrier.bytes));
  }
  if (lane.state == Lane::kAtNamed)
    return format("at named barrier %u, to which %u of %u threads have come", lane.barrier, named_[lane.barrier].here,
                  named_[lane.barrier].threads);
  if (lane.state == Lane::kForRegisters)
    return format("for %u registers a thread: it has %u, and the block has %u left for its 32 threads", lane.value,
                  products_[warp].registers, free_registers_);
  const unsigned together = lane.collective->group ? 4 * kLanes : kLanes, first = lane.thread / together * together;
  for (unsigned i = first; i < first + together && i < shape_.threads(); i++) {
    const Lane &other = *lanes_[i];
    if (other.state == Lane::kInWarp && other.collective == lane.collective) continue;
    return format("in %s for thread %u, which %s", lane.collective->name, i,
                  other.state == Lane::kDone ? "has returned" : "is elsewhere");
  }
  return format("in %s", lane.collective->name);
}

}  // namespace emulator
}  // namespace simt
