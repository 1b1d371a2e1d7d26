// A variant behind loop_kernel.h as an operator of PyTorch that is called without Python: `loop.pytorch` builds this
// file with the host compiler, once for every variant there is.
//
// No header of PyTorch is read. Of its stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h) it takes addresses
// that Python looked up in the running process, so that one build serves every version that has them. Relied on is:
//
//   a boxed kernel   void (uint64_t *stack, uint64_t arguments, uint64_t outputs): one word each, a tensor as a handle
//                    that is ours to delete, a bool and an int as themselves, a float as the bits of a double. Outputs
//                    go to the start of the stack. It may throw: PyTorch makes a std::runtime_error a RuntimeError.
//   a handle         an at::Tensor *, whose only member points to the c10::TensorImpl. Only for `requires_grad`, which
//                    the C interface does not tell.
//   empty_on_cuda    at::detail::empty_strided_cuda, where PyTorch has it: the C interface allocates by way of the
//                    dispatcher, which takes 0.3 us more. An at::Tensor that it gives becomes a handle by `new`.
//
// `loop.pytorch` tries both on an operator of its own, `probe`, before any other is registered.
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "loop_kernel.h"

namespace {

constexpr int kMost = 16;   // Inputs, or attributes, of one operator.
constexpr int kTypes = 64;  // Numbers that PyTorch may give element types.
constexpr int kSlots = 64;  // Operators in one process.

using Handle = void *;  // AtenTensorHandle
using Boxed = void (*)(uint64_t *, uint64_t, uint64_t);

// c10::IntArrayRef, std::optional<c10::Device> and at::TensorBase, as functions take and give them.
struct Extents {
  const int64_t *data;
  size_t count;
};
struct Place {
  int8_t type, index;
  bool known;
};
struct Made {
  void *impl;
  ~Made() {}  // Not trivial, so that it comes back by an address.
};

extern "C" {

// Addresses in libtorch and libc10, in the order of FUNCTIONS in loop/pytorch/c_dispatch.py. Those of CUDA are null without.
struct LoopTorchFunctions {
  int32_t (*library_init_impl)(const char *space, const char *key, const char *file, uint32_t line, void **library);
  int32_t (*library_impl)(void *library, const char *name, Boxed kernel);
  int32_t (*delete_tensor)(Handle);
  int32_t (*data_ptr)(Handle, void **);
  int32_t (*dim)(Handle, int64_t *);
  int32_t (*sizes)(Handle, int64_t **);
  int32_t (*strides)(Handle, int64_t **);
  int32_t (*dtype)(Handle, int32_t *);
  int32_t (*device_type)(Handle, int32_t *);
  int32_t (*device_index)(Handle, int32_t *);
  int32_t (*empty_strided)(int64_t, const int64_t *, const int64_t *, int32_t, int32_t, int32_t, Handle *);
  bool (*grad_mode)();
  bool (*requires_grad)(const void *tensor_impl);
  int32_t (*current_stream)(int32_t index, void **stream);
  int32_t (*create_guard)(int32_t index, void **guard);
  int32_t (*delete_guard)(void *guard);
  int8_t (*current_device)();  // Or null, as the next.
  Made (*empty_on_cuda)(Extents sizes, Extents strides, int8_t dtype, Place place);
};

// What PyTorch's numbers of element types mean, and its device types by name.
struct LoopTorchNumbers {
  const char *dtypes[kTypes];     // Names, or null.
  int32_t loop_dtypes[kTypes];    // A LoopDtype, or 0.
  int32_t cpu, cuda;              // Device types.
  int32_t byte;                   // The element type of memory that is lent.
};

struct LoopTorchInput {
  const char *name, *dimensions, *expects;  // "k", "B H Sk D", "float16 or bfloat16"
  int32_t rank;
  int32_t dtype;                      // The only type it may have, or -1: that of the call.
  const char *words[LOOP_MAX_RANK];   // Its dimensions, one by one.
  int32_t twin[LOOP_MAX_RANK];        // The input that has the same dimension, and its axis: an earlier one, or itself.
  int32_t twin_axis[LOOP_MAX_RANK];
};

enum LoopTorchKind { kFlag, kChoice, kNumber };

struct LoopTorchAttribute {
  const char *name, *choices;  // "alignment", "0 (top_left) or 1 (bottom_right)"
  int32_t kind, count;         // A LoopTorchKind; how many choices.
};

// One operator; everything it points to lives as long as the process.
struct LoopTorchOperator {
  const char *space, *name, *title;  // "loop_tiny", "right", "loop_tiny::right"
  int (*entry)(const LoopTensor *, LoopTensor *, const double *, void *);
  const char *(*explain)(int);
  int32_t device_type, inputs, attributes, rank;
  int32_t dtype;                            // The output's, or -1: that of the call.
  int32_t accepted[kTypes];                 // Whether the call may be of that type.
  int32_t only;                             // The type of a call none of whose inputs has it, or -1.
  int32_t from[LOOP_MAX_RANK], from_axis[LOOP_MAX_RANK];  // Where a dimension of the output comes from.
  LoopTorchInput input[kMost];
  LoopTorchAttribute attribute[kMost];
};

}  // extern "C"

LoopTorchFunctions torch;
LoopTorchNumbers numbers;
const LoopTorchOperator *slots[kSlots];
int used = 0;

using Words = std::string;

[[noreturn]] void refuse(const LoopTorchOperator &op, const Words &what) {
  throw std::runtime_error(Words(op.title) + ": " + what);
}

void must(const LoopTorchOperator &op, int32_t error, const char *what) {
  if (error) refuse(op, Words("PyTorch could not ") + what + "; the reason is on the standard error");
}

// A tensor that is ours to delete.
class Owned {
 public:
  Owned() = default;
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;
  ~Owned() {
    if (handle) torch.delete_tensor(handle);
  }
  Handle handle = nullptr;
};

// Makes a device the current one for as long as it lives. A processor needs none, nor does the device that is current
// already: to ask takes 0.06 us, PyTorch's guard 0.17.
class DeviceGuard {
 public:
  DeviceGuard(const LoopTorchOperator &op, int32_t index) {
    if (op.device_type != numbers.cuda || (torch.current_device && torch.current_device() == index)) return;
    must(op, torch.create_guard(index, &guard_), "make a device the current one");
  }
  DeviceGuard(const DeviceGuard &) = delete;
  DeviceGuard &operator=(const DeviceGuard &) = delete;
  ~DeviceGuard() {
    if (guard_) torch.delete_guard(guard_);
  }

