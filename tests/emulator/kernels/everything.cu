// All fixtures in one translation unit: the headers are read once.
#include "copies.cu"
#include "fragments.cu"
#include "meetings.cu"
#include "memory.cu"
#include "numbers.cu"
#include "races.cu"
