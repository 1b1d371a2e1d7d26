// Attention for Hopper (sm_90a): one warp group copies, two or three compute.
//
//   copies    K and V come by tensor copies into rings of stages, Q into a place for each group; mbarriers say what is
//             there and what is used up. One thread does it; the others of its group only give their registers back.
//   computes  S = Q K^T of the next tile and O += P V of this one are begun together, from shared memory and from P in
//             registers; the softmax of the next tile runs under O += P V, and under the products of the other groups:
//             a named barrier lets groups begin their products in turn.
//
// The order of FlashAttention-3 (Shah et al., 2024). Blocks stay and take one piece of work after another (groups.cuh), so
// that keys and queries of the next are on their way while the last is finished. As in tensor_core, the last keys come
// first, because those are masked, and the reference in exponents stays while the maximum grows by less than 2^8.
// The output goes from registers to memory: four lanes exchange their parts of a row, so that each stores 16 bytes.
// Rows, keys and features that a tensor does not have are zeros of the tensor map.
#pragma once

#include <type_traits>

#include "costs.cuh"
#include "decode.cuh"
#include "dispatch.cuh"
#include "groups.cuh"
#include "loop_hopper.cuh"
#include "tiles.cuh"

namespace attention {

using namespace simt;

// Keys of a tile by features and groups that compute, from the manifest's `tuning`. Three groups share each tile of keys,
// two waste fewer rows. Above 128 features three have no registers for their output.
template <int kDepth, int kGroups>
struct GroupsOf;
template <>
struct GroupsOf<64, 3> : GroupShape<64, 3, ATTENTION_GROUPS_64_THREE> {};
template <>
struct GroupsOf<64, 2> : GroupShape<64, 2, ATTENTION_GROUPS_64_TWO> {};
template <>
struct GroupsOf<128, 3> : GroupShape<128, 3, ATTENTION_GROUPS_128_THREE> {};
template <>
struct GroupsOf<128, 2> : GroupShape<128, 2, ATTENTION_GROUPS_128_TWO> {};
template <>
struct GroupsOf<192, 2> : GroupShape<192, 2, ATTENTION_GROUPS_192_TWO> {};
template <>
struct GroupsOf<256, 2> : GroupShape<256, 2, ATTENTION_GROUPS_256_TWO> {};

// For measuring: always this kernel. Else the one that takes least time.
#if !defined(ATTENTION_GROUPS_ONLY)
#define ATTENTION_GROUPS_ONLY kKernels
#endif

struct Maps {
  TensorMap q, k, v;
};

constexpr float kFreeRise = 8.0f;  // Powers of two by which the maximum may grow before the reference follows.

// Where things lie in a block's shared memory.
template <class Shape>
struct Places {
  SharedAddress base;

  SIMT_DEVICE SharedAddress queries(unsigned group) const { return base + group * Shape::kQueryBytes; }
  SIMT_DEVICE SharedAddress keys(unsigned stage) const { return base + Shape::kKeysAt + stage * Shape::kTileBytes; }
  SIMT_DEVICE SharedAddress values(unsigned stage) const { return base + Shape::kValuesAt + stage * Shape::kTileBytes; }

  SIMT_DEVICE SharedAddress queries_there(unsigned group) const { return barrier(group); }
  SIMT_DEVICE SharedAddress queries_used(unsigned group) const { return barrier(Shape::kGroups + group); }
  SIMT_DEVICE SharedAddress keys_there(unsigned stage) const { return barrier(kRings + stage); }
  SIMT_DEVICE SharedAddress keys_used(unsigned stage) const { return barrier(kRings + Shape::kStages + stage); }
  SIMT_DEVICE SharedAddress values_there(unsigned stage) const { return barrier(kRings + 2 * Shape::kStages + stage); }
  SIMT_DEVICE SharedAddress values_used(unsigned stage) const { return barrier(kRings + 3 * Shape::kStages + stage); }

