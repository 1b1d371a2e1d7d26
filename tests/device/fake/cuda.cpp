// A CUDA driver for tests on a machine without a GPU: device memory is the host's, a kernel is a C function that runs
// at once, or when a graph it was captured in is launched. Every function that loop calls is here.
#include <string.h>
#include <time.h>

#include <map>

#include "machine.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {
enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NO_SUCH_DEVICE = 101, UNSUPPORTED = 900 };

struct Launch {
  void (*kernel)(void *);
  std::string argument;
};
struct Stream {
  bool capturing = false;
  std::vector<Launch> captured;
};
using Graph = std::vector<Launch>;

int fault = SUCCESS;  // What a kernel did: the context says nothing else from then on.
uint64_t held = 0;
std::map<uint64_t, uint64_t> sizes;

// Those that may be seen, numbered as CUDA does: fastest first, unless the order of the slots is asked for.
std::vector<Gpu> visible() {
  std::vector<Gpu> gpus = all_gpus();
  const char *order = getenv("CUDA_DEVICE_ORDER");
  if (order == nullptr || std::string(order) != "PCI_BUS_ID")
    std::stable_sort(gpus.begin(), gpus.end(), [](const Gpu &a, const Gpu &b) { return a.major * 10 + a.minor > b.major * 10 + b.minor; });
  const char *names = getenv("CUDA_VISIBLE_DEVICES");
  if (names == nullptr) return gpus;
  std::vector<Gpu> chosen;
  for (const std::string &name : split(names, ',')) {
    const auto match = std::find_if(gpus.begin(), gpus.end(), [&](const Gpu &g) { return name.size() > 4 && written(g.uuid).rfind(name, 0) == 0; });
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    if (match != gpus.end()) chosen.push_back(*match);
    else if (number && std::stoul(name) < gpus.size()) chosen.push_back(gpus[std::stoul(name)]);
    else break;
  }
  return chosen;
}

Stream *stream_of(void *handle) {
  static Stream legacy;
  return handle == nullptr ? &legacy : static_cast<Stream *>(handle);
}

double now_ms() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec / 1e6;
}

const std::map<int, std::pair<const char *, const char *>> WORDS = {
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {803, {"CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"}},
    {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
};
}  // namespace

// For kernels: how one is launched, and what it does when it crashes.
API int fakeLaunch(void *stream, void (*kernel)(void *), const void *argument, size_t size) {
  const Launch launch = {kernel, std::string(static_cast<const char *>(argument), size)};
  const int before = fault;
  if (stream_of(stream)->capturing) stream_of(stream)->captured.push_back(launch);
  else if (fault == SUCCESS) kernel(const_cast<char *>(launch.argument.data()));
  return before;  // What a kernel did shows at the next call only, as on a GPU.
}
API void fakeFault(int code) { fault = code; }

API int cuInit(unsigned) {
  int version = 0, code = 0;
  std::ifstream(beside("cuda.txt")) >> version >> code;
  return code != SUCCESS ? code : visible().empty() ? NO_DEVICE : SUCCESS;
}
API int cuDriverGetVersion(int *version) { return std::ifstream(beside("cuda.txt")) >> *version ? SUCCESS : INVALID; }
API int cuGetErrorName(int code, const char **text) { return WORDS.count(code) ? (*text = WORDS.at(code).first, SUCCESS) : INVALID; }
API int cuGetErrorString(int code, const char **text) { return WORDS.count(code) ? (*text = WORDS.at(code).second, SUCCESS) : INVALID; }
API int cuDeviceGetCount(int *count) { return *count = (int)visible().size(), SUCCESS; }
API int cuDeviceGet(int *device, int index) { return index < (int)visible().size() ? (*device = index, SUCCESS) : NO_SUCH_DEVICE; }
API int cuDeviceGetName(char *text, int size, int device) { return strncpy(text, visible()[device].name.c_str(), size), SUCCESS; }
API int cuDeviceGetUuid_v2(unsigned char *bytes, int device) {
  for (int i = 0; i < 16; ++i) bytes[i] = (unsigned char)std::stoi(visible()[device].uuid.substr(2 * i, 2), nullptr, 16);
  return SUCCESS;
}
API int cuDeviceGetAttribute(int *value, int which, int device) {
  const Gpu gpu = visible()[device];
  *value = which == 75 ? gpu.major : which == 76 ? gpu.minor : which == 16 ? 4 : which == 38 ? 1 << 20 : 0;
  return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = visible()[device].bytes, SUCCESS; }
