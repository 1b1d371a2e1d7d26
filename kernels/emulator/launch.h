// A grid of blocks, spread over CPU threads. What a launch found wrong is kept for the host to read.
//
//   LOOP_THREADS              CPU threads; default: one a core
//   LOOP_EMULATOR_SEED        replays the schedule of a launch that faulted (the message names the seed)
//   LOOP_EMULATOR_LAUNCHES    a file to which each launch adds a line of JSON: kernel, grid, block, shared memory
//   LOOP_EMULATOR_DRY         with it, launches are written down and not run
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "block.h"
#include "collectives.h"

namespace simt::emulator {

inline GlobalMemory &global_memory() {
  static thread_local GlobalMemory memory;
  return memory;
}
// What went wrong with this thread's last launch; empty when nothing did.
inline std::string &launch_fault() {
  static thread_local std::string fault;
  return fault;
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

class Launch {
 public:
  Launch(const void *kernel, const Shape &shape) : kernel_(kernel), shape_(shape) {
    const char *given = std::getenv("LOOP_EMULATOR_SEED");
    seed_ = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  }

  // Run all blocks, unless the launch itself is impossible; true when nothing was wrong.
  bool run(const std::function<void()> &kernel) {
    fault_ = impossible();
    const bool dry = std::getenv("LOOP_EMULATOR_DRY");
    if (fault_.empty() && !dry) run_blocks(kernel);
    if (const char *path = std::getenv("LOOP_EMULATOR_LAUNCHES")) write_down(path);
    launch_fault() = fault_;
    return fault_.empty();
  }

 private:
  std::string impossible() const {
    const unsigned threads = shape_.threads();
    if (!threads || !shape_.blocks()) return "launched with an empty grid or block";
    if (threads > kMaxThreads) return format("launched with %u threads a block, a GPU takes %d", threads, kMaxThreads);
    if (shape_.grid.y > 65535 || shape_.grid.z > 65535) return "launched with more than 65535 blocks along y or z";
    if (shape_.blocks() > UINT32_MAX - 1) return "launched with more blocks than the emulator can count";
    if (shape_.shared_bytes > 232448) return format("asks for %zu bytes of shared memory a block", shape_.shared_bytes);
    return {};
  }

  void run_blocks(const std::function<void()> &kernel) {
    GlobalMemory &global = global_memory();
    global.begin_launch();
    std::atomic<uint64_t> next{0};
    std::atomic<bool> stop{false};
    const auto work = [&] {
      std::unique_ptr<Block> block = Pool::shared().take();
      block->prepare(shape_);
      block->conflicts = block->fetches = 0;
      for (uint64_t i; !stop && (i = next++) < shape_.blocks();)
        if (!block->run(static_cast<uint32_t>(i), seed_, kernel, global)) {
          stop = true;
          report(block->fault());
        }
      add(*block);
      Pool::shared().give_back(std::move(block));
    };
    std::vector<std::thread> helpers;
    for (uint64_t i = 1; i < std::min<uint64_t>(cpu_threads(), shape_.blocks()); i++) helpers.emplace_back(work);
    work();
    for (std::thread &helper : helpers) helper.join();
  }

  static unsigned cpu_threads() {
    const char *given = std::getenv("LOOP_THREADS");
    const int wanted = given ? std::atoi(given) : static_cast<int>(std::thread::hardware_concurrency());
    return static_cast<unsigned>(std::max(wanted, 1));
  }

  // The first fault stands.
  void report(const std::string &fault) {
    const std::lock_guard<std::mutex> held(mutex_);
    if (fault_.empty()) fault_ = fault + format(" (seed %llu)", static_cast<unsigned long long>(seed_));
  }
  void add(const Block &block) {
    const std::lock_guard<std::mutex> held(mutex_);
    conflicts_ += block.conflicts, fetches_ += block.fetches;
  }

  void write_down(const char *path) const {
    Dl_info found;
    const char *name = dladdr(kernel_, &found) && found.dli_sname ? found.dli_sname : "unknown";
    FILE *file = std::fopen(path, "a");
    if (!file) return;
    const Index3 grid = shape_.grid, block = shape_.block;
    std::fprintf(file,
                 "{\"kernel\": \"%s\", \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], \"shared\": %zu, "
                 "\"shared_static\": 0, \"ldmatrix\": %llu, \"conflicts\": %llu}\n",
                 name, grid.x, grid.y, grid.z, block.x, block.y, block.z, shape_.shared_bytes,
                 static_cast<unsigned long long>(fetches_), static_cast<unsigned long long>(conflicts_));
    std::fclose(file);
  }

  const void *kernel_;
  Shape shape_;
  uint64_t seed_;
  std::mutex mutex_;
  std::string fault_;
  uint64_t conflicts_ = 0, fetches_ = 0;
};

}  // namespace simt::emulator