  // By one thread. What is there, one thread says and the copies' bytes do; what is used up, each warp that read it.
  SIMT_DEVICE void make_barriers() const {
    for (unsigned group = 0; group < Shape::kGroups; group++) {
      mbarrier_init(queries_there(group), 1);
      mbarrier_init(queries_used(group), 4);
    }
    for (unsigned stage = 0; stage < Shape::kStages; stage++) {
      mbarrier_init(keys_there(stage), 1);
      mbarrier_init(keys_used(stage), 4 * Shape::kGroups);
      mbarrier_init(values_there(stage), 1);
      mbarrier_init(values_used(stage), 4 * Shape::kGroups);
    }
    fence_async_proxy();
  }

 private:
  static constexpr unsigned kRings = 2 * Shape::kGroups;
  SIMT_DEVICE SharedAddress barrier(unsigned index) const { return base + Shape::kBarriersAt + 8 * index; }
};

// What blocks leave of rows whose keys others have too: finished rows, as elements, and for each the logarithm of what it
// weighs, as in `decode`. A block leaves its first piece and its last.
template <typename T>
struct Shares {
  T *rows;         // [slots, rows of a block, features]
  float *weights;  // [slots, rows of a block]
};

// The one thread that copies.
template <class Shape>
struct Producer {
  const Problem &problem;
  const Maps &maps;
  Places<Shape> places;
  Ring<Shape::kStages> keys = {}, values = {};
  unsigned queries_parity = 0;

  SIMT_DEVICE void load_queries(const Work &work) {
#pragma unroll 1
    for (unsigned group = 0; group < Shape::kGroups; group++) {
      const SharedAddress there = places.queries_there(group);
      mbarrier_wait(places.queries_used(group), queries_parity ^ 1);
      mbarrier_expect(there, Shape::kQueryBytes);
#pragma unroll
      for (int box = 0; box < Shape::kBoxes; box++)
        tensor_load(places.queries(group) + box * Shape::kQueryBox, maps.q, there, 64 * box,
                    work.row(static_cast<int>(group)), work.head, work.batch);
    }
    queries_parity ^= 1;
  }
  SIMT_DEVICE void load_keys(int tile, int head, int batch) {
    mbarrier_wait(places.keys_used(keys.stage), keys.parity ^ 1);
    load_tile(maps.k, places.keys(keys.stage), places.keys_there(keys.stage), tile, head, batch);
    keys.next();
  }
  SIMT_DEVICE void load_values(int tile, int head, int batch) {
    mbarrier_wait(places.values_used(values.stage), values.parity ^ 1);
    load_tile(maps.v, places.values(values.stage), places.values_there(values.stage), tile, head, batch);
    values.next();
  }
  SIMT_DEVICE void load(const Work &work) {
    const int head = static_cast<int>((static_cast<unsigned>(work.head) + uint64_t(1)) * problem.share >> 32);
    if (work.begin == work.end) return;
    load_keys(work.end - 1, head, work.batch);
    load_queries(work);
#pragma unroll 1
    for (int tile = work.end - 1; tile > work.begin; tile--) {
      load_keys(tile - 1, head, work.batch);
      load_values(tile, head, work.batch);
    }
    load_values(work.begin, head, work.batch);
  }

 private:
  SIMT_DEVICE static void load_tile(const TensorMap &map, SharedAddress place, SharedAddress there, int tile, int head,
                                    int batch) {
    mbarrier_expect(there, Shape::kTileBytes);
#pragma unroll
    for (int box = 0; box < Shape::kBoxes; box++)
      tensor_load(place + box * Shape::kKeyBox, map, there, 64 * box, tile * Shape::kKeys, head, batch);
  }
};

// One thread of a warp group that computes: its part of 64 query rows. It has rows lane/4 and lane/4 + 8 of its warp's 16
// and, of every eight columns, 2 (lane mod 4) and the one after it; P comes out of the first product as the second wants it.
template <typename T, class Shape, bool kShares>
struct Consumer {
  static constexpr int kDepth = Shape::kDepth, kKeys = Shape::kKeys;

