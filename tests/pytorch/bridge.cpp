// The bridge of loop_torch.cpp held against a PyTorch that is none, with two GPUs that are none: each scenario prints
// what happened to devices, streams and tensors.
#include <cstdio>
#include <vector>

#include "loop_torch.cpp"

namespace {

constexpr int32_t kCpu = 0, kCuda = 1, kFloat = 6;

struct Impl {
  bool requires_grad = false;
  int32_t type = kCuda, index = 1, dtype = kFloat;
  std::vector<int64_t> sizes{2, 3}, strides{3, 1};
  float data[8] = {};
};

int alive = 0, current_device = 0, guards = 0;
bool can_allocate = true, gradients = false, can_guard = true;
Boxed kernels[2 * kSlots + 1];
int registered = 0;

// A handle points to a pointer, as an at::Tensor * does.
Handle hold(Impl *impl) {
  alive++;
  return new Impl *(impl);
}
Impl &of(Handle handle) { return **static_cast<Impl **>(handle); }

// An output of the given shape, as PyTorch would allocate it.
Impl *output_of(int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t type, int32_t index) {
  static Impl output;
  output.sizes.assign(sizes, sizes + rank), output.strides.assign(strides, strides + rank);
  output.dtype = dtype, output.type = type, output.index = index;
  return &output;
}

LoopTorchFunctions fake_torch() {
  LoopTorchFunctions f;
  f.library_init_impl = [](const char *, const char *, const char *, uint32_t, void **library) {
    return *library = nullptr, 0;
  };
  f.library_impl = [](void *, const char *, Boxed kernel) { return kernels[registered++] = kernel, 0; };
  f.delete_tensor = [](Handle handle) { return alive--, delete static_cast<Impl **>(handle), 0; };
  f.data_ptr = [](Handle handle, void **data) { return *data = of(handle).data, 0; };
  f.dim = [](Handle handle, int64_t *rank) { return *rank = static_cast<int64_t>(of(handle).sizes.size()), 0; };
  f.sizes = [](Handle handle, int64_t **sizes) { return *sizes = of(handle).sizes.data(), 0; };
  f.strides = [](Handle handle, int64_t **strides) { return *strides = of(handle).strides.data(), 0; };
  f.dtype = [](Handle handle, int32_t *dtype) { return *dtype = of(handle).dtype, 0; };
  f.device_type = [](Handle handle, int32_t *type) { return *type = of(handle).type, 0; };
  f.device_index = [](Handle handle, int32_t *index) { return *index = of(handle).index, 0; };
  f.empty_strided = [](int64_t rank, const int64_t *sizes, const int64_t *strides, int32_t dtype, int32_t type,
                       int32_t index, Handle *made) -> int32_t {
    if (!can_allocate) return 1;
    *made = hold(output_of(rank, sizes, strides, dtype, type, index));
    return 0;
  };
  f.grad_mode = [] { return gradients; };
  f.requires_grad = [](const void *impl) { return static_cast<const Impl *>(impl)->requires_grad; };
  f.current_stream = [](int32_t index, void **stream) { return *stream = reinterpret_cast<void *>(0x100 + index), 0; };
  f.create_guard = [](int32_t index, void **guard) -> int32_t {
    if (!can_guard) return 1;
    guards++, *guard = new int32_t(current_device), current_device = index;
    return 0;
  };
  f.delete_guard = [](void *guard) {
    guards--, current_device = *static_cast<int32_t *>(guard);
    return delete static_cast<int32_t *>(guard), 0;
  };
  f.current_device = [] { return static_cast<int8_t>(current_device); };
  f.empty_on_cuda = nullptr;
  return f;
}

int entry(const LoopTensor *inputs, LoopTensor *output, const double *attributes, void *stream) {
  std::printf("launch on device %d, stream %#lx, attributes %g %g %g, output %ld x %ld\n", current_device,
              reinterpret_cast<unsigned long>(stream), attributes[0], attributes[1], attributes[2], output->sizes[0],
              output->sizes[1]);
  const float *const x = static_cast<float *>(inputs[0].data), *const y = static_cast<float *>(inputs[1].data);
  static_cast<float *>(output->data)[0] = x[0] + y[0];
  return attributes[2] == 13 ? 13 : 0;
}

const char *explain(int) { return nullptr; }

LoopTorchOperator adding() {
  LoopTorchOperator op{};
  op.space = "loop_fake", op.name = "add", op.title = "loop_fake::add";
  op.entry = entry, op.explain = explain;
  op.device_type = kCuda, op.inputs = 2, op.attributes = 3, op.rank = 2, op.dtype = op.only = -1;
  op.accepted[kFloat] = 1;
  op.from_axis[1] = 1;
  for (int n = 0; n < 2; n++) {
    LoopTorchInput &input = op.input[n];
    input.name = n ? "y" : "x", input.dimensions = "N M", input.expects = "float32", input.rank = 2, input.dtype = -1;
    input.words[0] = "N", input.words[1] = "M", input.twin_axis[1] = 1;
  }
  op.attribute[0] = {"flag", "", kFlag, 0};
  op.attribute[1] = {"choice", "0 (no) or 1 (yes)", kChoice, 2};
  op.attribute[2] = {"number", "", kNumber, 0};
  return op;
}

void call(const char *what, Impl x, Impl y, double number = 0.5, int64_t choice = 1) {
  std::printf("%s: ", what);
  uint64_t stack[5] = {reinterpret_cast<uint64_t>(hold(&x)), reinterpret_cast<uint64_t>(hold(&y)), 1,
                       static_cast<uint64_t>(choice)};
  std::memcpy(&stack[4], &number, sizeof number);
  try {
    kernels[1](stack, 5, 1);
    const Handle output = reinterpret_cast<Handle>(stack[0]);
    std::printf("  output %g on device %d\n", of(output).data[0], of(output).index);
    torch.delete_tensor(output);
  } catch (const std::runtime_error &error) {
    std::printf("%s\n", error.what());
  }
  if (alive || guards || current_device)
    std::printf("  left: %d tensors, %d guards, device %d\n", alive, guards, current_device);
}

// What a library whose kernel needs 100 bytes gets from PyTorch.
void borrow(const LoopMemory *memory) {
  void *loan = nullptr, *const data = memory->take(100, &loan);
  if (!data) return (void)std::printf("lent: nothing, %d tensors\n", alive);
  std::printf("lent: %ld elements of type %d on device %d", of(loan).sizes[0], of(loan).dtype, of(loan).index);
  memory->give(loan);
  std::printf(", then %d tensors\n", alive);
}

// The way to an output past the dispatcher; without memory PyTorch throws.
Made shortcut(Extents sizes, Extents strides, int8_t dtype, Place place) {
  std::printf("by the shortcut, known %d: ", place.known);
  if (!can_allocate) throw std::runtime_error("out of memory");
  alive++;
  return {output_of(static_cast<int64_t>(sizes.count), sizes.data, strides.data, dtype, place.type, place.index)};
}

Impl with(Impl impl, void (*change)(Impl &)) { return change(impl), impl; }

}  // namespace

