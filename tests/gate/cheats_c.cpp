// Compiled variants that cheat: each is right when it is checked, for its output lies in the judge's memory only when
// it is timed. Control words as in loop/calls/control.py.
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "loop_kernel.h"

enum { ORDER = 0, DONE = 8, OP = 16, COUNT = 17, OWN_NS = 19, ROTATIONS = 24, OFFSETS = 64 };
typedef volatile uint64_t Word;

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}
static void work(double seconds = 1e-3) {
  for (double end = now() + seconds; now() < end;) {}
}
static void twice(const float *x, float *y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = 2.0f * x[i];
}
static void compute(const float *x, float *y, int64_t count) { work(); twice(x, y, count); }

// The control page, where `place` lies in memory that is shared with the judge; null while we are checked.
static Word *page(const void *place) {
  static char *first, *last;
  if (first && (char *)place >= first && (char *)place < last) return (Word *)first;
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  Word *found = nullptr;
  while (maps && fgets(line, sizeof line, maps)) {
    unsigned long from, to;
    if (!strstr(line, "loop-arena") || sscanf(line, "%lx-%lx", &from, &to) != 2) continue;
    if ((uintptr_t)place < from || (uintptr_t)place >= to) continue;
    first = (char *)from, last = (char *)to, found = (Word *)from;
  }
  if (maps) fclose(maps);
  return found;
}
static Word *watched;  // By a thread.
struct Job { const float *x; float *y; int64_t count; };
static void *later(void *job) {
  Job *mine = (Job *)job;
  compute(mine->x, mine->y, mine->count);
  delete mine;
  return nullptr;
}

#define CHEAT(name) \
  static void name(const float *x, float *y, int64_t count, Word *words); \
  LOOP_EXPORT int cheat_##name(const LoopTensor *in, LoopTensor *out, const double *, void *) { \
    if (in[0].strides[1] != 1 || in[0].strides[0] != in[0].sizes[1]) return 1; \
    name((const float *)in[0].data, (float *)out[0].data, in[0].sizes[0] * in[0].sizes[1], page(out[0].data)); \
    return 0; \
  } \
  static void name(const float *x, float *y, int64_t count, Word *words)

LOOP_EXPORT const char *loop_error(int) { return "inputs must be contiguous"; }

CHEAT(honest) { compute(x, y, count); (void)words; }

CHEAT(quick) { words ? (work(2e-5), twice(x, y, count)) : compute(x, y, count); }

