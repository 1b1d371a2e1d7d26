// Configurations that have to be refused when they are compiled; target.yaml names them, -DROWS=72 for one.
#include "small.cuh"
#include "tensor_core.cuh"

#ifndef DEPTH
#define DEPTH 64
#endif
#ifndef ROWS
#define ROWS 64
#endif
#ifndef KEYS
#define KEYS 64
#endif
#ifndef WARPS
#define WARPS 4
#endif

#ifdef SMALL
template struct attention::SmallShape<DEPTH, KEYS, WARPS>;
#else
template struct attention::TensorCoreShape<DEPTH, ROWS, KEYS, WARPS, 1>;
#endif
