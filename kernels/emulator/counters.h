// Counters by which the blocks of a launch know the last of them, and what that block may then read.
//
// Nothing orders two blocks but this: what a block did before it arrived, by a barrier or by the thread that arrives,
// comes before what the last block does behind its own arrival and a barrier.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "stamp.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

// What a block knows of others, since it arrived last: when each of them arrived, and when it did so itself.
struct Acquired {
  std::map<uint32_t, Stamp> arrivals;
  Stamp since;

  // Whether a write of that block comes before an access of this one.
  bool orders(uint32_t block, Stamp write, Stamp now) const {
    const auto found = arrivals.find(block);
    return found != arrivals.end() && write.before(found->second) && since.before(now);
  }
};

// Of one launch: who has arrived at which counter. Blocks run side by side.
class Counters {
 public:
  void clear() { arrivals_.clear(); }

  void open(uint64_t *counter, uint64_t ticket) {
    const std::lock_guard<std::mutex> held(mutex_);
    if ((*counter ^ ticket) >> 16) *counter = ticket;
  }

  // Whether the block is the last of `all`; then `acquired` learns of the others.
  bool arrive(uint64_t *counter, unsigned all, uint32_t block, Stamp now, Acquired &acquired) {
    const std::lock_guard<std::mutex> held(mutex_);
    auto &arrived = arrivals_[counter];
    arrived.emplace(block, now);
    if (((*counter)++ & 0xffff) != all - 1) return false;
    *counter = 0;
    acquired = {std::move(arrived), now};
    arrivals_.erase(counter);
    return true;
  }

 private:
  std::mutex mutex_;
  std::map<const uint64_t *, std::map<uint32_t, Stamp>> arrivals_;
};

}  // namespace emulator
}  // namespace simt