 private:
  void *guard_ = nullptr;
};

const char *dtype_name(int32_t dtype) {
  const char *const name = dtype >= 0 && dtype < kTypes ? numbers.dtypes[dtype] : nullptr;
  return name ? name : "another type";
}

int32_t loop_dtype(int32_t dtype) { return dtype >= 0 && dtype < kTypes ? numbers.loop_dtypes[dtype] : 0; }

bool accepts(const LoopTorchOperator &op, int32_t dtype) { return dtype >= 0 && dtype < kTypes && op.accepted[dtype]; }

Words device_name(int32_t type, int32_t index) {
  if (type == numbers.cpu) return "cpu";
  return type == numbers.cuda ? "cuda:" + std::to_string(index) : "another device";
}

// What the inputs of a call have in common.
struct Call {
  int32_t device_index = 0;
  int32_t dtype = -1;
  const char *typed = nullptr;  // The first input of that type.
};

void check_device(const LoopTorchOperator &op, int n, Handle tensor, Call &call) {
  int32_t type, index;
  must(op, torch.device_type(tensor, &type) | torch.device_index(tensor, &index), "tell a tensor's device");
  if (n == 0) call.device_index = index;
  if (type == op.device_type && index == call.device_index) return;
  Words wanted = op.device_type == numbers.cuda ? "cuda" : "cpu";
  if (type == op.device_type) wanted = device_name(type, call.device_index) + ", as " + op.input[0].name + " is";
  refuse(op, Words(op.input[n].name) + ": expected a tensor on " + wanted + ", got one on " + device_name(type, index));
}

void check_dtype(const LoopTorchOperator &op, const LoopTorchInput &input, int32_t dtype, Call &call) {
  const bool fixed = input.dtype >= 0;
  if (fixed ? dtype != input.dtype : !accepts(op, dtype))
    refuse(op, Words(input.name) + ": expected " + input.expects + ", got " + dtype_name(dtype));
  if (fixed) return;
  if (call.dtype < 0) call.dtype = dtype, call.typed = input.name;
  if (dtype != call.dtype)
    refuse(op, Words(input.name) + ": expected " + dtype_name(call.dtype) + ", as " + call.typed + " is, got " +
                   dtype_name(dtype));
}

void check_sizes(const LoopTorchOperator &op, int n, const LoopTensor *tensors) {
  const LoopTorchInput &input = op.input[n];
  for (int axis = 0; axis < input.rank; axis++) {
    const int64_t size = tensors[n].sizes[axis], other = tensors[input.twin[axis]].sizes[input.twin_axis[axis]];
    if (size != other)
      refuse(op, Words(input.name) + ": expected " + input.words[axis] + " = " + std::to_string(other) + ", as in " +
                     op.input[input.twin[axis]].name + ", got " + std::to_string(size));
  }
}

void describe(const LoopTorchOperator &op, Handle handle, int64_t rank, LoopTensor &tensor) {
  int64_t *sizes, *strides;
  must(op, torch.sizes(handle, &sizes) | torch.strides(handle, &strides) | torch.data_ptr(handle, &tensor.data),
       "tell where a tensor lies");
  tensor.rank = static_cast<int32_t>(rank);
  std::memcpy(tensor.sizes, sizes, sizeof(int64_t) * static_cast<size_t>(rank));
  std::memcpy(tensor.strides, strides, sizeof(int64_t) * static_cast<size_t>(rank));
}

void admit(const LoopTorchOperator &op, int n, Handle handle, LoopTensor *tensors, Call &call) {
  const LoopTorchInput &input = op.input[n];
  int32_t dtype;
  int64_t rank;
  check_device(op, n, handle, call);
  must(op, torch.dtype(handle, &dtype) | torch.dim(handle, &rank), "tell a tensor's type");
  check_dtype(op, input, dtype, call);
  if (rank != input.rank)
    refuse(op, Words(input.name) + ": expected " + std::to_string(input.rank) + " dimensions (" + input.dimensions +
                   "), got " + std::to_string(rank));
  tensors[n].dtype = loop_dtype(dtype);
  describe(op, handle, rank, tensors[n]);
  check_sizes(op, n, tensors);
}

void check_gradients(const LoopTorchOperator &op, const Owned *inputs) {
  if (!torch.grad_mode()) return;
  for (int n = 0; n < op.inputs; n++)
    if (torch.requires_grad(*static_cast<void *const *>(inputs[n].handle)))
      refuse(op, Words(op.input[n].name) +
                     " requires a gradient, and the operator has none: call it under torch.no_grad(), or detach " +
                     op.input[n].name);
}

// A bool is the lowest byte of its word; PyTorch 2.7 leaves in the others what was there.
bool is_set(uint64_t word) { return word & 1; }

double number_of(const LoopTorchOperator &op, const LoopTorchAttribute &attribute, uint64_t word) {
  if (attribute.kind == kFlag) return is_set(word);
  if (attribute.kind == kChoice) {
    const auto index = static_cast<int64_t>(word);
    if (index < 0 || index >= attribute.count)
      refuse(op, Words(attribute.name) + ": expected " + attribute.choices + ", got " + std::to_string(index));
    return static_cast<double>(index);
  }
  double number;
  std::memcpy(&number, &word, sizeof number);
  return number;
}

// The output, as PyTorch allocates it: C order.
void allocate(const LoopTorchOperator &op, const LoopTensor *tensors, const Call &call, Owned &output,
              LoopTensor &told) {
  const int32_t own = call.dtype >= 0 ? call.dtype : op.only, dtype = op.dtype >= 0 ? op.dtype : own;
  int64_t sizes[LOOP_MAX_RANK], strides[LOOP_MAX_RANK], step = 1;
  for (int axis = op.rank - 1; axis >= 0; axis--) {
    sizes[axis] = tensors[op.from[axis]].sizes[op.from_axis[axis]];
    strides[axis] = step;
    step *= sizes[axis] > 1 ? sizes[axis] : 1;
  }
  if (op.device_type == numbers.cuda && torch.empty_on_cuda) {
    const auto rank = static_cast<size_t>(op.rank);
    const Place place{static_cast<int8_t>(op.device_type), static_cast<int8_t>(call.device_index), true};
    output.handle = new void *{torch.empty_on_cuda({sizes, rank}, {strides, rank}, static_cast<int8_t>(dtype), place).impl};
  } else {
    must(op, torch.empty_strided(op.rank, sizes, strides, dtype, op.device_type, call.device_index, &output.handle),
         "allocate the output");
  }
  told.dtype = loop_dtype(dtype);
  describe(op, output.handle, op.rank, told);
}

void launch(const LoopTorchOperator &op, const LoopTensor *tensors, LoopTensor *output, const double *values,
            int32_t index) {
  const DeviceGuard guard(op, index);
  void *stream = nullptr;
  if (op.device_type == numbers.cuda) must(op, torch.current_stream(index, &stream), "tell its current stream");
  if (const int error = op.entry(tensors, output, values, stream)) {
    const char *const said = op.explain(error);
    refuse(op, "error " + std::to_string(error) + ": " + (said ? said : ""));
  }
}

// What LoopMemory asks for: a tensor of bytes on the current device, from PyTorch's allocator.
void *take_memory(uint64_t bytes, void **loan) {
  const int64_t size = static_cast<int64_t>(bytes), step = 1;
  constexpr int32_t kCurrent = -1;
  void *data = nullptr;
  if (torch.empty_strided(1, &size, &step, numbers.byte, numbers.cuda, kCurrent, loan)) return nullptr;
  return torch.data_ptr(*loan, &data) ? nullptr : data;
}
void give_memory(void *loan) { torch.delete_tensor(loan); }

void run(const LoopTorchOperator &op, uint64_t *stack) {
  Owned inputs[kMost], output;
  for (int n = 0; n < op.inputs; n++) inputs[n].handle = reinterpret_cast<Handle>(stack[n]);
  LoopTensor tensors[kMost], told;
  double values[kMost];
  Call call;
  for (int n = 0; n < op.inputs; n++) admit(op, n, inputs[n].handle, tensors, call);
  check_gradients(op, inputs);
  for (int n = 0; n < op.attributes; n++) values[n] = number_of(op, op.attribute[n], stack[op.inputs + n]);
  allocate(op, tensors, call, output, told);
  launch(op, tensors, &told, values, call.device_index);
  stack[0] = reinterpret_cast<uint64_t>(output.handle);
  output.handle = nullptr;
}

// PyTorch hands a kernel nothing of its own, so that each operator needs a function: one for each slot.
template <int kSlot>
void boxed(uint64_t *stack, uint64_t, uint64_t) {
  run(*slots[kSlot], stack);
}

template <int... kSlot>
constexpr Boxed choose(int slot, std::integer_sequence<int, kSlot...>) {
  constexpr Boxed all[] = {boxed<kSlot>...};
  return all[slot];
}

// probe(Tensor x, bool flag, int index, float number) -> bool: whether x requires a gradient exactly when `flag` is
// set, index is -7 and number is 0.5.
void probe(uint64_t *stack, uint64_t arguments, uint64_t outputs) {
  Owned x;
  x.handle = reinterpret_cast<Handle>(stack[0]);
  double number;
  std::memcpy(&number, &stack[3], sizeof number);
  const bool gradient = torch.requires_grad(*static_cast<void *const *>(x.handle));
  const bool right = arguments == 4 && outputs == 1 && gradient == is_set(stack[1]);
  stack[0] = right && static_cast<int64_t>(stack[2]) == -7 && number == 0.5;
}

int register_kernel(const char *space, const char *name, const char *key, Boxed kernel) {
  void *library = nullptr;  // Lives as long as the process: deleting it would take the kernel back.
  if (const int error = torch.library_init_impl(space, key, "loop_torch.cpp", 0, &library)) return error;
  return torch.library_impl(library, name, kernel);
}

}  // namespace

