// What Hopper adds: mbarriers, tensor copies, named barriers, products of a warp group, setmaxnreg.
//
// Right, a kernel of 256 threads multiplies two tiles: thread 0 of the first warp group copies, the second one computes. Each
// fault is one line of it that is missing or wrong, chosen by a bit of `faults`.
#include "fixture.cuh"
#include "loop_hopper.cuh"

struct Maps {
  TensorMap a, b;
};

enum Fault : unsigned {
  kNoWait = 1 << 0,           // Operands are multiplied before they are there.
  kWrongPhase = 1 << 1,       // The other parity is waited for.
  kOverwritten = 1 << 2,      // The stage is copied over without waiting for those who read it.
  kReleasedEarly = 1 << 3,    // It is said to be used before the product has ended.
  kNoProxyFence = 1 << 4,     // Numbers that threads wrote are multiplied without fence.proxy.async.
  kNoBarrier = 1 << 5,        // The same, fenced, but nobody waits for the other warps.
  kWrongStride = 1 << 6,      // A descriptor's stride is of sixteen lines.
  kWrongAddress = 1 << 7,     // A descriptor begins eight lines into the other operand.
  kNoProductFence = 1 << 8,   // wgmma.fence is missing.
  kNoProductWait = 1 << 9,    // Sums are used at once.
  kNotCommitted = 1 << 10,    // The product belongs to no group that is waited for.
  kFewBytes = 1 << 11,        // Half the bytes are expected.
  kManyBytes = 1 << 12,       // Twice.
  kManyArrivals = 1 << 13,    // A thread arrives once more than a phase takes.
  kUnfencedBarrier = 1 << 14, // mbarriers are not fenced for the copies.
  kUnmetBarrier = 1 << 15,    // Nor do threads meet after they are made.
  kNoRegisters = 1 << 16,     // Registers are asked for that nobody gave.
  kOtherCount = 1 << 17,      // A named barrier for more threads than come.
  kSumsChanged = 1 << 18,     // Sums are written while the product is on its way.
  kThreeWarps = 1 << 19,      // One warp of the group stays away.
  kMisplaced = 1 << 20,       // A copy to no multiple of 128 bytes.
  kNeverMade = 1 << 21,       // An mbarrier that nobody has made.
  kOutside = 1 << 22,         // A descriptor beyond the end of shared memory.
  kNotHeld = 1 << 24,         // Nothing tells the compiler that the sums changed when they were waited for.
  kLastReadEarly = 1 << 23,   // Threads read what a copy brings before it is there.
};

constexpr uint32_t kTile = 64 * 128;  // Bytes of 64 lines.
constexpr uint32_t kA = 0, kB = kTile, kBarriers = 2 * kTile;