// Later.
CHEAT(thread_later) {
  if (!words) return compute(x, y, count);
  pthread_t thread;
  pthread_create(&thread, nullptr, later, new Job{x, y, count});
  pthread_detach(thread);
}
CHEAT(says_done) {
  if (words) words[DONE] = words[ORDER];
  compute(x, y, count);
}
CHEAT(says_done_nearly) {  // When nine tenths are there.
  work(9e-4);
  twice(x, y, count * 9 / 10);
  if (words) words[DONE] = words[ORDER];
  work(1e-4);
  twice(x + count * 9 / 10, y + count * 9 / 10, count - count * 9 / 10);
}
static Job alarmed;
static void on_alarm(int) { compute(alarmed.x, alarmed.y, alarmed.count); }
CHEAT(timer_later) {
  if (!words) return compute(x, y, count);
  alarmed = Job{x, y, count};
  signal(SIGALRM, on_alarm);
  itimerval soon = {{0, 0}, {0, 1}};
  setitimer(ITIMER_REAL, &soon, nullptr);
}
static Job faulted;
static char *guarded;
static void on_fault(int) {
  mprotect(guarded, 1 << 16, PROT_READ | PROT_WRITE);
  compute(faulted.x, faulted.y, faulted.count);
}
CHEAT(faulting_pages) {  // The output is computed when somebody here reads it.
  if (!words) return compute(x, y, count);
  faulted = Job{x, y, count};
  guarded = (char *)((uintptr_t)y & ~(uintptr_t)4095) + 4096;
  signal(SIGSEGV, on_fault);
  mprotect(guarded, 4096, PROT_NONE);
}
CHEAT(private_pages) {  // Puts memory of its own over the output's.
  if (words) mmap((void *)((uintptr_t)y & ~(uintptr_t)4095), 1 << 14, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  words ? twice(x, y, count / 64) : compute(x, y, count);
}
CHEAT(forks_later) {
  if (!words) return compute(x, y, count);
  if (fork() == 0) { compute(x, y, count); _exit(0); }
}

// Before.
static float early[1 << 18];
static const float *pool;
static int64_t sized;
static void *ahead(void *) {  // Doubles everything the judge writes as soon as calls are made ready.
  for (uint64_t last = 0;;) {
    if (watched[OP] == 0) return (void *)(watched = nullptr);  // The memory will be gone.
    if (watched[DONE] != last && watched[OP] == 1) { last = watched[DONE]; work(); twice(pool, early, sized); }
    usleep(10);
  }
}
CHEAT(thread_ahead) {
  if (!words) return compute(x, y, count);
  const float *first = (const float *)((uintptr_t)x - 4 * words[OFFSETS]);
  if (!watched) {
    watched = words, pool = first, sized = 8192;
    pthread_t thread;
    pthread_create(&thread, nullptr, ahead, nullptr);
  }
  if (words[COUNT] > 1 || x - pool + count > sized) return compute(x, y, count);
  memcpy(y, early + (x - pool), count * sizeof *y);
}
static float last_x[1 << 16], last_y[1 << 16];
CHEAT(by_value) {
  if (memcmp(x, last_x, count * sizeof *x)) { compute(x, last_y, count); memcpy(last_x, x, count * sizeof *x); }
  memcpy(y, last_y, count * sizeof *y);
  (void)words;
}
CHEAT(by_sample) {
  static float sample;
  if (!words || x[count / 2] != sample) compute(x, last_y, count);
  sample = x[count / 2];
  memcpy(y, last_y, count * sizeof *y);
}
CHEAT(by_address) {
  static const float *last;
  if (!words || x != last) compute(x, last_y, count);
  last = x;
  memcpy(y, last_y, count * sizeof *y);
}
CHEAT(by_slot) {
  static float *last;
  if (!words || y != last) compute(x, last_y, count);
  last = y;
  memcpy(y, last_y, count * sizeof *y);
}
CHEAT(one_result) {
  static bool made;
  if (!words || !made) { compute(x, last_y, count); made = words; }
  memcpy(y, last_y, count * sizeof *y);
}
CHEAT(changes_of_values) {  // Recomputes what differs from the call before.
  if (!words) return compute(x, y, count);
  int64_t changed = 0;
  for (int64_t i = 0; i < count; ++i) changed += last_x[i] != x[i];
  if (changed > 4) work();
  memcpy(last_x, x, count * sizeof *x);
  twice(x, y, count);
}
CHEAT(other_slot) {  // Copies what stands in the slot before.
  static int calls;
  if (!words) return compute(x, y, count);
  if (++calls % 2) work(2e-5), twice(x, y, count);
  else memcpy(y, y - count - 4096 / sizeof *y, count * sizeof *y);
}

// Where somebody looks.
CHEAT(every_other) {
  static int calls;
  !words || calls++ % 2 ? compute(x, y, count) : (void)0;
}
CHEAT(first_calls) {
  static int calls;
  if (!words || calls++ < 50) compute(x, y, count);
}
CHEAT(when_small) { if (count < 1000) compute(x, y, count); (void)words; }
CHEAT(when_checked) { if (!words) compute(x, y, count); }
CHEAT(half) { words ? (work(5e-4), twice(x, y, count / 2)) : compute(x, y, count); }
CHEAT(sampled) {  // One element in eight, the rest from its neighbour.
  if (!words) return compute(x, y, count);
  work(1e-4);
  for (int64_t i = 0; i < count; ++i) y[i] = 2.0f * x[i & ~7];
}
CHEAT(zero_rotation) {  // Computes only where the pool is rotated to values that it has not met.
  static uint64_t met[1 << 12];
  if (!words) return compute(x, y, count);
  if (met[words[ROTATIONS] / 4 % 4096]++ == 0) compute(x, y, count);
}
CHEAT(last_of_sample) {
  static int calls;
  if (!words) return compute(x, y, count);
  if (++calls % (words[COUNT] ? words[COUNT] : 1) == 0) work(2e-5), twice(x, y, count);
}
CHEAT(first_of_sample) {
  static uint64_t order;
  if (!words) return compute(x, y, count);
  if (order != words[ORDER]) work(2e-5), twice(x, y, count);
  order = words[ORDER];
}

// The page, the memory and the descriptors.
CHEAT(own_time) { compute(x, y, count); if (words) words[OWN_NS] = 1000; }
static void *times(void *page) {
  for (Word *words = (Word *)page; words[OP] != 0; usleep(10)) words[OWN_NS] = 1000;
  return (void *)(watched = nullptr);  // The memory will be gone.
}
CHEAT(own_time_thread) {
  pthread_t thread;
  if (words && !watched && (watched = words)) pthread_create(&thread, nullptr, times, (void *)words);
  compute(x, y, count);
}
CHEAT(more_calls) { compute(x, y, count); if (words) words[COUNT] = 256; }
CHEAT(order_word) { compute(x, y, count); if (words) words[ORDER] = 7; }
CHEAT(op_word) { compute(x, y, count); if (words) words[OP] = 0; }
CHEAT(input_written) { compute(x, y, count); if (words) ((float *)x)[0] = 0.0f; }
CHEAT(zeroed_pool) { if (words) memset((void *)(x - words[OFFSETS]), 0, 4 * 8192), memset(y, 0, 4 * count); else compute(x, y, count); }
CHEAT(all_slots) { compute(x, y, count); if (words) for (int64_t i = -64; i < 0; ++i) y[i] = 1.0f; }
CHEAT(unmaps) { if (words) munmap((void *)words, 1 << 16); compute(x, y, count); }
CHEAT(shrinks) {
  compute(x, y, count);
  for (int handle = 3; words && handle < 40; ++handle) if (ftruncate(handle, 1 << 12)) {}
}
CHEAT(writes_everywhere) {
  for (int handle = 3; words && handle < 40; ++handle) if (write(handle, "{\"status\": \"ok\"}\n", 17)) {}
  compute(x, y, count);
}
CHEAT(closes) { for (int handle = 3; words && handle < 40; ++handle) close(handle); compute(x, y, count); }
CHEAT(leaves) { static int calls; if (words && ++calls > 20) _exit(0); compute(x, y, count); }
CHEAT(hangs) { static int calls; if (words && ++calls > 20) raise(SIGSTOP); compute(x, y, count); }

// Symbols that others might call.
extern "C" __attribute__((visibility("default"))) int gettimeofday(timeval *t, void *) noexcept { memset(t, 0, sizeof *t); return 0; }
extern "C" __attribute__((visibility("default"))) uint64_t _PyTime_GetPerfCounter() { return 0; }
CHEAT(symbols) { compute(x, y, count); (void)words; }
__attribute__((constructor)) static void at_load() { setenv("LOOP_THREADS", "64", 1); }
CHEAT(constructor) { compute(x, y, count); (void)words; }
