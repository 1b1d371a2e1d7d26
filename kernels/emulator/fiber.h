// A fiber: the stack and the registers of one CUDA thread, so that a CPU thread can leave it in the middle of a
// function and come back. On x86-64 a switch saves what the calling convention wants saved and nothing else: some 5 ns.
// Elsewhere, and with -DLOOP_PORTABLE_FIBERS, the C library switches: some 240 ns, for it saves signal masks too.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fault.h"

#if defined(__x86_64__) && !defined(LOOP_PORTABLE_FIBERS)
#define SIMT_OWN_SWITCH 1
#else
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define SIMT_ADDRESS_SANITIZER 1
#endif

namespace simt {
namespace emulator SIMT_PRIVATE {

#if defined(SIMT_OWN_SWITCH)
// Saves the registers that a callee has to keep, stores the stack pointer, takes over the other's. Ends in a jump: the
// processor would expect a return to where it was called from, and be wrong every time.
__attribute__((naked, noinline)) inline void swap_stacks(void ** /*from*/, void * /*to*/) {
  __asm__(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
      "popq %rcx\n jmp *%rcx\n");
}
constexpr int kSavedWords = 6;
#endif

#if defined(SIMT_ADDRESS_SANITIZER)
constexpr size_t kStackBytes = 512 << 10;  // Its red zones make frames several times as large.
#else
constexpr size_t kStackBytes = 128 << 10;
#endif
constexpr size_t kGuardBytes = 512 << 10;  // No frame is larger than a GPU's local memory of a thread.
constexpr size_t kPoisonedBytes = 4 << 10;
// Stacks begin at different places in their pages: else all lanes' variables would fight for the same cache lines.
constexpr size_t kColours = 128, kColourBytes = 128;

class Fiber {
 public:
  using Entry = void (*)();

  // Memory for a stack, and below it some that nobody may touch: an overflow stops at once.
  Fiber() {
    static std::atomic<size_t> made{0};
    top_bytes_ = kStackBytes - made++ % kColours * kColourBytes;
    void *memory = mmap(nullptr, kGuardBytes + kStackBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    memory_ = static_cast<char *>(memory);
    if (mprotect(stack(), kStackBytes, PROT_READ | PROT_WRITE) == 0) return;
    munmap(memory_, kGuardBytes + kStackBytes);
    throw std::bad_alloc();
  }
  ~Fiber() { munmap(memory_, kGuardBytes + kStackBytes); }
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // Begin at `entry` when next resumed. What was on the stack is forgotten; no destructor runs. Where the kernel's
  // own variables will lie there are NaN: one that is used before it is set shows.
  void reset(Entry entry) {
    entry_ = entry;
#if defined(SIMT_ADDRESS_SANITIZER)
    __asan_unpoison_memory_region(stack(), kStackBytes);
#endif
    std::memset(stack() + top_bytes_ - kPoisonedBytes, 0xff, kPoisonedBytes);
#if defined(SIMT_OWN_SWITCH)
    void **top = reinterpret_cast<void **>(stack() + top_bytes_);
    *--top = nullptr;  // Keeps the stack aligned as after a call.
    *--top = reinterpret_cast<void *>(&Fiber::begin);
    for (int i = 0; i < kSavedWords; i++) *--top = nullptr;
    position_ = top;
#else
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack();
    own_.uc_stack.ss_size = top_bytes_;
    own_.uc_link = nullptr;
    makecontext(&own_, &Fiber::begin, 0);
#endif
  }

  // Run until the fiber leaves. Called by the scheduler.
  void resume() {
    current() = this;
#if defined(SIMT_ADDRESS_SANITIZER)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, stack(), kStackBytes);
#endif
#if defined(SIMT_OWN_SWITCH)
    swap_stacks(&scheduler_, position_);
#else
    swapcontext(&scheduler_, &own_);
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  // Back to the scheduler. Called inside the fiber; returns when it is resumed.
  void leave() {
#if defined(SIMT_ADDRESS_SANITIZER)
    void *fake;
    __sanitizer_start_switch_fiber(&fake, scheduler_stack_, scheduler_bytes_);
#endif
#if defined(SIMT_OWN_SWITCH)
    swap_stacks(&position_, scheduler_);
#else
    swapcontext(&own_, &scheduler_);
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(fake, &scheduler_stack_, &scheduler_bytes_);
#endif
  }

 private:
  static Fiber *&current() {
    static thread_local Fiber *fiber __attribute__((tls_model("initial-exec"))) = nullptr;
    return fiber;
  }

  static void begin() {
    Fiber *self = current();
#if defined(SIMT_ADDRESS_SANITIZER)
    __sanitizer_finish_switch_fiber(nullptr, &self->scheduler_stack_, &self->scheduler_bytes_);
#endif
    self->entry_();
    self->leave();
    std::abort();  // A fiber that has ended is never resumed.
  }

  char *stack() const { return memory_ + kGuardBytes; }

  char *memory_;
  size_t top_bytes_;  // From the lowest byte of the stack to where it begins.
  Entry entry_ = nullptr;
#if defined(SIMT_OWN_SWITCH)
  void *position_ = nullptr, *scheduler_ = nullptr;
#else
  ucontext_t own_, scheduler_;
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
  const void *scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
#endif
};

}  // namespace emulator
}  // namespace simt
