// What this processor reaches: multiply-adds a second, and bytes a second read from a working set of a given size.
//
//   roof float|double THREADS BYTES MILLISECONDS
//
// Each thread runs for that many milliseconds, three times; the best of the three sums over the threads is printed, for
// whatever else runs on the machine can only make it slower. Beside it the most: the sum of each thread's best moment,
// some microseconds in which nothing interrupted it. No program does much better, however busy the machine was.
// C and C++: compiled with whatever compiler is at hand.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#elif defined(__AVX__)
#define VECTOR_BYTES 32
#else
#define VECTOR_BYTES 16
#endif
#define CHAINS 10 /* two units, five cycles from one multiply-add to the next that needs it */
#define TRIALS 3
#define MOMENT_BYTES (1 << 20) /* read between two looks at the clock */
#define MOST_THREADS 1024

typedef float floats __attribute__((vector_size(VECTOR_BYTES)));
typedef double doubles __attribute__((vector_size(VECTOR_BYTES)));

struct rates {
  double mean, most; /* a second: over the whole time, and in the best moment */
};

struct task {
  pthread_barrier_t *together;
  double seconds;
  struct rates rates;
  const floats *data; /* null: arithmetic */
  long vectors;
  int wide;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

// Keeps a value alive, and the compiler from working it out beforehand.
#define KEEP(value) __asm__ volatile("" : "+m"(value))

#define ARITHMETIC(name, vector)                                    \
  static struct rates name(double seconds) {                        \
    vector chain[CHAINS], scale, shift;                             \
    memset(chain, 0, sizeof chain);                                 \
    memset(&scale, 0, sizeof scale);                                \
    memset(&shift, 0, sizeof shift);                                \
    KEEP(scale);                                                    \
    KEEP(shift);                                                    \
    const vector a = scale, b = shift;                              \
    const double flops = 10000. * CHAINS * 2 * (sizeof(vector) / sizeof(scale[0])); \
    const double begin = now();                                     \
    double rounds = 0, before = begin, after, shortest = 1e9;       \
    do {                                                            \
      vector c0 = chain[0], c1 = chain[1], c2 = chain[2], c3 = chain[3], c4 = chain[4]; \
      vector c5 = chain[5], c6 = chain[6], c7 = chain[7], c8 = chain[8], c9 = chain[9]; \
      for (int i = 0; i < 10000; i++) {                             \
        c0 = c0 * a + b, c1 = c1 * a + b, c2 = c2 * a + b, c3 = c3 * a + b, c4 = c4 * a + b; \
        c5 = c5 * a + b, c6 = c6 * a + b, c7 = c7 * a + b, c8 = c8 * a + b, c9 = c9 * a + b; \
      }                                                             \
      chain[0] = c0, chain[1] = c1, chain[2] = c2, chain[3] = c3, chain[4] = c4; \
      chain[5] = c5, chain[6] = c6, chain[7] = c7, chain[8] = c8, chain[9] = c9; \
      KEEP(chain);                                                  \
      rounds++;                                                     \
      after = now();                                                \
      if (after - before < shortest) shortest = after - before;     \
      before = after;                                               \
    } while (after - begin < seconds);                              \
    struct rates found = {rounds * flops / (after - begin), flops / shortest}; \
    return found;                                                   \
  }

ARITHMETIC(float_arithmetic, floats)
ARITHMETIC(double_arithmetic, doubles)

// Reads the data again and again: nothing is done with it but what keeps the loads.
static void read_all(const floats *data, long vectors) {
  for (long i = 0; i + 8 <= vectors; i += 8) {
    const floats s0 = data[i], s1 = data[i + 1], s2 = data[i + 2], s3 = data[i + 3];
    const floats s4 = data[i + 4], s5 = data[i + 5], s6 = data[i + 6], s7 = data[i + 7];
#if defined(__x86_64__)
    __asm__ volatile("" ::"x"(s0), "x"(s1), "x"(s2), "x"(s3), "x"(s4), "x"(s5), "x"(s6), "x"(s7));
#else
    __asm__ volatile("" ::"w"(s0), "w"(s1), "w"(s2), "w"(s3), "w"(s4), "w"(s5), "w"(s6), "w"(s7));
#endif
  }
}

static struct rates reading(const floats *data, long vectors, double seconds) {
  const long moment = MOMENT_BYTES / VECTOR_BYTES, passes = vectors < moment ? moment / vectors : 1;
  const double begin = now();
  double bytes = 0, before = begin, after = begin, most = 0;
  do {
    for (long first = 0; first < vectors; first += moment) {
      const long some = vectors - first < moment ? vectors - first : moment;
      for (long pass = 0; pass < passes; pass++) read_all(data + first, some);
      const double read = (double)passes * some * VECTOR_BYTES;
      after = now();
      if (2 * read >= MOMENT_BYTES && read / (after - before) > most) most = read / (after - before);
      before = after, bytes += read;
      if (after - begin >= seconds) break;
    }
  } while (after - begin < seconds);
  struct rates found = {bytes / (after - begin), most};
  return found;
}

static void *work(void *argument) {
  struct task *const task = (struct task *)argument;
  pthread_barrier_wait(task->together);
  if (task->data)
    task->rates = reading(task->data, task->vectors, task->seconds);
  else
    task->rates = task->wide ? double_arithmetic(task->seconds) : float_arithmetic(task->seconds);
  return 0;
}

// The best sums of all threads' rates; 0 when a thread cannot be started.
static struct rates best(struct task model, int threads) {
  static pthread_t handles[MOST_THREADS];
  static struct task tasks[MOST_THREADS];
  pthread_barrier_t together;
  struct rates best = {0, 0}, none = {0, 0};
  for (int trial = 0; trial < TRIALS; trial++) {
    struct rates sum = {0, 0};
    pthread_barrier_init(&together, 0, threads);
    for (int n = 0; n < threads; n++) {
      tasks[n] = model;
      tasks[n].together = &together;
      if (model.data) tasks[n].data = model.data + n * model.vectors;
      if (pthread_create(&handles[n], 0, work, &tasks[n])) return none;
    }
    for (int n = 0; n < threads; n++) {
      pthread_join(handles[n], 0);
      sum.mean += tasks[n].rates.mean, sum.most += tasks[n].rates.most;
    }
    pthread_barrier_destroy(&together);
    if (sum.mean > best.mean) best.mean = sum.mean;
    if (sum.most > best.most) best.most = sum.most;
  }
  return best;
}

int main(int count, char **words) {
  if (count != 5) return 2;
  const int threads = atoi(words[2]);
  if (threads < 1 || threads > MOST_THREADS) return 2;
  long vectors = atol(words[3]) / threads / VECTOR_BYTES / 8 * 8; /* of one thread */
  if (vectors < 64) vectors = 64;
  void *memory = 0;
  if (posix_memalign(&memory, VECTOR_BYTES, (size_t)vectors * threads * VECTOR_BYTES)) return 1;
  memset(memory, 0, (size_t)vectors * threads * VECTOR_BYTES);

  struct task model = {0, 1e-3 * atof(words[4]), {0, 0}, 0, vectors, !strcmp(words[1], "double")};
  const struct rates flops = best(model, threads);
  model.data = (const floats *)memory;
  const struct rates bytes = best(model, threads);
  printf("{\"flops_per_s\": %.6g, \"bytes_per_s\": %.6g, ", flops.mean, bytes.mean);
  printf("\"most_flops_per_s\": %.6g, \"most_bytes_per_s\": %.6g}\n", flops.most, bytes.most);
  free(memory);
  return !(flops.mean > 0 && bytes.mean > 0);
}
