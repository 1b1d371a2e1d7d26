// Which global memory a launch may touch, and which block wrote what.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fault.h"

namespace simt::emulator {

// A tensor, or memory that the host allocated.
struct Region {
  uintptr_t begin, end;
  std::string name;
  bool writable;
  // Per two bytes the block that wrote them in this launch, plus one. Made when a launch begins.
  std::shared_ptr<std::vector<std::atomic<uint32_t>>> writers;
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
      if (region.writable)
        region.writers = std::make_shared<std::vector<std::atomic<uint32_t>>>((region.end - region.begin + 1) / 2);
  }

  // What is wrong with an access by a block; empty when nothing is. Without any region nothing is known.
  std::string read(const void *data, unsigned bytes, unsigned alignment, uint32_t block) const {
    const Region *region;
    if (std::string fault = find(data, bytes, alignment, "reads", &region); !fault.empty()) return fault;
    if (!region || !region->writable) return {};
    for (size_t i = index(*region, data), end = i + (bytes + 1) / 2; i < end; i++)
      if (const uint32_t writer = (*region->writers)[i].load(std::memory_order_relaxed); writer && writer != block + 1)
        return format("reads %s at byte %zu, which block %u of the same launch writes", region->name.c_str(), 2 * i,
                      writer - 1);
    return {};
  }

  std::string write(const void *data, unsigned bytes, uint32_t block) const {
    const Region *region;
    if (std::string fault = find(data, bytes, bytes, "writes", &region); !fault.empty()) return fault;
    if (!region) return {};
    if (!region->writable) return format("writes to its input %s", region->name.c_str());
    for (size_t i = index(*region, data), end = i + (bytes + 1) / 2; i < end; i++) {
      const uint32_t writer = (*region->writers)[i].exchange(block + 1, std::memory_order_relaxed);
      if (writer && writer != block + 1)
        return format("writes %s at byte %zu, which block %u of the same launch writes too", region->name.c_str(), 2 * i,
                      writer - 1);
    }
    return {};
  }

 private:
  std::string find(const void *data, unsigned bytes, unsigned alignment, const char *verb, const Region **found) const {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    *found = nullptr;
    if (begin % alignment) return format("%s global memory at an address that is not a multiple of %u", verb, alignment);
    if (regions_.empty()) return {};
    for (const Region &region : regions_)
      if (begin >= region.begin && begin + bytes <= region.end) {
        *found = &region;
        return {};
      }
    return outside(begin, bytes, verb);
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
    return (reinterpret_cast<uintptr_t>(data) - region.begin) / 2;
  }

  std::vector<Region> regions_;
};

}  // namespace simt::emulator