  const Problem &problem;
  Places<Shape> places;
  unsigned group, warp, lane;  // The warp in its group.
  Ring<Shape::kStages> keys, values;
  unsigned queries_parity = 0;

  float output[kDepth / 2], logits[kKeys / 2];
  uint32_t weights[kKeys / 16][4];
  float top[2];  // The reference in exponents, before scaling; -inf until a key was seen.
  float sum[2];  // Of the weights in this lane's columns.

  SIMT_DEVICE Consumer(const Problem &problem, Places<Shape> places, unsigned group, unsigned thread)
      : problem(problem), places(places), group(group), warp(thread / 32), lane(thread % 32) {}

  SIMT_DEVICE void take(const Work &work, const Shares<T> &shares) {
    const int begin = work.begin;
    const int group_row = work.row(static_cast<int>(group));
    const int own_row = group_row + static_cast<int>(16 * warp + lane / 4);
    const bool has_rows = static_cast<int>(group) < work.groups && group_row < problem.queries;
    // Tiles from this one on have keys that no row of the group may see, and from that one on, some row.
    const int hidden = has_rows ? (visible_keys(problem, group_row + 63) + kKeys - 1) / kKeys : 0;
    const int edge = visible_keys(problem, group_row) / kKeys;
    start();
    if (work.end > begin) {
      mbarrier_wait(places.queries_there(group), queries_parity);
      if (problem.negative) turn_signs();
      queries_parity ^= 1;
      int tile = work.end - 1;
#pragma unroll 1
      for (; tile >= begin && tile >= hidden; tile--) pass_over(tile == begin, tile < work.end - 1);
      if (tile >= begin) {
        first_step(tile, own_row, tile == begin, tile < work.end - 1);
        tile--;
#pragma unroll 1
        for (; tile >= begin && tile >= edge; tile--) step<true>(tile, own_row, tile == begin);
#pragma unroll 1
        for (; tile >= begin; tile--) step<false>(tile, own_row, tile == begin);
        last_values();
      }
    }
    if (has_rows) finish(work, own_row, shares);
  }

 private:
  SIMT_DEVICE void start() {
#pragma unroll
    for (int i = 0; i < kDepth / 2; i++) output[i] = 0.0f;
    top[0] = top[1] = kMasked;
    sum[0] = sum[1] = 0.0f;
  }

  // Of all queries of the group, where the scale is negative.
  SIMT_DEVICE void turn_signs() {
    constexpr uint32_t kSigns = 0x80008000u;
#pragma unroll 1
    for (unsigned at = (warp * 32 + lane) * 16; at < Shape::kQueryBytes; at += 16 * kWarpGroup) {
      Words4 words = shared_load<Words4>(places.queries(group) + at);
      words.x ^= kSigns, words.y ^= kSigns, words.z ^= kSigns, words.w ^= kSigns;
      shared_store(places.queries(group) + at, words);
    }
    fence_async_proxy();
    named_barrier_sync(1 + Shape::kGroups + group, kWarpGroup);
  }

  // logits = Q K^T for one tile, begun.
  SIMT_DEVICE void multiply_keys() {
    constexpr uint64_t kLines = kOperandLayout<16, 8 * Shape::kLine>;
    const uint64_t a = operand_at(kLines, places.queries(group)), b = operand_at(kLines, places.keys(keys.stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kDepth / 16; step++) {
      const int box = step / 4, within = step % 4 * 32;
      wgmma_shared<T>(logits, a + ((box * Shape::kQueryBox + within) >> 4), b + ((box * Shape::kKeyBox + within) >> 4),
                      step > 0);
    }
    wgmma_commit();
  }
  // output += P V for one tile, begun.
  SIMT_DEVICE void multiply_values() {
    constexpr uint64_t kColumns = kOperandLayout<Shape::kKeyBox, 8 * Shape::kLine>;
    const uint64_t b = operand_at(kColumns, places.values(values.stage));
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < kKeys / 16; step++)
      wgmma_registers<T>(output, weights[step], b + (step * 16 * Shape::kLine >> 4));
    wgmma_commit();
  }

