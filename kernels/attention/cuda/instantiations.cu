// Every instance that the variants promise, in one object: for programs of several translation units, which declare
// `extern template` and link with it. The variants themselves are single translation units and do not need it.
#include "decode.cuh"
#include "fa1.cuh"
#include "small.cuh"
#include "split_k.cuh"
#include "tensor_core.cuh"

ATTENTION_WIDE_INSTANCES(tensor_core)
ATTENTION_INSTANCES(small)
ATTENTION_INSTANCES(split_k)
ATTENTION_INSTANCE(decode, 64)
ATTENTION_INSTANCE(decode, 128)
ATTENTION_INSTANCE(decode, 256)

template attention::Error attention::fa1<__half>(const Problem &, cudaStream_t);
template attention::Error attention::fa1<__nv_bfloat16>(const Problem &, cudaStream_t);
