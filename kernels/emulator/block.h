// One block of threads on one CPU thread: a fiber a CUDA thread, and the scheduler that runs them.
//
// A warp runs until all its lanes wait for the same thing: each other (shuffle, ldmatrix, mma, __syncwarp) or the
// block (__syncthreads). Which warp goes on next is drawn by a seed, and greedily: the one that runs mostly keeps
// running, far ahead of the others, for that is the order in which a missing barrier shows in the values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fault.h"
#include "fiber.h"
#include "global_memory.h"
#include "shared_memory.h"

namespace simt::emulator {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

constexpr int kLanes = 32;
constexpr int kMaxThreads = 1024;
constexpr uint64_t kPatience = 200'000'000;  // Memory accesses of one thread between meetings: more is a spin.

class Block;
struct Lane;

// Something that all lanes of a warp do together. Static tables: lanes meet when they name the same one.
struct Collective {
  const char *name;
  void (*execute)(Block &, Lane *const *lanes);
};

// A copy by cp.async that has been issued.
struct Copy {
  uint32_t destination;
  const void *source;
  unsigned bytes;
  unsigned valid;  // Bytes that are read; the rest becomes zero.
};

struct Lane {
  enum State { kReady, kInWarp, kAtBarrier, kDone };

  Fiber fiber;
  Block *block = nullptr;
  unsigned thread = 0;
  Index3 index;
  State state = kReady;
  const Collective *collective = nullptr;
  Where where{"", 0};
  uint64_t accesses = 0;
  std::vector<std::vector<Copy>> groups;  // Committed, oldest first.
  std::vector<Copy> copies;               // Not yet committed.

  // Operands of the collective.
  uint32_t address = 0;
  uint32_t *registers = nullptr;
  const uint32_t *a = nullptr;
  uint32_t b[2] = {0, 0};
  float *accumulators = nullptr;
  uint32_t value = 0;
  int argument = 0;
};

// What a launch is told of its shape.
struct Shape {
  Index3 grid, block;
  size_t shared_bytes = 0;
  unsigned threads() const { return block.x * block.y * block.z; }
  uint64_t blocks() const { return uint64_t(grid.x) * grid.y * grid.z; }
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
  // Fibers for the largest block so far are kept.
  void prepare(const Shape &shape) {
    shape_ = shape;
    while (lanes_.size() < (shape.threads() + kLanes - 1) / kLanes * kLanes) lanes_.push_back(std::make_unique<Lane>());
  }