  SIMT_DEVICE void release(SharedAddress used) const {
    if (lane == 0) mbarrier_arrive(used);
  }
  SIMT_DEVICE void release_keys(bool last) {
    release(places.keys_used(keys.stage));
    keys.next();
    if (last) release(places.queries_used(group));
  }
  SIMT_DEVICE void release_values() {
    release(places.values_used(values.stage));
    values.next();
  }

  // Groups begin the products of a tile in turn, but for those of a piece's first tile.
  SIMT_DEVICE void wait_for_turn() const { named_barrier_sync(1 + group, 2 * kWarpGroup); }
  SIMT_DEVICE void pass_turn() const {
    named_barrier_arrive(1 + (group + 1 == Shape::kGroups ? 0 : group + 1), 2 * kWarpGroup);
  }

  // A tile of which this group sees nothing.
  SIMT_DEVICE void pass_over(bool last, bool in_turn) {
    if (in_turn) wait_for_turn(), pass_turn();
    mbarrier_wait(places.keys_there(keys.stage), keys.parity);
    release_keys(last);
    mbarrier_wait(places.values_there(values.stage), values.parity);
    release_values();
  }

  SIMT_DEVICE void first_step(int tile, int own_row, bool last, bool in_turn) {
    mbarrier_wait(places.keys_there(keys.stage), keys.parity);
    if (in_turn) wait_for_turn();
    multiply_keys();
    if (in_turn) pass_turn();
    wgmma_wait<0>();
    hold(logits);
    release_keys(last);
    mask(tile, own_row);
    float shrink[2];
    weigh(shrink);
    pack_weights();
  }

  // The products of the values of the tile before and of this tile's keys; then this one's softmax.
  template <bool kEdge>
  SIMT_DEVICE void step(int tile, int own_row, bool last) {
    mbarrier_wait(places.keys_there(keys.stage), keys.parity);
    wait_for_turn();
    multiply_keys();
    mbarrier_wait(places.values_there(values.stage), values.parity);
    multiply_values();
    pass_turn();
    wgmma_wait<1>();
    hold(logits);
    release_keys(last);
    if constexpr (kEdge) mask(tile, own_row);
    float shrink[2];
    const bool rises = weigh(shrink);
    wgmma_wait<0>();
    hold(output);
    release_values();
    if (rises) rescale(shrink);
    pack_weights();
  }

  SIMT_DEVICE void last_values() {
    mbarrier_wait(places.values_there(values.stage), values.parity);
    multiply_values();
    wgmma_wait<0>();
    hold(output);
    release_values();
  }

  // Scores that a row may not see become -inf.
  SIMT_DEVICE void mask(int tile, int own_row) {
    const int first = tile * kKeys + static_cast<int>(lane % 4 * 2);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int shown = last_key(problem, own_row + 8 * half) - first;
#pragma unroll
      for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
          if (8 * n + i > shown) logits[4 * n + 2 * half + i] = kMasked;
    }
  }

  // The exponent that is subtracted; 0 while a row has seen no key, so that -inf minus it stays -inf.
  SIMT_DEVICE static float reference(float top, float scale_log2) { return top == kMasked ? 0.0f : top * scale_log2; }