// Take what was looked up, and put the kernel of `probe` under an operator that is declared already. 0, or an error.
LOOP_EXPORT int loop_torch_start(const LoopTorchFunctions *functions, const LoopTorchNumbers *meanings,
                                 const char *space) {
  torch = *functions;
  numbers = *meanings;
  return register_kernel(space, "probe", "CPU", probe);
}

// Put a kernel under an operator that is declared already, for tensors on a processor and on CUDA devices: those on
// the wrong one are refused in our words. 0; -1 when there is no slot left; else PyTorch's error. One caller at a time.
LOOP_EXPORT int loop_torch_register(const LoopTorchOperator *op) {
  if (used == kSlots) return -1;
  slots[used] = op;
  const Boxed kernel = choose(used++, std::make_integer_sequence<int, kSlots>());
  if (const int error = register_kernel(op->space, op->name, "CPU", kernel)) return error;
  return register_kernel(op->space, op->name, "CUDA", kernel);
}

// Lend PyTorch's memory to a library, by its `loop_lend`.
LOOP_EXPORT void loop_torch_lend(void (*lend)(const LoopMemory *)) {
  const LoopMemory memory{take_memory, give_memory};
  lend(&memory);
}

LOOP_EXPORT const char *loop_error(int) { return "see loop/pytorch"; }
