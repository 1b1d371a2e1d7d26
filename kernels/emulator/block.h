// One block of threads on one CPU thread: what its threads may do, and what was wrong with it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "global_memory.h"
#include "lane.h"
#include "shared_memory.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

constexpr uint64_t kPatience = 100'000'000;  // Memory accesses of one thread between meetings: more is a spin.

constexpr const char *kTooEarly =
    "race: a kernel of launch_early touches global memory before wait_for_previous; the one before may still run";

// A kernel with its arguments.
struct Kernel {
  void (*call)(const void *arguments);
  const void *arguments;
};

class Random {  // xorshift64*: small, and good enough to shuffle warps.
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x2545f4914f6cdd1du) { next(); }
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545f4914f6cdd1du >> 16;
  }
  unsigned below(unsigned limit) { return static_cast<unsigned>(next() % limit); }

 private:
  uint64_t state_;
};

class Block {
 public:
  // Fibers for the largest block so far are kept. Throws std::bad_alloc when there is no room for their stacks.
  void prepare(const Shape &shape) {
    shape_ = shape;
    warps_ = static_cast<int>((shape.threads() + kLanes - 1) / kLanes);
    while (lanes_.size() < static_cast<size_t>(warps_ * kLanes)) lanes_.push_back(std::make_unique<Lane>());
    conflicts = fetches = 0;
  }

  // Run one block to its end; false when it faulted, then `fault` says how.
  bool run(uint32_t number, uint64_t seed, const Kernel &kernel, GlobalMemory &global) {
    number_ = number, kernel_ = &kernel, global_ = &global, fault_.clear();
    index_ = {number % shape_.grid.x, number / shape_.grid.x % shape_.grid.y,
              number / shape_.grid.x / shape_.grid.y};
    Random random(seed ^ (uint64_t(number) << 32));
    early_copies_ = random.below(2);
    shared.reset(shape_.shared_bytes);
    block_interval_ = 1;
    begin_lanes();
    return schedule(random);
  }

  const std::string &fault() const { return fault_; }

  // Called inside a fiber -------------------------------------------------------------------------------------

  static Lane &lane() { return *current(); }
  Index3 index() const { return index_; }
  const Shape &shape() const { return shape_; }

  void meet(Lane &lane, const Collective &collective, Where where) {
    lane.collective = &collective;
    wait(lane, Lane::kInWarp, where);
  }
  void meet_block(Lane &lane, Where where) { wait(lane, Lane::kAtBarrier, where); }

  void read_shared(Lane &lane, uint32_t address, unsigned bytes, Where where) {
    count(lane, where);
    if (!shared.read(address, bytes, stamp(lane, where))) fail(lane, where, shared.fault());
  }
  void write_shared(Lane &lane, uint32_t address, const void *value, unsigned bytes, Where where) {
    count(lane, where);
    if (!shared.write(address, value, bytes, stamp(lane, where))) fail(lane, where, shared.fault());
  }
  void read_global(Lane &lane, const void *data, unsigned bytes, unsigned alignment, Where where) {
    count(lane, where);
    if (!lane.may_touch) fail(lane, where, kTooEarly);
    const std::string fault = global_->read({data, bytes, alignment, number_, stamp(lane, where), sites_});
    if (!fault.empty()) fail(lane, where, fault);
  }
  void write_global(Lane &lane, void *data, const void *value, unsigned bytes, unsigned alignment, Where where) {
    count(lane, where);
    if (!lane.may_touch) fail(lane, where, kTooEarly);
    const std::string fault = global_->write({data, bytes, alignment, number_, stamp(lane, where), sites_}, value);
    if (!fault.empty()) fail(lane, where, fault);
  }

  void issue(Lane &lane, const Copy &copy, Where where) {
    if (copy.valid) read_global(lane, copy.source, copy.valid, copy.bytes, where);
    if (!shared.depart(copy.destination, copy.bytes, stamp(lane, where))) fail(lane, where, shared.fault());
    if (early_copies_) move(copy);
    lane.copies.push_back(copy);
  }
  void land(Lane &lane, size_t may_fly, Where where) {
    for (; lane.groups.size() > may_fly; lane.groups.erase(lane.groups.begin()))
      for (const Copy &copy : lane.groups.front()) {
        if (!early_copies_) move(copy);
        shared.land(copy.destination, copy.bytes, stamp(lane, where));
      }
  }

  // Called while a collective is executed ---------------------------------------------------------------------

  // Every lane of the warp is here: what they wrote so far, they all see.
  void order_warp(const Lane &lane) {
    if (++warp_intervals_[lane.thread / kLanes] == Stamp::kWarpIntervals)
      fault_in(lane, "more __syncwarp between two barriers than the emulator can tell apart");
  }
  void fault_in(const Lane &lane, const std::string &what) {
    if (fault_.empty()) fault_ = describe(lane, lane.where, what);
  }
  Stamp stamp(const Lane &lane, Where where) {
    return Stamp(lane.thread, block_interval_, warp_intervals_[lane.thread / kLanes], sites_.number(where));
  }

  SharedMemory shared{sites_};
  uint64_t conflicts = 0;  // Shared-memory wavefronts of ldmatrix beyond the four that it needs.
  uint64_t fetches = 0;    // ldmatrix executed.

 private:
  static Lane *&current() {
    static thread_local Lane *lane __attribute__((tls_model("initial-exec"))) = nullptr;
    return lane;
  }

  static void enter() {
    const Kernel &kernel = *lane().block->kernel_;
    kernel.call(kernel.arguments);
  }

  void wait(Lane &lane, Lane::State state, Where where) {
    lane.state = state, lane.where = where, lane.accesses = 0;
    lane.fiber.leave();
  }

  void count(Lane &lane, Where where) {
    if (++lane.accesses > kPatience)
      fail(lane, where, "spins: it touches memory for ever without meeting other threads");
  }

  [[noreturn]] void fail(Lane &lane, Where where, const std::string &what) {
    fault_ = describe(lane, where, what);
    lane.fiber.leave();
    std::abort();  // After a fault no fiber is resumed.
  }

  std::string describe(const Lane &lane, Where where, const std::string &what) const {
    return format("thread %u of block (%u, %u, %u) at %s: ", lane.thread, index_.x, index_.y, index_.z,
                  where.text().c_str()) + what;
  }

  void move(const Copy &copy) {
    std::memcpy(shared.at(copy.destination), copy.source, copy.valid);
    std::memset(shared.at(copy.destination) + copy.valid, 0, copy.bytes - copy.valid);
  }

  Lane &at(int warp, int lane) { return *lanes_[static_cast<size_t>(warp * kLanes + lane)]; }

  // Who runs when: schedule.h.
  void begin_lanes();
  bool schedule(Random &random);
  bool can_run(int warp);
  bool advance(int warp, bool backwards);
  bool execute(int warp);
  bool diverged(const Lane &one, const Lane &other);
  bool all_done();
  bool release();
  bool deadlock(const Lane &waiting, const std::string &what);

  Sites sites_;
  Shape shape_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<unsigned> warp_intervals_;
  int warps_ = 0;
  uint32_t number_ = 0;
  Index3 index_;
  unsigned block_interval_ = 1;
  bool early_copies_ = false;  // Whether cp.async has its data in place at once, or only when it is waited for.
  const Kernel *kernel_ = nullptr;
  GlobalMemory *global_ = nullptr;
  std::string fault_;
};

}  // namespace emulator
}  // namespace simt