  // Logits become weights. Whether the output has to follow a new reference, and by which factors.
  SIMT_DEVICE bool weigh(float (&shrink)[2]) {
    const float scale_log2 = problem.scale_log2;
    float highest[2];
#pragma unroll
    for (int half = 0; half < 2; half++) highest[half] = row_maximum(half);
    const bool rises = warp_any((highest[0] - top[0]) * scale_log2 > kFreeRise ||
                                (highest[1] - top[1]) * scale_log2 > kFreeRise);
    if (rises) {
#pragma unroll
      for (int half = 0; half < 2; half++) {
        shrink[half] = exp2_approx(top[half] * scale_log2 - reference(highest[half], scale_log2));
        top[half] = highest[half];
        sum[half] *= shrink[half];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) exponentiate(half, scale_log2);
    return rises;
  }
  SIMT_DEVICE float row_maximum(int half) const {
    float highest[2] = {top[half], top[half]};
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++)
      highest[n % 2] = fmaxf(highest[n % 2], fmaxf(logits[4 * n + 2 * half], logits[4 * n + 2 * half + 1]));
    const float own = fmaxf(highest[0], highest[1]), pair = fmaxf(own, shuffle_xor(own, 1));
    return fmaxf(pair, shuffle_xor(pair, 2));
  }
  SIMT_DEVICE void exponentiate(int half, float scale_log2) {
    const float subtracted = reference(top[half], scale_log2);
    float added[2] = {0.0f, 0.0f};
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
      for (int i = 0; i < 2; i++) {
        float &logit = logits[4 * n + 2 * half + i];
        logit = exp2_approx(logit * scale_log2 - subtracted);
        added[i] += logit;
      }
    sum[half] += added[0] + added[1];
  }
  SIMT_DEVICE void rescale(const float (&shrink)[2]) {
#pragma unroll
    for (int n = 0; n < kDepth / 8; n++)
#pragma unroll
      for (int i = 0; i < 4; i++) output[4 * n + i] *= shrink[i / 2];
  }
  SIMT_DEVICE void pack_weights() {
#pragma unroll
    for (int n = 0; n < kKeys / 8; n++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        weights[n / 2][n % 2 * 2 + half] = pack<T>(logits[4 * n + 2 * half], logits[4 * n + 2 * half + 1]);
  }

  // Rows are divided by their sums and stored; one that saw no key is zero, NaN stays.
  SIMT_DEVICE void finish(const Work &work, int own_row, const Shares<T> &shares) {
    const Strides &strides = problem.o_strides;
    T *rows = static_cast<T *>(problem.o) + work.head * strides.head + work.batch * strides.batch + own_row * strides.row;
    int64_t stride = strides.row;
    const bool part = kShares && work.slot >= 0;
    const int place = work.slot * Shape::kRows + own_row - work.first_row;
    if (part) rows = shares.rows + int64_t(place) * kDepth, stride = kDepth;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float total = sum[half];
      total += shuffle_xor(total, 1);
      total += shuffle_xor(total, 2);
      const float factor = total == 0.0f ? 0.0f : reciprocal_approx(total);
      const int row = own_row + 8 * half;
#pragma unroll
      for (int n = 0; n < kDepth / 8; n += 4) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
          const float *pair = &output[4 * (n + i) + 2 * half];
          words[i] = pack<T>(pair[0] * factor, pair[1] * factor);
        }
        exchange(words);
        const int feature = 8 * (n + static_cast<int>(lane % 4));
        if (row < problem.queries && feature < problem.depth)
          global_store(reinterpret_cast<Words4 *>(rows + 8 * half * stride + feature),
                       Words4{words[0], words[1], words[2], words[3]});
      }
      if (part && lane % 4 == 0 && row < problem.queries)
        global_store(shares.weights + place + 8 * half,
                     total == 0.0f ? kMasked : top[half] * problem.scale_log2 + log2f(total));
    }
  }
  // Four lanes, each with a word of each of four pieces: afterwards each has one piece.
  SIMT_DEVICE void exchange(uint32_t (&words)[4]) const {
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2) {
      const bool upper = lane & bit;
#pragma unroll
      for (int i = 0; i < 4; i++) {
        if (i & bit) continue;
        const uint32_t other = shuffle_xor(upper ? words[i] : words[i | bit], bit);
        (upper ? words[i] : words[i | bit]) = other;
      }
    }
  }
};

