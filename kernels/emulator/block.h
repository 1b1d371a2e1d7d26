// One block of threads on one CPU thread: what its threads may do, and what was wrong with it.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "async.h"
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
    begin_async(seed);
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
    lane.writes++;
    if (shared.pieces.used()) note_write(lane, address, where);
  }
  void read_global(Lane &lane, const void *data, unsigned bytes, unsigned alignment, Where where) {
    count(lane, where);
    if (!lane.may_touch) fail(lane, where, kTooEarly);
    const Stamp now = stamp(lane, where);
    const std::string fault = global_->read({data, bytes, alignment, number_, now, sites_, &clock(lane)});
    if (!fault.empty()) fail(lane, where, fault);
  }
  void write_global(Lane &lane, void *data, const void *value, unsigned bytes, unsigned alignment, Where where) {
    count(lane, where);
    if (!lane.may_touch) fail(lane, where, kTooEarly);
    const Stamp now = stamp(lane, where);
    const std::string fault = global_->write({data, bytes, alignment, number_, now, sites_, &clock(lane)}, value);
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

  // mbarriers, named barriers, copies by tensor maps, registers: engines.h.
  void make_mbarrier(Lane &lane, uint32_t address, unsigned arrivals, Where where);
  void arrive(Lane &lane, uint32_t address, unsigned bytes, Where where);
  void wait_mbarrier(Lane &lane, uint32_t address, unsigned parity, Where where);
  void arrive_named(Lane &lane, unsigned barrier, unsigned threads, bool stay, Where where);
  void copy_tensor(Lane &lane, const TensorMap &map, uint32_t destination, uint32_t mbarrier, const int (&at)[4],
                   Where where);
  void use_sums(Lane &lane, const float *registers, Where where);

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
    shared.clock = &clock(lane);
    touched_[lane.thread / kLanes] = true;
    return Stamp(lane.thread, block_interval_, warp_intervals_[lane.thread / kLanes], sites_.number(where));
  }

  unsigned registers_of(const Lane &lane) const { return products_[lane.thread / kLanes].registers; }

  // Products of a warp group and what belongs to them: products.h.
  void fence_products(Lane *const *lanes);
  void commit_products(Lane *const *lanes);
  void wait_products(Lane *const *lanes);
  void multiply(Lane *const *lanes, bool half, bool from_registers);
  void ask_registers(Lane *const *lanes, bool more);

  SharedMemory shared{sites_};
  uint64_t conflicts = 0;  // Shared-memory wavefronts of ldmatrix beyond the four that it needs.
  uint64_t fetches = 0;    // ldmatrix executed.

 private:
  Clock &clock(const Lane &lane) { return clocks_[lane.thread / kLanes]; }

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

  // engines.h.
  void begin_async(uint64_t seed);
  void note_write(const Lane &lane, uint32_t address, Where where);
  const Clock &release_of(const Lane &lane);
  Mbarrier *find_mbarrier(uint32_t address);
  Mbarrier &mbarrier_of(Lane &lane, uint32_t address, Where where);
  void end_phase(Mbarrier &barrier);
  void land_copy(size_t which);
  void maybe_land(Random &random);
  void wake(Lane::State state, unsigned barrier);
  uint32_t origin_of(const TensorMap &map, int head, int batch);
  std::string waits_for(const Lane &lane);
  // products.h.
  bool fetch_operand(const Lane &lane, const char *name, uint64_t layout, int rows, bool turned, float (*to_float)(uint16_t),
                     float *values);
  bool see_piece(const Lane &lane, const char *name, uint32_t address, unsigned first_warp);
  bool execute_group(int warp);

  // Who runs when: schedule.h.
  void begin_lanes();
  bool schedule(Random &random);
  bool can_run(int warp);
  bool advance(int warp, bool backwards);
  bool execute(int warp);
  bool diverged(const Lane &one, const Lane &other);
  bool all_done();
  bool release();
  bool stuck();
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

  std::vector<Clock> clocks_;  // Of each warp.
  std::vector<char> touched_;  // Whether a warp has touched memory since it last let others go on.
  std::vector<Mbarrier> mbarriers_;
  std::vector<NamedBarrier> named_;
  std::vector<TensorCopy> flying_;
  std::vector<WarpProducts> products_;
  struct Origin {
    const char *data;
    int head, batch;
  };
  std::vector<Origin> origins_;
  std::vector<float> operands_;  // Of one product.
  unsigned free_registers_ = 0;
  enum Landing { kAtOnce, kLate, kAnyTime } landing_ = kAtOnce;
};

}  // namespace emulator
}  // namespace simt
