// What a warp knows to have happened, where named barriers, mbarriers and waits for products order warps and no
// __syncthreads does. A clock has a hand for everything that goes on by itself: for the accesses of each warp, for the
// products that each warp has waited for, for the phases of each mbarrier. Who lets others go on (an arrival) gives its
// hands along; who waits takes the later ones.
#pragma once

#include <algorithm>
#include <cstdint>

#include "stamp.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

struct Clock {
  static constexpr unsigned kWarps = 32, kBarriers = 64;

  uint32_t accesses[kWarps] = {};   // Intervals of the warp below this are over.
  uint32_t products[kWarps] = {};   // Groups of wgmma that have ended.
  uint32_t phases[kBarriers] = {};  // Phases of an mbarrier that have ended.

  void join(const Clock &other) {
    for (unsigned i = 0; i < kWarps; i++) accesses[i] = std::max(accesses[i], other.accesses[i]);
    for (unsigned i = 0; i < kWarps; i++) products[i] = std::max(products[i], other.products[i]);
    for (unsigned i = 0; i < kBarriers; i++) phases[i] = std::max(phases[i], other.phases[i]);
  }
  // Whether an access since the last __syncthreads is known to be over.
  bool covers(Stamp access) const { return access.warp_interval() < accesses[access.warp()]; }
};

}  // namespace emulator
}  // namespace simt