template <typename T, class Shape, class Schedule>
__global__ void __launch_bounds__(Shape::kThreads, 1)
    warp_specialized_kernel(const Problem problem, const __grid_constant__ Schedule schedule,
                            const __grid_constant__ Maps maps, const Shares<T> shares) {
  const Places<Shape> places{shared_base()};
  const unsigned thread = threadIdx.x, group = uniform(thread / kWarpGroup);
  if (thread == 0) {
    places.make_barriers();
    prefetch_tensor_map(maps.q), prefetch_tensor_map(maps.k), prefetch_tensor_map(maps.v);
  }
  __syncthreads();
  wait_for_previous();

  if (group == 0) {
    registers_down<Shape::kFewRegisters>();
    if (thread == 0) {
      Producer<Shape> producer{problem, maps, places};
#pragma unroll 1
      for (typename Schedule::Pieces pieces(schedule); pieces.more(); pieces.next())
        producer.load(pieces.work(problem, Shape::kKeys));
      allow_next();
    }
  } else {
    registers_up<Shape::kManyRegisters>();
    Consumer<T, Shape, std::is_same_v<Schedule, EvenSchedule>> consumer(problem, places, group - 1, thread % kWarpGroup);
    if (group == Shape::kGroups) named_barrier_arrive(1, 2 * kWarpGroup);  // The first begins.
#pragma unroll 1
    for (typename Schedule::Pieces pieces(schedule); pieces.more(); pieces.next())
      consumer.take(pieces.work(problem, Shape::kKeys), shares);
  }
}

// Second kernel: rows at which a share ends. A block has 32 rows of a tile, 8 lanes for each.
struct Joining {
  static constexpr int kThreads = 256, kLanes = 8, kRows = kThreads / kLanes;
  static constexpr int kHeld = 3;  // Parts that a lane asks for before it uses one.
};

template <typename T, class Shape>
__global__ void __launch_bounds__(Joining::kThreads)
    join_kernel(const Problem problem, const __grid_constant__ EvenSchedule schedule, const Shares<T> shares) {
  using J = Joining;
  allow_next();
  const int block = static_cast<int>(blockIdx.x) + 1, thread = static_cast<int>(threadIdx.x);
  const Place before = schedule.starts[block - 1], own = schedule.starts[block];
  const Work work = schedule.at(problem, own.tile);
  const int local = static_cast<int>(blockIdx.y) * J::kRows + thread / J::kLanes, query = work.first_row + local;
  const int feature = thread % J::kLanes * 8;
  wait_for_previous();
  // A tile is put together where the first share begins within it.
  if (!own.step || (before.tile == own.tile && before.step) || query >= problem.queries) return;
  int parts = 2;
  while (schedule.starts[block + parts - 1].tile == own.tile) parts++;

  float highest = kMasked, total = 0.0f, values[Shape::kBoxes][8] = {};
  for (int first = 0; first < parts; first += J::kHeld) {
    float weights[J::kHeld];
    Words4 held[J::kHeld][Shape::kBoxes] = {};
#pragma unroll
    for (int i = 0; i < J::kHeld; i++) {
      weights[i] = kMasked;
      const int part = first + i;
      if (part >= parts) continue;
      // The first is the last that the block before has, the others are the first of theirs.
      const int slot = part ? 2 * (block + part - 1) : 2 * (block - 1) + (before.tile != own.tile);
      const int64_t place = slot * Shape::kRows + local;
      weights[i] = global_load(shares.weights + place);
      const T *const row = shares.rows + place * Shape::kDepth + feature;
#pragma unroll
      for (int box = 0; box < Shape::kBoxes; box++)
        if (feature + 64 * box < problem.depth)
          held[i][box] = global_load(reinterpret_cast<const Words4 *>(row + 64 * box));
    }
    float now = highest;
    for (const float weight : weights) now = fmaxf(now, weight);
    const float subtracted = now == kMasked ? 0.0f : now, shrink = exp2_approx(highest - subtracted);
    highest = now, total *= shrink;
    for (auto &box : values)
      for (float &value : box) value *= shrink;
#pragma unroll
    for (int i = 0; i < J::kHeld; i++) {
      const float weight = exp2_approx(weights[i] - subtracted);
      total += weight;
#pragma unroll
      for (int box = 0; box < Shape::kBoxes; box++) add_piece<T>(values[box], weight, held[i][box]);
    }
  }
  const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);
  const Strides &strides = problem.o_strides;
  T *const row = static_cast<T *>(problem.o) + work.head * strides.head + work.batch * strides.batch +
                 query * strides.row + feature;
