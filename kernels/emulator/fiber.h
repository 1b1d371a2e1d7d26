// A fiber: the stack and the registers of one CUDA thread, so that a CPU thread can leave it in the middle of a
// function and come back. A switch saves what the calling convention wants saved and nothing else: about 2 ns.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#if !defined(__x86_64__) && !defined(__aarch64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define SIMT_ADDRESS_SANITIZER 1
#endif

namespace simt::emulator {

#if defined(__x86_64__)
// Saves the registers that a callee has to keep, stores the stack pointer, takes over the other's.
__attribute__((naked, noinline)) inline void swap_stacks(void ** /*from*/, void * /*to*/) {
  __asm__(
      "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
      "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
      "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n ret\n");
}
constexpr int kSavedWords = 6;
#elif defined(__aarch64__)
__attribute__((naked, noinline)) inline void swap_stacks(void ** /*from*/, void * /*to*/) {
  __asm__(
      "sub sp, sp, #160\n"
      "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n stp x25, x26, [sp, #48]\n"
      "stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
      "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n stp d14, d15, [sp, #144]\n"
      "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
      "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n ldp x25, x26, [sp, #48]\n"
      "ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
      "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n ldp d14, d15, [sp, #144]\n"
      "add sp, sp, #160\n ret\n");
}
constexpr int kSavedWords = 20;
#endif

#if defined(SIMT_ADDRESS_SANITIZER)
constexpr size_t kStackBytes = 512 << 10;  // Its red zones make frames several times as large.
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

class Fiber {
 public:
  using Entry = void (*)();

  // Memory for a stack, with a page below it that nobody may touch: an overflow stops at once.
  Fiber() {
    page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void *memory = mmap(nullptr, kStackBytes + page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, page_, PROT_NONE);
    memory_ = static_cast<char *>(memory);
  }
  ~Fiber() { munmap(memory_, kStackBytes + page_); }
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;

  // Begin at `entry` when next resumed. What was on the stack is forgotten; no destructor runs.
  void reset(Entry entry) {
    entry_ = entry;
#if defined(__x86_64__)
    void **top = reinterpret_cast<void **>(stack() + kStackBytes);
    *--top = nullptr;  // Keeps the stack aligned as after a call.
    *--top = reinterpret_cast<void *>(&Fiber::begin);
    for (int i = 0; i < kSavedWords; i++) *--top = nullptr;
    position_ = top;
#elif defined(__aarch64__)
    void **top = reinterpret_cast<void **>(stack() + kStackBytes) - kSavedWords;
    for (int i = 0; i < kSavedWords; i++) top[i] = nullptr;
    top[11] = reinterpret_cast<void *>(&Fiber::begin);
    position_ = top;
#else
    getcontext(&own_);
    own_.uc_stack.ss_sp = stack();
    own_.uc_stack.ss_size = kStackBytes;
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
#if defined(__x86_64__) || defined(__aarch64__)
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
#if defined(__x86_64__) || defined(__aarch64__)
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
    static thread_local Fiber *fiber = nullptr;
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

  char *stack() const { return memory_ + page_; }

  char *memory_;
  size_t page_;
  Entry entry_ = nullptr;
#if defined(__x86_64__) || defined(__aarch64__)
  void *position_ = nullptr, *scheduler_ = nullptr;
#else
  ucontext_t own_, scheduler_;
#endif
#if defined(SIMT_ADDRESS_SANITIZER)
  const void *scheduler_stack_ = nullptr;
  size_t scheduler_bytes_ = 0;
#endif
};

}  // namespace simt::emulator