  // Run one block to its end; false when it faulted, then `fault` says how.
  bool run(uint32_t number, uint64_t seed, const std::function<void()> &kernel, GlobalMemory &global) {
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

  // Called inside a fiber -------------------------------------------------------------------------------------

  static Lane &lane() { return *current(); }
  Index3 index() const { return index_; }
  const Shape &shape() const { return shape_; }

  void meet(Lane &lane, const Collective &collective, Where where) {
    lane.collective = &collective;
    wait(lane, Lane::kInWarp, where);
  }
  void meet_block(Lane &lane, Where where) { wait(lane, Lane::kAtBarrier, where); }

  [[noreturn]] void fail(Lane &lane, Where where, const std::string &what) {
    fault_ = describe(lane, where, what);
    lane.fiber.leave();
    std::abort();  // After a fault no fiber is resumed.
  }

  void read_shared(Lane &lane, uint32_t address, unsigned bytes, Where where) {
    count(lane, where);
    if (!shared.read(address, bytes, stamp(lane, where))) fail(lane, where, shared.fault());
  }
  void write_shared(Lane &lane, uint32_t address, unsigned bytes, Where where) {
    count(lane, where);
    if (!shared.write(address, bytes, stamp(lane, where))) fail(lane, where, shared.fault());
  }
  void read_global(Lane &lane, const void *data, unsigned bytes, unsigned alignment, Where where) {
    count(lane, where);
    if (std::string fault = global_->read(data, bytes, alignment, number_); !fault.empty()) fail(lane, where, fault);
  }
  void write_global(Lane &lane, const void *data, unsigned bytes, Where where) {
    count(lane, where);
    if (std::string fault = global_->write(data, bytes, number_); !fault.empty()) fail(lane, where, fault);
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

  // ------------------------------------------------------------------------------------------------------------

  const std::string &fault() const { return fault_; }
  bool faulted() const { return !fault_.empty(); }
  std::string describe(const Lane &lane, Where where, const std::string &what) const {
    return format("thread %u of block (%u, %u, %u) at %s: ", lane.thread, index_.x, index_.y, index_.z,
                  where.text().c_str()) + what;
  }
  // Every lane of the warp is here: what they wrote so far, they all see.
  void order_warp(const Lane &lane) { warp_intervals_[lane.thread / kLanes]++; }

  // The same fault as `fail`, found while a collective is executed.
  void fault_in(const Lane &lane, const std::string &what) {
    if (!faulted()) fault_ = describe(lane, lane.where, what);
  }

  Stamp stamp(const Lane &lane, Where where) {
    return Stamp(lane.thread, block_interval_, warp_intervals_[lane.thread / kLanes], shared.site(where));
  }

  SharedMemory shared;
  uint64_t conflicts = 0;  // Shared-memory wavefronts of ldmatrix beyond the four that it needs.
  uint64_t fetches = 0;    // ldmatrix executed.

 private:
  static Lane *&current() {
    static thread_local Lane *lane __attribute__((tls_model("initial-exec"))) = nullptr;
    return lane;
  }

  static void enter() { (*lane().block->kernel_)(); }

  void begin_lanes() {
    const unsigned threads = shape_.threads();
    warps_ = static_cast<int>((threads + kLanes - 1) / kLanes);
    warp_intervals_.assign(static_cast<size_t>(warps_), 0);
    for (unsigned i = 0; i < static_cast<unsigned>(warps_) * kLanes; i++) {
      Lane &lane = *lanes_[i];
      lane.block = this, lane.thread = i, lane.accesses = 0;
      lane.index = {i % shape_.block.x, i / shape_.block.x % shape_.block.y, i / shape_.block.x / shape_.block.y};
      lane.state = i < threads ? Lane::kReady : Lane::kDone;
      lane.groups.clear(), lane.copies.clear();
      if (i < threads) lane.fiber.reset(&Block::enter);
    }
  }

  Lane &at(int warp, int lane) { return *lanes_[static_cast<size_t>(warp * kLanes + lane)]; }

  void wait(Lane &lane, Lane::State state, Where where) {
    lane.state = state, lane.where = where, lane.accesses = 0;
    lane.fiber.leave();
  }

  void count(Lane &lane, Where where) {
    if (++lane.accesses > kPatience) fail(lane, where, "spins: it touches memory for ever without meeting other threads");
  }

  void move(const Copy &copy) {
    std::memcpy(shared.data() + copy.destination, copy.source, copy.valid);
    std::memset(shared.data() + copy.destination + copy.valid, 0, copy.bytes - copy.valid);
  }

  bool schedule(Random &random) {
    std::vector<int> runnable;
    for (;;) {
      runnable.clear();
      for (int warp = 0; warp < warps_; warp++)
        if (can_run(warp)) runnable.push_back(warp);
      if (runnable.empty()) {
        if (all(Lane::kDone, Lane::kDone)) return true;
        if (!release()) return false;
        continue;
      }
      const int warp = runnable[random.below(static_cast<unsigned>(runnable.size()))];
      do {
        if (!advance(warp, random.below(2))) return false;
      } while (can_run(warp) && random.below(64));
    }
  }

  bool can_run(int warp) {
    for (int i = 0; i < kLanes; i++)
      if (at(warp, i).state == Lane::kReady) return true;
    return false;
  }

  // Run every lane of a warp to where it waits, then do what they met for.
  bool advance(int warp, bool backwards) {
    for (int i = 0; i < kLanes; i++) {
      Lane &lane = at(warp, backwards ? kLanes - 1 - i : i);
      if (lane.state != Lane::kReady) continue;
      current() = &lane;
      lane.state = Lane::kDone;  // Unless it waits for something.
      lane.fiber.resume();
      if (faulted()) return false;
    }
    return execute(warp);
  }

  bool execute(int warp) {
    Lane *meeting = nullptr;
    for (int i = 0; i < kLanes && !meeting; i++)
      if (at(warp, i).state == Lane::kInWarp) meeting = &at(warp, i);
    if (!meeting) return true;
    for (int i = 0; i < kLanes; i++) {
      const Lane &lane = at(warp, i);
      if (lane.state != Lane::kInWarp || lane.collective != meeting->collective || lane.where != meeting->where)
        return diverged(*meeting, lane);
    }
    Lane *lanes[kLanes];
    for (int i = 0; i < kLanes; i++) {
      lanes[i] = &at(warp, i);
      lanes[i]->state = Lane::kReady;
    }
    meeting->collective->execute(*this, lanes);
    return !faulted();
  }

  bool diverged(const Lane &one, const Lane &other) {
    std::string does = other.state == Lane::kDone      ? "has returned"
                       : other.state == Lane::kAtBarrier ? "waits in __syncthreads at " + other.where.text()
                                                         : format("is in %s at %s", other.collective->name,
                                                                  other.where.text().c_str());
    fault_ = describe(one, one.where, format("divergence: all lanes of the warp have to execute %s together, thread %u ",
                                             one.collective->name, other.thread) + does);
    return false;
  }

  bool all(Lane::State one, Lane::State other) {
    for (int warp = 0; warp < warps_; warp++)
      for (int i = 0; i < kLanes; i++)
        if (at(warp, i).state != one && at(warp, i).state != other) return false;
    return true;
  }

  // Nobody can run: open the barrier when everybody is there.
  bool release() {
    const Lane *first = nullptr, *returned = nullptr;
    for (unsigned i = 0; i < shape_.threads(); i++) {
      const Lane &lane = *lanes_[i];
      if (lane.state == Lane::kDone) returned = &lane;
      if (lane.state == Lane::kAtBarrier && first && lane.where != first->where) return barriers_differ(*first, lane);
      if (lane.state == Lane::kAtBarrier && !first) first = &lane;
    }
    if (returned) {
      fault_ = describe(*first, first->where,
                        format("deadlock: waits in __syncthreads for thread %u, which has returned", returned->thread));
      return false;
    }
    if (++block_interval_ >= SharedMemory::kIntervals) {
      fault_ = describe(*first, first->where, "more barriers than the emulator can tell apart");
      return false;
    }
    warp_intervals_.assign(static_cast<size_t>(warps_), 0);
    for (unsigned i = 0; i < shape_.threads(); i++) lanes_[i]->state = Lane::kReady;
    return true;
  }

  bool barriers_differ(const Lane &one, const Lane &other) {
    fault_ = describe(one, one.where, format("deadlock: waits in __syncthreads while thread %u waits in another, at %s",
                                             other.thread, other.where.text().c_str()));
    return false;
  }

  Shape shape_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::vector<unsigned> warp_intervals_;
  int warps_ = 0;
  uint32_t number_ = 0;
  Index3 index_;
  unsigned block_interval_ = 1;
  bool early_copies_ = false;
  const std::function<void()> *kernel_ = nullptr;
  GlobalMemory *global_ = nullptr;
  std::string fault_;
};

}  // namespace simt::emulator
