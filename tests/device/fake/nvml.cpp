// An NVML for tests on a machine without a GPU: a quiet device, and whoever the file load.txt puts on it.
#include "machine.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {
enum { SUCCESS = 0, NOT_FOUND = 6 };
struct Process {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
struct Memory {
  unsigned long long total, free, used;
};

std::vector<std::string> load_of(int slot) {
  std::ifstream file(beside("load.txt"));
  std::string line;
  for (int i = 0; i <= slot; ++i) std::getline(file, line);
  return split(line, ' ');
}
Gpu gpu_of(void *device) { return all_gpus()[(size_t)device - 1]; }
}  // namespace

API int nvmlInit_v2() { return SUCCESS; }
API int nvmlShutdown() { return SUCCESS; }
API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
  return index < all_gpus().size() ? (*device = (void *)(size_t)(index + 1), SUCCESS) : NOT_FOUND;
}
API int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
  for (const Gpu &gpu : all_gpus())
    if (written(gpu.uuid) == uuid) return *device = (void *)(size_t)(gpu.slot + 1), SUCCESS;
  return NOT_FOUND;
}
API int nvmlDeviceGetClockInfo(void *, int, unsigned *mhz) { return *mhz = 1980, SUCCESS; }
API int nvmlDeviceGetMaxClockInfo(void *, int, unsigned *mhz) { return *mhz = 1980, SUCCESS; }
API int nvmlDeviceGetPowerUsage(void *, unsigned *mw) { return *mw = 100000, SUCCESS; }
API int nvmlDeviceGetTemperature(void *, int, unsigned *celsius) { return *celsius = 30, SUCCESS; }
API int nvmlDeviceGetCurrentClocksEventReasons(void *, unsigned long long *bits) { return *bits = 0, SUCCESS; }
API int nvmlDeviceGetMemoryInfo(void *device, Memory *memory) {
  const Gpu gpu = gpu_of(device);
  *memory = {gpu.bytes, gpu.bytes - gpu.taken, gpu.taken};
  return SUCCESS;
}
API int nvmlDeviceGetUtilizationRates(void *device, unsigned *percent) {
  const auto load = load_of(gpu_of(device).slot);
  percent[0] = load.empty() ? 0 : std::stoul(load[0]), percent[1] = 0;
  return SUCCESS;
}
API int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, Process *found) {
  const auto load = load_of(gpu_of(device).slot);
  unsigned many = 0;
  for (size_t i = 1; i < load.size() && many < *count; ++i) {
    const auto words = split(load[i], ':');
    found[many++] = {(unsigned)std::stoul(words[0]), std::stoull(words[1]), 0, 0};
  }
  return *count = many, SUCCESS;
}
