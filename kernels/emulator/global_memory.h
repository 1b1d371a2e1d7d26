// Which global memory a launch may touch, and who wrote what in it.
//
// Of every two bytes that a kernel may write it is known which block wrote them last in this launch, and when in that
// block, and which block read them last. Two blocks that write one element are at fault, and so are one that reads and
// one that writes it, whichever came first: nothing orders them. Each leaves its own mark before it looks for the
// other's, so one of them sees it also when they run at the same time. Inside a block the rules are those of shared
// memory, but reads leave no mark there.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "clock.h"
#include "stamp.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

// Zeros that take no memory until they are touched.
template <typename T>
std::unique_ptr<T[], decltype(&std::free)> zeros(size_t count) {
  void *memory = std::calloc(count, sizeof(T));
  if (!memory) throw std::bad_alloc();
  return {static_cast<T *>(memory), std::free};
}

// The last accesses of a region, two bytes at a time.
struct Writers {
  static constexpr size_t kGranule = 2;
  static constexpr uint64_t kMostBlocks = (1u << 30) - 1;

  using Mark = std::atomic<uint32_t>;  // The block plus one, and two bits: which of the two bytes. 0: nobody.
  using Time = std::atomic<uint64_t>;  // A stamp in that block.

  explicit Writers(size_t bytes)
      : marks(zeros<Mark>(bytes / kGranule + 1)), readers(zeros<Mark>(bytes / kGranule + 1)),
        stamps(zeros<Time>(bytes / kGranule + 1)) {}

  std::unique_ptr<Mark[], decltype(&std::free)> marks, readers;
  std::unique_ptr<Time[], decltype(&std::free)> stamps;
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
  const Clock *clock;

  bool after(Stamp earlier) const { return earlier.before(now) || clock->covers(earlier); }
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
    for (Granule one(*region, access); one.more(); one.next()) {
      one.reader().store((access.block + 1) << 2 | one.bytes());
      const uint32_t mark = one.mark().load();
      if (!(mark & one.bytes())) continue;
      if (mark >> 2 != access.block + 1) return of_another_block("reads", one, mark, "writes");
      if (const Stamp write = one.stamp(); !access.after(write)) return race("reads", one, write, access);
    }
    return {};
  }

  // Of `value`, which the caller then stores.
  std::string write(const GlobalAccess &access, const void *value) const {
    const Region *region;
    if (std::string fault = find(access, "writes", &region); !fault.empty()) return fault;
    if (!region) return {};
    if (!region->writable) return format("writes to its input %s", region->name.c_str());
    for (Granule one(*region, access); one.more(); one.next()) {
      const uint32_t mark = one.mark().exchange((access.block + 1) << 2 | one.bytes());
      const uint32_t read = one.reader().load();
      if (read & one.bytes() && read >> 2 != access.block + 1) return of_another_block("writes", one, read, "reads");
      Stamp now = access.now;
      if (mark & one.bytes()) {
        if (mark >> 2 != access.block + 1) return of_another_block("writes", one, mark, "writes too");
        const Stamp write = one.stamp();
        const bool same = now.same_instruction(write) && std::memcmp(access.data, value, access.bytes) == 0;
        if (!access.after(write) && !same) return race("writes", one, write, access);
        now = now.with(write);
      }
      if (mark >> 2 == access.block + 1) one.keep(mark & 3);
      one.stamp(now);
    }
    return {};
  }

 private:
  // The pieces of an access.
  class Granule {
   public:
    Granule(const Region &region, const GlobalAccess &access)
        : region_(region), begin_(reinterpret_cast<uintptr_t>(access.data) - region.begin), end_(begin_ + access.bytes),
          index_(begin_ / Writers::kGranule) {}
    bool more() const { return index_ * Writers::kGranule < end_; }
    void next() { index_++; }

    const Region &region() const { return region_; }
    size_t at() const { return std::max(begin_, index_ * Writers::kGranule); }
    // Which of its two bytes belong to the access.
    uint32_t bytes() const { return (begin_ <= 2 * index_ ? 1 : 0) | (end_ >= 2 * index_ + 2 ? 2 : 0); }
    Writers::Mark &mark() const { return region_.writers->marks[index_]; }
    Writers::Mark &reader() const { return region_.writers->readers[index_]; }
    // The other byte is this block's too, as it was before.
    void keep(uint32_t bytes) const {
      if (bytes & ~this->bytes()) mark().fetch_or(bytes, std::memory_order_relaxed);
    }
    Stamp stamp() const { return Stamp(region_.writers->stamps[index_].load(std::memory_order_relaxed)); }
    void stamp(Stamp now) const { region_.writers->stamps[index_].store(now.bits(), std::memory_order_relaxed); }

   private:
    const Region &region_;
    size_t begin_, end_, index_;
  };

  static std::string of_another_block(const char *verb, const Granule &one, uint32_t mark, const char *does) {
    return format("%s %s at byte %zu, which block %u of the same launch %s", verb, one.region().name.c_str(), one.at(),
                  (mark >> 2) - 1, does);
  }

  static std::string race(const char *verb, const Granule &one, Stamp earlier, const GlobalAccess &access) {
    return format("race: %s %s at byte %zu, which thread %u of the block wrote at %s; no barrier lies between", verb,
                  one.region().name.c_str(), one.at(), earlier.thread_beside(access.now.thread()),
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
  std::vector<Region> regions_;
};

}  // namespace emulator
}  // namespace simt
