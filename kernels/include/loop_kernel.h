/* The C interface between `loop` and a kernel. The same for every target; depends on nothing but C.
 *
 * A variant of kind `c_abi` exports three functions:
 *
 *   int <entry>(const LoopTensor *inputs, LoopTensor *outputs, const double *attributes, void *stream);
 *       Inputs, outputs and attributes come in the order the target's signature declares. Where it declares no
 *       inputs, they come in the order its generator gives them. What is changed in place is no output.
 *       Returns 0, or an error number that loop_error explains. Must not exit, throw or write to inputs.
 *   const char *loop_error(int error);
 *       One sentence in English for an error number the entry returned.
 *   const char *loop_build_id(void);
 *       Defined by this header. The worker refuses a binary whose id is not that of the sources on disk.
 *
 * Attributes are doubles: a flag is 0 or 1, a choice is its index in the signature, a number is itself,
 * and NaN means "not given". `stream` is a CUDA stream, or null on a CPU.
 * Threads on a CPU: at most LOOP_THREADS (environment), which is also given as OMP_NUM_THREADS.
 */
#ifndef LOOP_KERNEL_H
#define LOOP_KERNEL_H

#include <stdint.h>

#define LOOP_KERNEL_ABI 1
#define LOOP_MAX_RANK 8

typedef enum LoopDtype {
  LOOP_FLOAT32 = 1,
  LOOP_FLOAT16 = 2,
  LOOP_BFLOAT16 = 3,
  LOOP_FLOAT64 = 4,
  LOOP_INT32 = 5,
  LOOP_INT64 = 6,
  LOOP_UINT8 = 7,
  LOOP_INT8 = 8,
  LOOP_INT16 = 9,
  LOOP_BOOL = 10,
  LOOP_FLOAT8_E4M3 = 11, /* e4m3fn: no infinity */
  LOOP_FLOAT8_E5M2 = 12
} LoopDtype;

typedef struct LoopTensor {
  void *data;                     /* device memory for a CUDA variant, host memory otherwise */
  int32_t dtype;                  /* a LoopDtype */
  int32_t rank;                   /* how many sizes and strides are meant */
  int64_t sizes[LOOP_MAX_RANK];   /* elements along each dimension; 0 is allowed */
  int64_t strides[LOOP_MAX_RANK]; /* in elements, not bytes */
} LoopTensor;

/* Device memory for the time of a call, from the program around it: a library that exports
 * `void loop_lend(const LoopMemory *)` takes its scratch memory so once that was called. PyTorch's allocator costs a
 * captured graph no node, and a kernel may begin early after another.
 * take: `bytes` bytes for work on the current stream, and what to give back for them; null where there are none. */
typedef struct LoopMemory {
  void *(*take)(uint64_t bytes, void **loan);
  void (*give)(void *loan); /* The work may still run; what takes the memory next comes after it on the stream. */
} LoopMemory;

#ifdef __cplusplus
#define LOOP_EXTERN_C extern "C"
#else
#define LOOP_EXTERN_C
#endif

#define LOOP_EXPORT LOOP_EXTERN_C __attribute__((visibility("default")))

/* The builder passes LOOP_BUILD_ID: the hash of sources, flags and compiler. Weak, so that a target of
 * several translation units may include this header in each. */
#ifdef LOOP_BUILD_ID
LOOP_EXPORT __attribute__((weak)) const char *loop_build_id(void) { return LOOP_BUILD_ID; }
#endif

#endif
