// Who runs when.
//
// A warp runs until all its lanes wait for the same thing: each other (shuffle, ldmatrix, mma, __syncwarp) or the
// block (__syncthreads). Which warp goes on next is drawn by a seed, and greedily: the one that runs mostly keeps
// running, far ahead of the others, for that is the order in which a missing barrier shows in the values.
#pragma once

#include "block.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

inline void Block::begin_lanes() {
  const unsigned threads = static_cast<unsigned>(shape_.threads());
  warp_intervals_.assign(static_cast<size_t>(warps_), 0);
  for (unsigned i = 0; i < static_cast<unsigned>(warps_) * kLanes; i++) {
    Lane &lane = *lanes_[i];
    lane.block = this, lane.thread = i, lane.accesses = 0;
    lane.index = {i % shape_.block.x, i / shape_.block.x % shape_.block.y, i / shape_.block.x / shape_.block.y};
    lane.state = i < threads ? Lane::kReady : Lane::kDone;
    lane.groups.clear(), lane.copies.clear();
    lane.writes = lane.fenced = 0;
    lane.may_touch = !shape_.early;
    if (i < threads) lane.fiber.reset(&Block::enter);
  }
}

inline bool Block::schedule(Random &random) {
  std::vector<int> runnable;
  for (;;) {
    runnable.clear();
    for (int warp = 0; warp < warps_; warp++)
      if (can_run(warp)) runnable.push_back(warp);
    if (runnable.empty()) {
      if (!flying_.empty()) {
        land_copy(random.below(static_cast<unsigned>(flying_.size())));
        continue;
      }
      if (all_done()) return true;
      if (!release()) return false;
      continue;
    }
    const int warp = runnable[random.below(static_cast<unsigned>(runnable.size()))];
    do {
      if (!advance(warp, random.below(2))) return false;
      maybe_land(random);
    } while (can_run(warp) && random.below(64));
  }
}

inline bool Block::can_run(int warp) {
  for (int i = 0; i < kLanes; i++)
    if (at(warp, i).state == Lane::kReady) return true;
  return false;
}

// Run every lane of a warp to where it waits, then do what they met for.
inline bool Block::advance(int warp, bool backwards) {
  for (int i = 0; i < kLanes; i++) {
    Lane &lane = at(warp, backwards ? kLanes - 1 - i : i);
    if (lane.state != Lane::kReady) continue;
    current() = &lane;
    lane.state = Lane::kDone;  // Unless it waits for something.
    lane.fiber.resume();
    if (!fault_.empty()) return false;
  }
  return execute(warp);
}

inline bool Block::execute(int warp) {
  const Lane *meeting = nullptr;
  for (int i = 0; i < kLanes && !meeting; i++)
    if (at(warp, i).state == Lane::kInWarp) meeting = &at(warp, i);
  if (!meeting) return true;
  const Collective &collective = *meeting->collective;
  for (int i = 0; i < kLanes; i++)
    if (at(warp, i).sleeps() || at(warp, i).state == Lane::kReady) return true;  // It may still come.
  if (collective.group) return execute_group(warp);
  Lane *lanes[kLanes];
  for (int i = 0; i < kLanes; i++) {
    Lane &lane = at(warp, i);
    const bool gone = lane.state == Lane::kDone && !collective.aligned;
    const bool here = lane.state == Lane::kInWarp && lane.collective == &collective;
    if (!gone && (!here || (collective.aligned && lane.where != meeting->where))) return diverged(*meeting, lane);
    lanes[i] = gone ? nullptr : &lane;
  }
  for (Lane *lane : lanes)
    if (lane) lane->state = Lane::kReady;
  collective.execute(*this, lanes);
  return fault_.empty();
}

inline bool Block::diverged(const Lane &one, const Lane &other) {
  const std::string at = " at " + other.where.text();
  const std::string does = other.thread >= shape_.threads()  ? "does not exist"
                           : other.state == Lane::kDone      ? "has returned"
                           : other.state == Lane::kAtBarrier ? "waits in __syncthreads" + at
                           : other.sleeps()                  ? "waits" + at
                                                             : std::string("is in ") + other.collective->name + at;
  fault_ = describe(one, one.where, format("divergence: all lanes of the warp have to execute %s together, thread %u ",
                                           one.collective->name, other.thread) + does);
  return false;
}

inline bool Block::all_done() {
  for (unsigned i = 0; i < shape_.threads(); i++)
    if (lanes_[i]->state != Lane::kDone) return false;
  return true;
}

// Whether some wait for what is not __syncthreads: then for ever. Each of them that waits for something else is named.
inline bool Block::stuck() {
  std::vector<std::string> named;
  for (unsigned i = 0; i < shape_.threads() && named.size() < 4; i++) {
    const Lane &lane = *lanes_[i];
    if (lane.state == Lane::kDone || lane.state == Lane::kAtBarrier) continue;
    std::string waits = waits_for(lane);
    if (std::find(named.begin(), named.end(), waits) != named.end()) continue;
    if (named.empty())
      fault_ = describe(lane, lane.where, "deadlock: waits " + waits);
    else
      fault_ += format("; thread %u at %s waits ", lane.thread, lane.where.text().c_str()) + waits;
    named.push_back(std::move(waits));
  }
  return !named.empty();
}

// Nobody can run: open the barrier when everybody is there.
inline bool Block::release() {
  if (stuck()) return false;
  const Lane *first = nullptr, *returned = nullptr;
  for (unsigned i = 0; i < shape_.threads(); i++) {
    const Lane &lane = *lanes_[i];
    if (lane.state == Lane::kDone) {
      returned = &lane;
    } else if (!first) {
      first = &lane;
    } else if (lane.where != first->where) {
      const std::string place = lane.where.text();
      return deadlock(*first, format("while thread %u waits in another, at %s", lane.thread, place.c_str()));
    }
  }
  if (returned) return deadlock(*first, format("for thread %u, which has returned", returned->thread));
  if (++block_interval_ == Stamp::kBlockIntervals) {
    fault_in(*first, "more barriers than the emulator can tell apart");
    return false;
  }
  warp_intervals_.assign(static_cast<size_t>(warps_), 0);
  for (Clock &clock : clocks_) clocks_[0].join(clock);
  std::fill(std::begin(clocks_[0].accesses), std::end(clocks_[0].accesses), 0u);
  for (Clock &clock : clocks_) clock = clocks_[0];
  for (unsigned i = 0; i < shape_.threads(); i++) lanes_[i]->state = Lane::kReady;
  return true;
}

inline bool Block::deadlock(const Lane &waiting, const std::string &what) {
  fault_ = describe(waiting, waiting.where, "deadlock: waits in __syncthreads " + what);
  return false;
}

}  // namespace emulator
}  // namespace simt