#pragma unroll
  for (int box = 0; box < Shape::kBoxes; box++) {
    const float(&v)[8] = values[box];
    if (feature + 64 * box < problem.depth)
      global_store(reinterpret_cast<Words4 *>(row + 64 * box),
                   Words4{pack<T>(v[0] * inverse, v[1] * inverse), pack<T>(v[2] * inverse, v[3] * inverse),
                          pack<T>(v[4] * inverse, v[5] * inverse), pack<T>(v[6] * inverse, v[7] * inverse)});
  }
}

// What a copy reads of queries, keys or values. False where the strides are none of a tensor map.
inline bool make_map(TensorMap &map, const void *data, bool half, int64_t depth, int64_t rows, int64_t heads,
                     int64_t batches, const Strides &strides, int box_rows) {
  const int64_t sizes[4] = {depth, std::max<int64_t>(rows, 1), heads, batches};
  int64_t steps[3] = {strides.row, strides.head, strides.batch};
  for (int i = 0; i < 3; i++)
    if (sizes[i + 1] == 1) steps[i] = (depth + 7) / 8 * 8;  // Does not count; a map wants one all the same.
  return encode_tensor_map(map, data, half, sizes, steps, box_rows);
}

// What a tensor map can step by: forwards, less than 2^40 bytes.
inline bool has_map_strides(const Strides &strides, int rows, int heads, int batches) {
  const auto fits = [](int64_t stride, int count) { return count <= 1 || (stride > 0 && stride < int64_t(1) << 39); };
  return fits(strides.row, rows) && fits(strides.head, heads) && fits(strides.batch, batches);
}

// Whether tensor maps can describe queries, keys and values.
inline bool is_mappable(const Problem &problem) {
  const int shared_heads = problem.heads / problem.group;
  return has_map_strides(problem.q_strides, problem.queries, problem.heads, problem.batches) &&
         has_map_strides(problem.k_strides, problem.keys, shared_heads, problem.batches) &&
         has_map_strides(problem.v_strides, problem.keys, shared_heads, problem.batches);
}

