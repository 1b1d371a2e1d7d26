// Configurations that have to be refused when they are compiled: -DREFUSED=... names one (target.yaml).
#include "small.cuh"
#include "tensor_core.cuh"

template struct attention::REFUSED;
