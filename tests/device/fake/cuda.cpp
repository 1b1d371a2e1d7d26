// A CUDA driver for tests on a machine without a GPU: device memory is the host's, a kernel is a C function. Work is
// done as late as the rules of streams allow: when somebody waits for its stream, or for another that waits for it.
// Every function that loop calls is here.
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>

#include "machine.h"

#define API extern "C" __attribute__((visibility("default")))

namespace {
enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NO_SUCH_DEVICE = 101, UNSUPPORTED = 900, UNJOINED = 904 };

struct Node {
  int kind;  // CUgraphNodeType: 0 for a kernel, 1 for a copy, 2 for a fill.
  std::function<void()> work;
};
using Graph = std::vector<Node>;
struct Capture {
  Graph graph;
  std::vector<struct Stream *> lanes;  // Streams that were forked from the one that is captured.
};
struct Stream {
  std::list<std::function<void()>> queue;
  std::shared_ptr<Capture> capture;
  size_t unjoined = 0;  // Nodes of a forked stream that nobody has waited for.
  char window[64] = {};  // Its access policy window.
};
struct Event {
  double ms = 0;
  Stream *stream = nullptr;
  bool done = true;
};

int fault = SUCCESS;  // What a kernel did: the context says nothing else from then on.
uint64_t held = 0;
std::recursive_mutex busy;
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

// All streams; the first is the legacy default stream.
std::list<Stream *> &streams() {
  static std::list<Stream *> all = {new Stream};
  return all;
}
Stream *stream_of(void *handle) { return handle == nullptr ? streams().front() : static_cast<Stream *>(handle); }

// Do what is queued, until `until` is done.
void run(Stream *stream, const Event *until = nullptr) {
  const std::lock_guard<std::recursive_mutex> alone(busy);
  while (!stream->queue.empty() && (until == nullptr || !until->done)) {
    const std::function<void()> work = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (fault == SUCCESS) work();
  }
}

void add(void *handle, int kind, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> alone(busy);
  Stream *stream = stream_of(handle);
  if (stream->capture == nullptr) return stream->queue.push_back(std::move(work));
  stream->capture->graph.push_back({kind, std::move(work)});
  ++stream->unjoined;
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
    {904, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
};
}  // namespace

// For kernels: how one is launched, and what it does when it crashes.
API int fakeLaunch(void *stream, void (*kernel)(void *), const void *argument, size_t size) {
  const std::string given(static_cast<const char *>(argument), size);
  add(stream, 0, [=]() mutable { kernel(const_cast<char *>(given.data())); });
  return fault;
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
  static const std::map<int, int> said = {{13, 1980000}, {16, 4}, {36, 3201000}, {37, 6016}, {38, 1 << 20},
                                          {8, 49152},    {39, 2048}, {81, 233472},  {82, 65536}, {97, 232448}, {106, 32}};
  *value = which == 75 ? gpu.major : which == 76 ? gpu.minor : said.count(which) ? said.at(which) : 0;
  return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = visible()[device].bytes, SUCCESS; }
