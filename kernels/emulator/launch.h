// A grid of blocks, spread over CPU threads. What a launch found wrong is kept for the host to read.
//
//   LOOP_THREADS              CPU threads; default: one a core
//   LOOP_EMULATOR_SEED        replays the schedule of a launch that faulted (the message names the seed)
//   LOOP_EMULATOR_LAUNCHES    a file to which each launch adds a line of JSON: kernel, grid, block, shared memory
//   LOOP_EMULATOR_DRY         with it, launches are written down and not run
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "collectives.h"
#include "products.h"
#include "schedule.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

inline GlobalMemory &global_memory() {
  static thread_local GlobalMemory memory;
  return memory;
}
// What went wrong with this thread's last launch; empty when nothing did.
inline std::string &launch_fault() {
  static thread_local std::string fault;
  return fault;
}
// The seed of the schedule in which that was met; 0 where none was drawn.
inline uint64_t &launch_seed() {
  static thread_local uint64_t seed = 0;
  return seed;
}

// Blocks are expensive to make (a stack for every thread): those not in use wait here.
class Pool {
 public:
  std::unique_ptr<Block> take() {
    const std::lock_guard<std::mutex> held(mutex_);
    if (idle_.empty()) return std::make_unique<Block>();
    std::unique_ptr<Block> block = std::move(idle_.back());
    idle_.pop_back();
    return block;
  }
  void give_back(std::unique_ptr<Block> block) {
    const std::lock_guard<std::mutex> held(mutex_);
    idle_.push_back(std::move(block));
  }
  static Pool &shared() {
    static Pool pool;
    return pool;
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
};

inline void append(const char *path, const std::string &line) {
  FILE *file = std::fopen(path, "a");
  if (!file) return;
  std::fwrite(line.data(), 1, line.size(), file);
  std::fclose(file);
}

class Launch {
 public:
  Launch(const void *kernel, const Shape &shape) : kernel_(kernel), shape_(shape) {}

  // Run all blocks, unless the launch itself is impossible; true when nothing was wrong.
  bool run(const Kernel &kernel) {
    fault_ = impossible();
    if (fault_.empty() && !std::getenv("LOOP_EMULATOR_DRY")) run_blocks(kernel);
    if (const char *path = std::getenv("LOOP_EMULATOR_LAUNCHES")) write_down(path);
    launch_fault() = fault_, launch_seed() = fault_.empty() ? 0 : seed_;
    return fault_.empty();
  }

 private:
  static constexpr uint64_t kMostThreads = 1024, kMostShared = 232448;  // Of a block; shared memory: an H200's.
  static constexpr const char *kNoMemory = "no memory for the stacks of a block's threads, or for who wrote what";
  static constexpr uint64_t kMostFibers = 16384;  // At a time: Linux maps 65530 pieces of memory, two for a stack.

  std::string impossible() const {
    const Index3 grid = shape_.grid, block = shape_.block;
    if (!shape_.threads() || !shape_.blocks()) return "launched with an empty grid or block";
    if (block.x > kMostThreads || block.y > kMostThreads || block.z > 64 || shape_.threads() > kMostThreads)
      return format("launched with blocks of %u x %u x %u threads, a GPU takes 1024 in all and 64 along z", block.x,
                    block.y, block.z);
    if (grid.y > 65535 || grid.z > 65535) return "launched with more than 65535 blocks along y or z";
    if (shape_.blocks() > Writers::kMostBlocks) return "launched with more blocks than the emulator can count";
    if (shape_.shared_bytes > kMostShared)
      return format("asks for %zu bytes of shared memory a block", shape_.shared_bytes);
    return {};
  }

  void run_blocks(const Kernel &kernel) {
    seed_ = choose_seed();
    GlobalMemory &global = global_memory();
    const auto work = [&] { take_blocks(kernel, global); };
    std::vector<std::thread> helpers;
    try {
      global.begin_launch();
      for (uint64_t i = 1; i < cpu_threads(); i++) helpers.emplace_back(work);
    } catch (const std::bad_alloc &) {
      report(0, kNoMemory);
    } catch (const std::system_error &) {
      // The system has no more threads: those that there are do it.
    }
    work();
    for (std::thread &helper : helpers) helper.join();
  }

  // What every CPU thread does: one block after the other, until there are none or one is at fault.
  void take_blocks(const Kernel &kernel, GlobalMemory &global) {
    std::unique_ptr<Block> block = Pool::shared().take();
    try {
      block->prepare(shape_);
      for (uint64_t i; !stop_ && (i = next_++) < shape_.blocks();)
        if (!block->run(static_cast<uint32_t>(i), seed_, kernel, global))
          report(i, block->fault() + format(" (seed %llu)", static_cast<unsigned long long>(seed_)));
    } catch (const std::bad_alloc &) {
      report(0, kNoMemory);
    }
    add(*block);
    Pool::shared().give_back(std::move(block));
  }

  static uint64_t choose_seed() {
    if (const char *given = std::getenv("LOOP_EMULATOR_SEED")) return std::strtoull(given, nullptr, 10);
    uint32_t drawn = 0;
    return getentropy(&drawn, sizeof drawn) == 0 ? drawn : 0;
  }

  uint64_t cpu_threads() const {
    const char *given = std::getenv("LOOP_THREADS");
    const int wanted = given ? std::atoi(given) : static_cast<int>(std::thread::hardware_concurrency());
    const uint64_t padded = (shape_.threads() + kLanes - 1) / kLanes * kLanes;
    return std::min({static_cast<uint64_t>(std::max(wanted, 1)), shape_.blocks(), kMostFibers / padded});
  }

  // The fault of the first block stands, whichever is met first: blocks are begun in order and run to their end, so
  // that a seed gives the same words again on any number of CPU threads.
  void report(uint64_t block, const std::string &fault) {
    const std::lock_guard<std::mutex> held(mutex_);
    stop_ = true;
    if (!fault_.empty() && faulted_ <= block) return;
    fault_ = fault, faulted_ = block;
  }
  void add(const Block &block) {
    const std::lock_guard<std::mutex> held(mutex_);
    conflicts_ += block.conflicts, fetches_ += block.fetches;
  }

  void write_down(const char *path) const {
    Dl_info found;
    const char *name = dladdr(kernel_, &found) && found.dli_sname ? found.dli_sname : "unknown";
    const Index3 grid = shape_.grid, block = shape_.block;
    append(path, format("{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %zu, "
                        "\"shared_static\": 0, \"ldmatrix\": %llu, \"conflicts\": %llu}\n",
                        name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shape_.shared_bytes,
                        static_cast<unsigned long long>(fetches_), static_cast<unsigned long long>(conflicts_)));
  }

  const void *kernel_;
  Shape shape_;
  std::mutex mutex_;
  std::string fault_;
  uint64_t seed_ = 0;
  uint64_t faulted_ = 0;  // The block that did.
  std::atomic<uint64_t> next_{0};
  std::atomic<bool> stop_{false};
  uint64_t conflicts_ = 0, fetches_ = 0;
};

}  // namespace emulator
}  // namespace simt
