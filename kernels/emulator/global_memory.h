// Which global memory a launch may touch, and who wrote what in it.
//
// Of every byte that a kernel may write it is known which block wrote it in this launch, and when in that block. Two
// blocks that write one element are at fault, and so is a block that reads what another wrote: nothing orders them.
// Inside a block the rules are those of shared memory, but reads leave no mark.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "stamp.h"

namespace simt::emulator {

// The last write of every byte of a region.
struct Writers {
  explicit Writers(size_t bytes) : blocks(bytes), stamps(bytes) {}
  std::vector<std::atomic<uint32_t>> blocks;  // Plus one; 0: nobody.
  std::vector<std::atomic<uint64_t>> stamps;
};

// A tensor, or memory that the host allocated.
struct Region {
  uintptr_t begin, end;
  std::string name;
  bool writable;
  std::shared_ptr<Writers> writers;  // Made when a launch begins.
};

// One access by one thread.
struct GlobalAccess {
  const void *data;
  unsigned bytes, alignment;
  uint32_t block;
  Stamp now;
  const Sites &sites;
};

class GlobalMemory {
 public:
  void expose(const void *data, size_t bytes, const char *name, bool writable) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    if (bytes) regions_.push_back({begin, begin + bytes, name, writable, nullptr});
  }
  void withdraw(const void *data) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    for (size_t i = regions_.size(); i-- > 0;)
      if (regions_[i].begin == begin) regions_.erase(regions_.begin() + static_cast<std::ptrdiff_t>(i));
  }
  void clear() { regions_.clear(); }

  void begin_launch() {
    for (Region &region : regions_)
      if (region.writable) region.writers = std::make_shared<Writers>(region.end - region.begin);
  }

  // What is wrong with an access; empty when nothing is. Without any region only its alignment is looked at.
  std::string read(const GlobalAccess &access) const {
    const Region *region;
    if (std::string fault = find(access, "reads", &region); !fault.empty()) return fault;
    if (!region || !region->writable) return {};
    for (size_t i = index(*region, access.data), end = i + access.bytes; i < end; i++) {
      const uint32_t writer = region->writers->blocks[i].load(std::memory_order_relaxed);
      if (!writer) continue;
      if (writer != access.block + 1) return of_another_block("reads", *region, i, writer - 1, "writes");
      if (const Stamp write = written(*region, i); !write.before(access.now)) return race("reads", *region, i, write, access);
    }
    return {};
  }

  // Of `value`, which the caller then stores.
  std::string write(const GlobalAccess &access, const void *value) const {
    const Region *region;
    if (std::string fault = find(access, "writes", &region); !fault.empty()) return fault;
    if (!region) return {};
    if (!region->writable) return format("writes to its input %s", region->name.c_str());
    for (size_t i = index(*region, access.data), end = i + access.bytes; i < end; i++) {
      const uint32_t writer = region->writers->blocks[i].exchange(access.block + 1, std::memory_order_relaxed);
      if (writer && writer != access.block + 1)
        return of_another_block("writes", *region, i, writer - 1, "writes too");
      Stamp now = access.now;
      if (writer) {
        const Stamp write = written(*region, i);
        const bool same = now.same_instruction(write) && std::memcmp(access.data, value, access.bytes) == 0;
        if (!write.before(now) && !same) return race("writes", *region, i, write, access);
        now = now.with(write);
      }
      region->writers->stamps[i].store(now.bits(), std::memory_order_relaxed);
    }
    return {};
  }

 private:
  static Stamp written(const Region &region, size_t i) {
    return Stamp(region.writers->stamps[i].load(std::memory_order_relaxed));
  }

  static std::string of_another_block(const char *verb, const Region &region, size_t i, uint32_t block, const char *does) {
    return format("%s %s at byte %zu, which block %u of the same launch %s", verb, region.name.c_str(), i, block, does);
  }

  static std::string race(const char *verb, const Region &region, size_t i, Stamp earlier, const GlobalAccess &access) {
    return format("race: %s %s at byte %zu, which thread %u of the block wrote at %s; no barrier lies between", verb,
                  region.name.c_str(), i, earlier.thread_beside(access.now.thread()),
                  access.sites.text(earlier.site()).c_str());
  }

  std::string find(const GlobalAccess &access, const char *verb, const Region **found) const {
    const auto begin = reinterpret_cast<uintptr_t>(access.data);
    *found = nullptr;
    if (begin % access.alignment)
      return format("%s global memory at an address that is not a multiple of %u", verb, access.alignment);
    if (regions_.empty()) return {};
    for (const Region &region : regions_)
      if (begin >= region.begin && begin + access.bytes <= region.end) {
        *found = &region;
        return {};
      }
    return outside(begin, access.bytes, verb);
  }

  std::string outside(uintptr_t begin, unsigned bytes, const char *verb) const {
    const Region *nearest = &regions_.front();
    for (const Region &region : regions_)
      if (distance(region, begin) < distance(*nearest, begin)) nearest = &region;
    const long long before = static_cast<long long>(begin) - static_cast<long long>(nearest->begin);
    return format("%s %u bytes of global memory outside all tensors: at byte %lld of %s, which has %zu", verb, bytes,
                  before, nearest->name.c_str(), static_cast<size_t>(nearest->end - nearest->begin));
  }

  static uintptr_t distance(const Region &region, uintptr_t at) {
    return at < region.begin ? region.begin - at : at >= region.end ? at - region.end + 1 : 0;
  }
  static size_t index(const Region &region, const void *data) {
    return reinterpret_cast<uintptr_t>(data) - region.begin;
  }

  std::vector<Region> regions_;
};

}  // namespace simt::emulator
