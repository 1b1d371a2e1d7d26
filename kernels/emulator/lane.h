// One CUDA thread as the emulator sees it, and what it may do together with the rest of its warp.
#pragma once

#include <cstdint>
#include <vector>

#include "fault.h"
#include "fiber.h"

namespace simt {
namespace emulator SIMT_PRIVATE {

constexpr int kLanes = 32;

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// What a launch is told of its shape.
struct Shape {
  Index3 grid, block;
  size_t shared_bytes = 0;
  bool early = false;  // It may have begun before the kernel before it ended.
  uint64_t threads() const { return uint64_t(block.x) * block.y * block.z; }
  uint64_t blocks() const { return uint64_t(grid.x) * grid.y * grid.z; }
};

class Block;
struct Lane;

// Something that the lanes of a warp do together. Static tables: lanes meet when they name the same one.
struct Collective {
  const char *name;
  void (*execute)(Block &, Lane *const *lanes);  // Of 32 lanes; null where one has returned.
  // All 32 lanes at one place in the source, as `.sync.aligned` wants it. Otherwise lanes may be at different places
  // and those that have returned are not waited for.
  bool aligned;
  bool group = false;  // Of the four warps of a warp group: 128 lanes.
};

// A copy by cp.async that has been issued.
struct Copy {
  uint32_t destination;
  const void *source;
  unsigned bytes;
  unsigned valid;  // Bytes that are read; the rest becomes zero.
};

struct Lane {
  enum State { kReady, kInWarp, kAtBarrier, kAtMbarrier, kAtNamed, kForRegisters, kDone };

  Fiber fiber;
  Block *block = nullptr;
  unsigned thread = 0;
  Index3 index;
  State state = kReady;
  bool may_touch = true;  // Global memory: not before it has waited for the kernel before.
  const Collective *collective = nullptr;
  Where where{"", 0};
  uint64_t accesses = 0;                  // Of memory, since it last met others.
  std::vector<std::vector<Copy>> groups;  // Committed, oldest first.
  std::vector<Copy> copies;               // Not yet committed.

  // Operands of the collective.
  uint32_t address = 0;
  uint32_t *registers = nullptr;
  const uint32_t *a = nullptr;
  uint32_t b[2] = {0, 0};
  float *accumulators = nullptr;
  uint32_t value = 0;
  int source = 0;
  uint64_t operands[2] = {0, 0};  // Descriptors of wgmma.
  unsigned columns = 0;
  bool add = false;

  uint32_t writes = 0, fenced = 0;  // Of shared memory, in all and up to its last fence of the async proxy.
  unsigned barrier = 0, parity = 0; // What it waits for.

  bool sleeps() const { return state == kAtMbarrier || state == kAtNamed || state == kForRegisters; }
};

}  // namespace emulator
}  // namespace simt