API int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &held, fault; }
API int cuCtxSetCurrent(void *) { return fault; }
API int cuCtxSynchronize() { return fault; }
API int cuCtxResetPersistingL2Cache() { return fault; }
API int cuMemGetInfo_v2(size_t *free, size_t *total) {
  const Gpu gpu = visible()[0];
  *total = gpu.bytes, *free = gpu.bytes - gpu.taken - held;
  return fault;
}
API int cuMemAlloc_v2(uint64_t *address, size_t size) {
  size_t free, total;
  cuMemGetInfo_v2(&free, &total);
  if (fault != SUCCESS || size > free) return fault != SUCCESS ? fault : OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  sizes[*address] = size, held += size;
  return SUCCESS;
}
API int cuMemFree_v2(uint64_t address) {
  held -= sizes[address], sizes.erase(address), free((void *)address);
  return fault;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *) { return memcpy((void *)to, from, size), fault; }
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *) { return memcpy(to, (void *)from, size), fault; }
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *) { return memcpy((void *)to, (void *)from, size), fault; }
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *) { return memset((void *)to, value, size), fault; }
API int cuMemHostAlloc(void **memory, size_t size, unsigned) { return *memory = calloc(1, size), fault; }
API int cuMemFreeHost(void *memory) { return free(memory), fault; }
API int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned) { return *address = (uint64_t)memory, fault; }
API int cuStreamCreate(void **stream, unsigned) { return *stream = new Stream, fault; }
API int cuStreamDestroy_v2(void *stream) { return delete stream_of(stream), fault; }
API int cuStreamSynchronize(void *stream) { return stream_of(stream)->capturing ? UNSUPPORTED : fault; }
API int cuStreamWaitValue32_v2(void *, uint64_t, uint32_t, unsigned) { return fault; }
API int cuStreamBeginCapture_v2(void *stream, int) { return stream_of(stream)->capturing = true, stream_of(stream)->captured.clear(), fault; }
API int cuStreamEndCapture(void *stream, void **graph) {
  stream_of(stream)->capturing = false;
  *graph = new Graph(stream_of(stream)->captured);
  return fault;
}
API int cuEventCreate(void **event, unsigned) { return *event = new double(0), fault; }
API int cuEventDestroy_v2(void *event) { return delete static_cast<double *>(event), fault; }
API int cuEventRecord(void *event, void *) { return *static_cast<double *>(event) = now_ms(), fault; }
API int cuEventSynchronize(void *) { return fault; }
API int cuEventElapsedTime_v2(float *ms, void *begin, void *end) { return *ms = (float)(*static_cast<double *>(end) - *static_cast<double *>(begin)), fault; }
API int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long) { return *made = new Graph(*static_cast<Graph *>(graph)), fault; }
API int cuGraphUpload(void *, void *) { return fault; }
API int cuGraphLaunch(void *made, void *stream) {
  for (const Launch &one : *static_cast<Graph *>(made)) fakeLaunch(stream, one.kernel, one.argument.data(), one.argument.size());
  return fault;
}
API int cuGraphDestroy(void *graph) { return delete static_cast<Graph *>(graph), fault; }
API int cuGraphExecDestroy(void *made) { return cuGraphDestroy(made); }
API int cuGraphGetNodes(void *graph, void **nodes, size_t *count) {
  *count = static_cast<Graph *>(graph)->size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) nodes[i] = &(*static_cast<Graph *>(graph))[i];
  return fault;
}
API int cuGraphNodeGetType(void *, int *type) { return *type = 0, fault; }
API int cuGraphChildGraphNodeGetGraph(void *, void **) { return INVALID; }