API int cuDevicePrimaryCtxRetain(void **context, int) { return *context = &held, fault; }
API int cuCtxSetCurrent(void *) { return fault; }
API int cuCtxSynchronize() {
  for (Stream *stream : streams()) run(stream);
  return fault;
}
API int cuCtxResetPersistingL2Cache() { return fault; }
API int cuCtxSetLimit(int, size_t) { return fault; }
API int cuMemGetInfo_v2(size_t *free, size_t *total) {
  const Gpu gpu = visible()[0];
  *total = gpu.bytes, *free = gpu.bytes - gpu.taken - held;
  return fault;
}
API int cuMemAlloc_v2(uint64_t *address, size_t size) {
  const std::lock_guard<std::recursive_mutex> alone(busy);
  size_t free, total;
  cuMemGetInfo_v2(&free, &total);
  if (fault != SUCCESS || size > free) return fault != SUCCESS ? fault : OUT_OF_MEMORY;
  *address = (uint64_t)aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  sizes[*address] = size, held += size;
  return SUCCESS;
}
API int cuMemFree_v2(uint64_t address) {
  const std::lock_guard<std::recursive_mutex> alone(busy);
  cuCtxSynchronize();
  held -= sizes[address], sizes.erase(address), free((void *)address);
  return fault;
}
API int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, void *stream) {
  const std::string data(static_cast<const char *>(from), size);
  return add(stream, 1, [=] { memcpy((void *)to, data.data(), size); }), fault;
}
API int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, void *stream) {
  return add(stream, 1, [=] { memcpy(to, (void *)from, size); }), fault;
}
API int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
  return add(stream, 1, [=] { memmove((void *)to, (void *)from, size); }), fault;
}
API int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void *stream) {
  return add(stream, 2, [=] { memset((void *)to, value, size); }), fault;
}
API int cuMemHostAlloc(void **memory, size_t size, unsigned) { return *memory = calloc(1, size), fault; }
API int cuMemFreeHost(void *memory) { return cuCtxSynchronize(), free(memory), fault; }
API int cuMemHostGetDevicePointer_v2(uint64_t *address, void *memory, unsigned) { return *address = (uint64_t)memory, fault; }
API int cuStreamCreate(void **stream, unsigned) { return *stream = new Stream, streams().push_back(stream_of(*stream)), fault; }
API int cuStreamDestroy_v2(void *stream) {
  return run(stream_of(stream)), streams().remove(stream_of(stream)), fault;  // Others may still wait for it.
}
API int cuStreamSynchronize(void *stream) {
  if (stream_of(stream)->capture != nullptr) return UNSUPPORTED;
  return run(stream_of(stream)), fault;
}
API int cuStreamWaitValue32_v2(void *stream, uint64_t address, uint32_t value, unsigned) {
  const auto flag = (const volatile uint32_t *)address;
  return add(stream, 0, [=] { while (*flag != value) usleep(50); }), fault;
}
API int cuThreadExchangeStreamCaptureMode(int *) { return fault; }
API int cuStreamGetAttribute(void *stream, int, void *value) { return memcpy(value, stream_of(stream)->window, 64), fault; }
API int cuStreamSetAttribute(void *stream, int, const void *value) { return memcpy(stream_of(stream)->window, value, 64), fault; }
API int cuStreamBeginCapture_v2(void *stream, int) { return stream_of(stream)->capture = std::make_shared<Capture>(), fault; }
API int cuStreamEndCapture(void *stream, void **graph) {
  const std::shared_ptr<Capture> capture = std::move(stream_of(stream)->capture);
  stream_of(stream)->capture = nullptr;
  bool unjoined = false;
  for (Stream *lane : capture->lanes) unjoined |= lane->unjoined > 0, lane->unjoined = 0, lane->capture = nullptr;
  *graph = unjoined ? nullptr : new Graph(capture->graph);
  return unjoined ? UNJOINED : fault;
}
API int cuEventCreate(void **event, unsigned) { return *event = new Event, fault; }
API int cuEventDestroy_v2(void *) { return fault; }  // Others may still wait for it.
API int cuEventRecord(void *handle, void *stream) {
  Event *event = static_cast<Event *>(handle);
  const std::lock_guard<std::recursive_mutex> alone(busy);
  event->stream = stream_of(stream), event->done = false;
  if (event->stream->capture == nullptr) event->stream->queue.push_back([=] { event->ms = now_ms(), event->done = true; });
  return fault;
}
API int cuEventSynchronize(void *event) { return run(static_cast<Event *>(event)->stream, static_cast<Event *>(event)), fault; }
API int cuStreamWaitEvent(void *handle, void *given, unsigned) {
  Event *event = static_cast<Event *>(given);
  Stream *stream = stream_of(handle), *other = event->stream;
  if (other != nullptr && other->capture != nullptr) {
    if (stream->capture == nullptr) stream->capture = other->capture, stream->capture->lanes.push_back(stream);
    else other->unjoined = 0;
  } else if (other != nullptr) {
    stream->queue.push_back([=] { run(other, event); });
  }
  return fault;
}
API int cuEventElapsedTime_v2(float *ms, void *begin, void *end) { return *ms = (float)(static_cast<Event *>(end)->ms - static_cast<Event *>(begin)->ms), fault; }
API int cuModuleLoadData(void **module, const char *) { return *module = &held, fault; }
API int cuModuleGetFunction(void **function, void *module, const char *) { return *function = module, fault; }
API int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *stream, void **, void **) {
  return add(stream, 0, [] {}), fault;  // A kernel of a module is an empty one.
}
API int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long) { return *made = new Graph(*static_cast<Graph *>(graph)), fault; }
API int cuGraphUpload(void *, void *) { return fault; }
API int cuGraphLaunch(void *made, void *stream) {
  for (const Node &one : *static_cast<Graph *>(made)) add(stream, one.kind, one.work);
  return fault;
}
API int cuGraphDestroy(void *graph) { return delete static_cast<Graph *>(graph), fault; }
API int cuGraphExecDestroy(void *made) { return cuGraphDestroy(made); }
API int cuGraphGetNodes(void *graph, void **nodes, size_t *count) {
  *count = static_cast<Graph *>(graph)->size();
  for (size_t i = 0; nodes != nullptr && i < *count; ++i) nodes[i] = &(*static_cast<Graph *>(graph))[i];
  return fault;
}