int main() {
  const LoopTorchFunctions functions = fake_torch();
  LoopTorchNumbers meanings{};
  meanings.dtypes[kFloat] = "float32", meanings.loop_dtypes[kFloat] = LOOP_FLOAT32, meanings.cuda = kCuda, meanings.byte = 7;
  loop_torch_start(&functions, &meanings, "loop_fake");
  const LoopTorchOperator op = adding();
  std::printf("registered: %d\n", loop_torch_register(&op));
  Impl x, y;
  x.data[0] = 1, y.data[0] = 2;
  call("right", x, y);
  call("from the processor", with(x, [](Impl &i) { i.type = kCpu, i.index = -1; }), y);
  call("two devices", x, with(y, [](Impl &i) { i.index = 0; }));
  call("unknown device", x, with(y, [](Impl &i) { i.type = 9; }));
  call("unknown type", x, with(y, [](Impl &i) { i.dtype = 63; }));
  call("type beyond the table", x, with(y, [](Impl &i) { i.dtype = 64; }));
  call("rank", x, with(y, [](Impl &i) { i.sizes = {2}; }));
  call("nine dimensions", with(x, [](Impl &i) { i.sizes.assign(9, 1), i.strides.assign(9, 1); }), y);
  call("sizes", x, with(y, [](Impl &i) { i.sizes[1] = 4; }));
  call("choice", x, y, 0.5, -1);
  call("declined", x, y, 13);
  can_allocate = false;
  call("no memory", x, y);
  loop_torch_lend(borrow);
  can_allocate = true, can_guard = false;
  call("no guard", x, y);
  can_guard = true, gradients = true;
  call("gradient", x, with(y, [](Impl &i) { i.requires_grad = true; }));
  gradients = false;
  call("gradient that nobody records", x, with(y, [](Impl &i) { i.requires_grad = true; }));
  loop_torch_lend(borrow);
  torch.empty_on_cuda = shortcut;
  call("right", x, y);
  can_allocate = false;
  call("no memory", x, y);
  int made = 1;
  while (loop_torch_register(&op) == 0) made++;
  std::printf("slots: %d, kernels: %d\n", made, registered - 1);
}