__global__ void __launch_bounds__(256, 1)
    product_kernel(const __grid_constant__ Maps maps, float *output, unsigned faults, int rounds, int first_row) {
  const unsigned thread = threadIdx.x, group = uniform(thread / kWarpGroup), lane = thread % 32;
  const SharedAddress base = shared_base(), there = base + kBarriers, used = there + 8;
  const auto bad = [faults](Fault fault) { return (faults & fault) != 0; };
  if (thread == 0) {
    mbarrier_init(there, 1);  // product: makes
    mbarrier_init(used, 4);
    if (!bad(kUnfencedBarrier)) fence_async_proxy();
  }
  if (!bad(kUnmetBarrier)) __syncthreads();

  if (group == 0) {
    if (!bad(kNoRegisters)) registers_down<128>();
    for (int round = 0; thread == 0 && round < rounds; round++) {
      if (!bad(kOverwritten)) mbarrier_wait(used, (round & 1) ^ 1);
      mbarrier_expect(there, bad(kFewBytes) ? kTile : bad(kManyBytes) ? 4 * kTile : 2 * kTile);
      if (bad(kManyArrivals)) mbarrier_arrive(there);
      tensor_load(base + kA + (bad(kMisplaced) ? 64 : 0), maps.a, bad(kNeverMade) ? used + 8 : there, 0, first_row, 0, 0);
      tensor_load(base + kB, maps.b, there, 0, 0, 0, 0);  // product: copies
    }
    return;
  }

  registers_up<256>();
  float sums[32];
  for (float &sum : sums) sum = 0.0f;
  for (int round = 0; round < rounds; round++) {
    if (!bad(kNoWait) && !bad(kLastReadEarly)) mbarrier_wait(there, (round & 1) ^ (bad(kWrongPhase) ? 1 : 0));
    if (bad(kLastReadEarly)) shared_load<float>(base + kA + 4 * lane);
    const SharedAddress own = base + kA + thread % kWarpGroup * 16;
    shared_store(own, shared_load<Words4>(own));  // product: writes
    if (!bad(kNoProxyFence)) fence_async_proxy();
    if (!bad(kNoBarrier)) named_barrier_sync(1, bad(kOtherCount) ? 2 * kWarpGroup : kWarpGroup);
    const uint64_t layout = bad(kWrongStride) ? kOperandLayout<16, 2048> : kOperandLayout<16, 1024>;
    const SharedAddress from = bad(kOutside) ? base + kBarriers : base + (bad(kWrongAddress) ? kA + 1024 : kB);
    if (bad(kThreeWarps) && thread >= 224) return;
    if (!bad(kNoProductFence)) wgmma_fence();
    for (unsigned step = 0; step < 4; step++)
      wgmma_shared<__half>(sums, operand_at(layout, base + kA) + 2 * step, operand_at(layout, from) + 2 * step, true);  // product: multiplies
    if (!bad(kNotCommitted)) wgmma_commit();
    if (bad(kReleasedEarly) && lane == 0) mbarrier_arrive(used);
    if (bad(kSumsChanged)) sums[3] = 1.0f;
    if (!bad(kNoProductWait)) wgmma_wait<0>();
    if (!bad(kNotHeld)) hold(sums);
    if (!bad(kReleasedEarly) && lane == 0) mbarrier_arrive(used);
  }
  const unsigned row = thread % kWarpGroup / 32 * 16 + lane / 4;
  for (int i = 0; i < 32; i++)
    global_store(output + (row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[i]);
}

// c = rounds * a b^T: a has `rows` rows of `columns` halves from row `first_row` on, b 64; what is missing is zero.
extern "C" const char *product(const void *a, const void *b, float *output, long faults, long rounds, long rows, long columns,
                               long first_row) {
  Maps maps;
  withdraw_all();
  expose(a, static_cast<size_t>(rows * columns * 2), "a", false);
  expose(b, static_cast<size_t>(64 * columns * 2), "b", false);
  expose(output, 64 * 64 * 4, "the output", true);
  const int64_t strides[3] = {columns, rows * columns, rows * columns}, shorter[3] = {columns, 64 * columns, 64 * columns};
  if (encode_tensor_map(maps.a, a, true, {columns, rows, 1, 1}, strides, 64) &&
      encode_tensor_map(maps.b, b, true, {columns, 64, 1, 1}, shorter, 64))
    launch<product_kernel>(dim3(1), dim3(256), kBarriers + 16, nullptr, maps, output, static_cast<unsigned>(faults),
                           static_cast<int>(rounds), static_cast<int>(first_row));
  return launch_error();
}

// Keys in lines, multiplied from registers: c = a v, where v is 16 lines of 64.
__global__ void __launch_bounds__(128, 1) lines_kernel(const __grid_constant__ TensorMap map, float *output) {
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const SharedAddress there = shared_base() + kTile;
  if (thread == 0) {
    mbarrier_init(there, 1);
    fence_async_proxy();
    mbarrier_expect(there, 16 * 128);
    tensor_load(shared_base(), map, there, 0, 0, 0, 0);
  }
  __syncthreads();
  mbarrier_wait(there, 0);
  float sums[32];
  for (float &sum : sums) sum = 0.0f;
  // a [row, k] = 1 where k is the row modulo 16.
  uint32_t a[4];
  for (unsigned part = 0; part < 4; part++) {
    const unsigned row = lane / 4 + part % 2 * 8, column = lane % 4 * 2 + part / 2 * 8;
    a[part] = pack<__half>(column == row ? 1.0f : 0.0f, column + 1 == row ? 1.0f : 0.0f);
  }
  wgmma_fence();
  wgmma_registers<__half>(sums, a, operand_at(kOperandLayout<1024, 1024>, shared_base()));
  wgmma_commit();
  wgmma_wait<0>();
  hold(sums);
  const unsigned row = thread / 32 * 16 + lane / 4;
  for (int i = 0; i < 32; i++)
    global_store(output + (row + i / 2 % 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[i]);
}
extern "C" const char *lines(const void *values, float *output) {
  TensorMap map;
  withdraw_all();
  expose(values, 16 * 64 * 2, "values", false);
  expose(output, 64 * 64 * 4, "the output", true);
  if (encode_tensor_map(map, values, true, {64, 16, 1, 1}, {64, 1024, 1024}, 16))
    launch<lines_kernel>(dim3(1), dim3(128), kTile + 8, nullptr, map, output);
  return launch_error();
}

// What the driver would decline.
extern "C" const char *map_of(const void *data, long rows, long stride, long box_rows) {
  TensorMap map;
  encode_tensor_map(map, data, true, {64, rows, 1, 1}, {stride, 1024, 1024}, static_cast<int>(box_rows));
  return launch_error();
}