template <typename T, class Shape>
Error launch_warp_specialized(const Problem &problem, Kernel kernel, cudaStream_t stream) {
  const bool half = std::is_same<T, __half>::value;
  const int shared_heads = problem.heads / problem.group;
  const void *const keys = problem.keys ? problem.k : problem.q, *const values = problem.keys ? problem.v : problem.q;
  if (!is_mappable(problem)) return kUntakenStrides;
  if (int64_t(problem.heads) * problem.batches * ((problem.queries - 1) / 64 + 1) > 1 << 30) return kTooLarge;
  Maps maps;
  const bool made = make_map(maps.q, problem.q, half, problem.depth, problem.queries, problem.heads, problem.batches,
                             problem.q_strides, 64) &&
                    make_map(maps.k, keys, half, problem.depth, problem.keys, shared_heads, problem.batches,
                             problem.k_strides, Shape::kKeys) &&
                    make_map(maps.v, values, half, problem.depth, problem.keys, shared_heads, problem.batches,
                             problem.v_strides, Shape::kKeys);
  if (!made) return kLaunchFailed;

  const dim3 block(Shape::kThreads);
  if constexpr (Shape::kGroups == 3) {
    if (kernel == kEven) {
      const EvenSchedule schedule = even_schedule(problem, Shape::kGroups, Shape::kKeys);
      const int64_t rows = 2 * kSms * Shape::kRows;
      const Workspace workspace(rows * (Shape::kDepth * sizeof(T) + sizeof(float)), stream);
      T *const data = static_cast<T *>(workspace.data());
      if (!data) return kOutOfMemory;
      const Shares<T> shares{data, reinterpret_cast<float *>(data + rows * Shape::kDepth)};
      const dim3 grid(schedule.blocks), joining(schedule.blocks - 1, Shape::kRows / Joining::kRows);
      const bool launched =
          launch_early<warp_specialized_kernel<T, Shape, EvenSchedule>>(grid, block, Shape::kSharedBytes, stream, problem,
                                                                        schedule, maps, shares) &&
          launch_early<join_kernel<T, Shape>>(joining, dim3(Joining::kThreads), 0, stream, problem, schedule, shares);
      return launched ? kSuccess : kLaunchFailed;
    }
  }
  const Schedule schedule = make_schedule(problem, kernel == kOneGroup ? 1 : Shape::kGroups, kernel == kFolded);
  const dim3 grid(static_cast<unsigned>(std::min<int64_t>(kSms, schedule.pieces)));
  const bool launched = launch_early<warp_specialized_kernel<T, Shape, Schedule>>(grid, block, Shape::kSharedBytes, stream,
                                                                                  problem, schedule, maps, Shares<T>{});
  return launched ? kSuccess : kLaunchFailed;
}

// Of more tiles than these the last round is short beside the others, and to share them out takes the host more than 10 us.
inline bool is_worth_sharing(const Problem &problem) {
  return int64_t(problem.heads) * problem.batches * ((problem.queries - 1) / 192 + 1) <= 16 * kSms;
}

// How each of the kernels that `warp_specialized` is divides a call.
template <int kDepth>
Tiling groups_tiling(Kernel kernel, const Problem &problem) {
  if constexpr (kDepth <= 128)
    if (kernel == kThreeGroups || (kernel == kEven && is_worth_sharing(problem))) return {192, GroupsOf<kDepth, 3>::kKeys};
  if (kernel == kTwoGroups) return {128, GroupsOf<kDepth, 2>::kKeys};
  if (kernel == kFolded && problem.causal && problem.queries > 64) return {128, GroupsOf<kDepth, 2>::kKeys};
  if (kernel == kOneGroup && problem.causal) return {64, GroupsOf<kDepth, 2>::kKeys};
  return {};
}

// The one of them that takes least time.
template <int kDepth>
Kernel fastest_groups(const Problem &problem) {
  if (ATTENTION_GROUPS_ONLY != kKernels) return ATTENTION_GROUPS_ONLY;
  Kernel best = kTwoGroups;
  double least = INFINITY;
  for (const Kernel kernel : {kThreeGroups, kTwoGroups, kFolded, kOneGroup, kEven})
    if (const double time = estimate<kDepth>(kernel, problem, groups_tiling<kDepth>(kernel, problem)); time < least)
      best = kernel, least = time;
  return best;
}

template <typename T, int kDepth>
Error warp_specialized(const Problem &problem, cudaStream_t stream) {
  const Kernel kernel = fastest_groups<kDepth>(problem);
  if constexpr (kDepth <= 128)
    if (kernel == kThreeGroups || kernel == kEven)
      return launch_warp_specialized<T, typename GroupsOf<kDepth, 3>::Base>(problem, kernel, stream);
  return launch_warp_specialized<T, typename GroupsOf<kDepth, 2>::Base>(problem, kernel, stream);
}

}  // namespace attention
