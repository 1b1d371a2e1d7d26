// All CUDA variants in one translation unit: what they share is compiled once.
#include "cuda/auto.cu"
#include "cuda/decode.cu"
#include "cuda/fa1.cu"
#include "cuda/small.cu"
#include "cuda/split_k.cu"
#include "cuda/tensor_core.cu"
#include "cuda/warp_specialized.cu"
