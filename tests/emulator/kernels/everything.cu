// All kernels of these tests in one translation unit: the headers are read once.
#include "copies.cu"
#include "fragments.cu"
#include "meetings.cu"
#include "memory.cu"
#include "races.cu"
