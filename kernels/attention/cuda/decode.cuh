// Attention for few queries over many keys: all a call can do is read K and V once, as fast as memory gives them.
//
// A block takes 16 query rows of one head and a range of its keys; there are as many ranges as keep every
// multiprocessor reading, whatever batches times heads are. Inside the block each warp walks tiles of keys of its own
// by way of a ring of kStages stages, one tile of keys and one of values each: it takes in the oldest and at once asks
// for another in its place, so that it waits for nobody, and kStages - 1 stages or more are always on their way.
//   bytes that one multiprocessor has to have on their way: 4.8 TB/s * 0.8 us / 132 = 29 KB on an H200, 3 KB on an L4
//   a warp's ring, 3 stages of 8 KB: 24 KB; four warps a block, 96 KB; an L4 holds one block, an H200 two
// Of the 16 rows of an mma a single query uses one: the tensor cores have time for that. A tile of 8 KB takes about
// 250 instructions, and the multiprocessor's share of an H200's memory leaves 1,600 issue slots for it.
//
// The warps' outputs are merged in shared memory, as in `small`. Where a head has several ranges, each block leaves its
// merged rows in the workspace, and whoever comes last reduces them in the same way: its warps divide the ranges, then
// merge. Where that would be long for one block, a second launch does it, a block for each row.
//
// Shared memory: kWarps kStages 4 kKeys D bytes; the queries lie in the last stage of the first warp's ring until all
// have them in registers, and the merge area over everything in the end.
//   D = 64, 32 keys, 4 warps, 3 stages: 96 KB.   D = 128, 16 keys, 4 warps: 96 KB.   D = 256, 16 keys, 2 warps: 96 KB.
// Registers: D/2 for outputs, D/4 for queries, kKeys/2 for logits: 104 of 255 at D = 128.
// Workspace: ranges * 4 (D + 2) bytes for each row, and 8 for each head's counter.
#pragma once

#include "small.cuh"

namespace attention {

template <int kDepth_, int kKeys_, int kWarps_, int kStages_>
struct DecodeShape {
  static constexpr int kDepth = kDepth_, kKeys = kKeys_, kWarps = kWarps_, kStages = kStages_, kRows = 16;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kTileBytes = kKeys * kDepth * 2, kStageBytes = 2 * kTileBytes, kRingBytes = kStages * kStageBytes;
  static constexpr int kQueriesAt = kRingBytes - kStageBytes;
  static constexpr int kMergePitch = kDepth + 8;  // Floats: rows begin in different banks.
  static constexpr int kMergeBytes = kWarps * kRows * (kMergePitch + 2) * 4;
  static constexpr int kSharedBytes = kWarps * kRingBytes;
  static constexpr int kBlocks = (200 << 10) / kSharedBytes;  // That a multiprocessor of an H200 is to hold.

  static_assert(kKeys % 16 == 0, "keys: a multiple of 16, the depth of an mma");
  static_assert(kStages >= 2, "stages: one to take in, and one on its way");
  static_assert(kStageBytes >= kRows * kDepth * 2, "queries: they have to fit into a stage");
  static_assert(kMergeBytes <= kSharedBytes, "merge area: it has to lie within the rings");
  static_assert(kSharedBytes <= 101376, "shared memory: a block of an L4 may have 99 KB");
};

// The ranges that keys are cut into, and where their results lie.
struct Ranges {
  float *values;       // [batches, heads, ranges, queries, kDepth]: weighted sums of values
  Floats2 *sums;       // [batches, heads, ranges, queries]: the reference of a row's weights, and their sum
  uint64_t *counters;  // [batches, heads, tiles of queries]
  uint64_t ticket;     // What opens them.
  int count;
  bool alone;  // Whether the last block of a head reduces its ranges; else another launch does.

  SIMT_DEVICE int64_t row(const Problem &problem, int range, int query) const {
    const int64_t head = int64_t(blockIdx.z) * problem.heads + blockIdx.y;
    return (head * count + range) * problem.queries + query;
  }
  SIMT_DEVICE uint64_t *counter(const Problem &problem, int tile, int tiles) const {
    return counters + (int64_t(blockIdx.z) * problem.heads + blockIdx.y) * tiles + tile;
  }
};

// One warp's walk over every kWarps-th tile of the block's range.
template <typename T, class Shape>
struct DecodeWalk {
  using State = Warp<T, Shape::kDepth, 1, Shape::kKeys>;
  using Loader = TileLoader<T, Shape::kDepth, Shape::kKeys, 32>;

  const Problem &problem;
  const Loader keys, values;
  SharedAddress ring;
  unsigned lane;
  int first_row, end, edge;

  SIMT_DEVICE DecodeWalk(const Problem &problem, SharedAddress ring, unsigned lane, int first_row, int end)
      : problem(problem),
        keys(head_of<T>(problem.k, problem.k_strides, problem.keys, problem.depth), lane),
        values(head_of<T>(problem.v, problem.v_strides, problem.keys, problem.depth), lane),
        ring(ring),
        lane(lane),
        first_row(first_row),
        end(end),
        edge(visible_keys(problem, first_row) / Shape::kKeys) {}

  // Ask for a tile. Where there is none, the empty group keeps the count that waits rely on.
  SIMT_DEVICE void fetch(int tile, SharedAddress stage) const {
    if (tile < end) {
      keys.copy(stage, tile * Shape::kKeys);
      values.copy(stage + Shape::kTileBytes, tile * Shape::kKeys);
    }
    cp_async_commit();
  }

  SIMT_DEVICE void run(State &state, const typename State::HeldQueries &queries, int tile) const {
    for (SharedAddress stage = ring; tile < end; tile += Shape::kWarps) {
      typename State::Logits logits;
      cp_async_wait<Shape::kStages - 1>();
      __syncwarp();  // The tile is there for all lanes.
      State::multiply_keys(logits, queries, stage, lane);
      if (tile >= edge) State::mask(logits, problem, tile * Shape::kKeys, first_row, lane);
      state.weigh(logits, problem, tile * Shape::kKeys, first_row, lane);
      state.multiply_values(logits, stage + Shape::kTileBytes, lane);
      __syncwarp();  // Nobody reads it any more.
      fetch(tile + Shape::kStages * Shape::kWarps, stage);
      stage = stage == ring + Shape::kQueriesAt ? ring : stage + Shape::kStageBytes;
    }
  }
};

// The block's merged rows to the workspace.
template <class Shape>
SIMT_DEVICE void put_range(const Merge<Shape> &merge, const Ranges &ranges, const Problem &problem, int range,
                           int first_row, unsigned thread) {
  constexpr unsigned kChunks = Shape::kDepth / 8;
  for (unsigned piece = thread; piece < Shape::kRows * kChunks; piece += Shape::kThreads) {
    const int row = static_cast<int>(piece / kChunks), feature = static_cast<int>(piece % kChunks * 8);
    if (first_row + row >= problem.queries) break;
    const auto sums = merge.get(row, feature, problem.scale_log2);
    const int64_t place = ranges.row(problem, range, first_row + row);
    auto *const values = reinterpret_cast<Floats4 *>(ranges.values + place * Shape::kDepth + feature);
    global_store(values, Floats4{sums.values[0], sums.values[1], sums.values[2], sums.values[3]});
    global_store(values + 1, Floats4{sums.values[4], sums.values[5], sums.values[6], sums.values[7]});
    if (feature == 0) global_store(ranges.sums + place, Floats2{sums.top, sums.total});
  }
}

// A warp's share of a row's ranges, into its place of the merge area. A lane has kDepth / 32 features; kBatch ranges are
// asked for before the first is used.
template <class Shape>
SIMT_DEVICE void reduce_row(const Merge<Shape> &merge, const Ranges &ranges, const Problem &problem, int query, int row,
                            int warp, unsigned lane) {
  constexpr int kPairs = Shape::kDepth / 64, kBatch = 32 / kPairs;
  float highest = kMasked, total = 0.0f;
  Floats2 value[kPairs] = {};
  for (int first = warp; first < ranges.count; first += kBatch * Shape::kWarps) {
    Floats2 sums[kBatch], held[kBatch][kPairs];
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
      const int range = first + i * Shape::kWarps;
      sums[i] = {kMasked, 0.0f};
      const int64_t place = ranges.row(problem, range, query);
      if (range < ranges.count) sums[i] = global_load(ranges.sums + place);
#pragma unroll
      for (int pair = 0; pair < kPairs; pair++) {
        held[i][pair] = {};
        if (range < ranges.count)
          held[i][pair] = global_load(reinterpret_cast<const Floats2 *>(ranges.values + place * Shape::kDepth) +
                                      pair * 32 + lane);
      }
    }
    const float before = highest;
#pragma unroll
    for (int i = 0; i < kBatch; i++) highest = fmaxf(highest, sums[i].x);
    const float subtracted = highest == kMasked ? 0.0f : highest * problem.scale_log2;
    const float shrink = exp2_approx(before * problem.scale_log2 - subtracted);
    total *= shrink;
#pragma unroll
    for (int pair = 0; pair < kPairs; pair++) value[pair].x *= shrink, value[pair].y *= shrink;
#pragma unroll
    for (int i = 0; i < kBatch; i++) {
      const float weight = exp2_approx(sums[i].x * problem.scale_log2 - subtracted);
      total += weight * sums[i].y;
#pragma unroll
      for (int pair = 0; pair < kPairs; pair++)
        value[pair].x += weight * held[i][pair].x, value[pair].y += weight * held[i][pair].y;
    }
  }
#pragma unroll
  for (int pair = 0; pair < kPairs; pair++)
    shared_store(merge.value(warp, row, pair * 64 + static_cast<int>(lane) * 2), value[pair]);
  if (lane == 0) {
    shared_store(merge.top(warp, row), highest);
    shared_store(merge.sum(warp, row), total);
  }
}

// Rows [first_row, first_row + rows) of a head from all of its ranges to the output.
template <typename T, class Shape>
SIMT_DEVICE void reduce_rows(const Ranges &ranges, const Problem &problem, int first_row, int rows, unsigned thread) {
  const Merge<Shape> merge{shared_base()};
  for (int row = 0; row < rows; row++)
    reduce_row(merge, ranges, problem, first_row + row, row, static_cast<int>(thread / 32), thread % 32);
  __syncthreads();
  auto output = output_head_of<T>(problem);
  output.rows = first_row + rows;
  merge.store(output, first_row, problem.scale_log2, thread);
}

template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) decode_kernel(const Problem problem, const Ranges ranges) {
  using Walker = DecodeWalk<T, Shape>;
  const SharedAddress shared = shared_base(), queries_at = shared + Shape::kQueriesAt;
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32), count = ranges.count;
  const int block = static_cast<int>(blockIdx.x), range = block % count, first_row = block / count * Shape::kRows;
  uint64_t *const counter =
      ranges.alone ? ranges.counter(problem, block / count, static_cast<int>(gridDim.x) / count) : nullptr;
  if (counter && thread == 0) open_counter(counter, ranges.ticket);

  // Every range has its share of the tiles, to within one.
  const int visible = visible_keys(problem, first_row + Shape::kRows - 1);
  const int64_t tiles = (visible + Shape::kKeys - 1) / Shape::kKeys;
  const int begin = static_cast<int>(tiles * range / count), end = static_cast<int>(tiles * (range + 1) / count);
  const Walker walk(problem, shared + warp * Shape::kRingBytes, lane, first_row, end);
  int tile = begin + warp;

  const auto queries_there = head_of<T>(problem.q, problem.q_strides, problem.queries, problem.depth);
  TileLoader<T, Shape::kDepth, Shape::kRows, Shape::kThreads>(queries_there, thread).copy(queries_at, first_row);
  cp_async_commit();
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; i++) walk.fetch(tile + i * Shape::kWarps, walk.ring + i * Shape::kStageBytes);
  cp_async_wait<Shape::kStages - 1>();
  __syncthreads();
  typename Walker::State::HeldQueries queries;
  queries.fetch(queries_at, lane, problem.negative);
  __syncthreads();  // The stage that they lie in is the first warp's again.
  walk.fetch(tile + (Shape::kStages - 1) * Shape::kWarps, walk.ring + Shape::kQueriesAt);

  typename Walker::State state;
  state.begin();
  walk.run(state, queries, tile);
  state.finish_sums();

  const Merge<Shape> merge{shared};
  __syncthreads();  // No stage is in use any more.
  merge.put(state, warp, lane);
  __syncthreads();
  if (count == 1) return merge.store(output_head_of<T>(problem), first_row, problem.scale_log2, thread);
  put_range(merge, ranges, problem, range, first_row, thread);
  if (!counter) return;

  __syncthreads();  // All of it is written, and the merge area free.
  if (thread == 0) shared_store(shared, static_cast<uint32_t>(arrive_last(counter, static_cast<unsigned>(count))));
  __syncthreads();
  const bool last = shared_load<uint32_t>(shared) != 0;
  __syncthreads();
  const int left = problem.queries - first_row;
  if (last) reduce_rows<T, Shape>(ranges, problem, first_row, left < Shape::kRows ? left : Shape::kRows, thread);
}

// A row a block, where the ranges of a head are too much for one.
template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads) decode_reduce_kernel(const Problem problem, const Ranges ranges) {
  reduce_rows<T, Shape>(ranges, problem, static_cast<int>(blockIdx.x), 1, threadIdx.x);
}

// As many ranges as give the device the blocks that the manifest's `tuning` asks for, each with work for every warp.
template <class Shape>
int decode_ranges(const Problem &problem, int64_t heads, int64_t tiles) {
  const int64_t wanted = ATTENTION_DECODE_BLOCKS, least = ATTENTION_DECODE_STEPS * Shape::kKeys * Shape::kWarps;
  const int64_t last = problem.causal ? int64_t(problem.queries) + problem.diagonal : problem.keys;
  const int64_t visible = std::min<int64_t>(problem.keys, last);
  return static_cast<int>(std::max<int64_t>(1, std::min(wanted / (heads * tiles), visible / least)));
}

template <typename T, class Shape>
Error launch_decode(const Problem &problem, cudaStream_t stream) {
  const int64_t heads = int64_t(problem.batches) * problem.heads, tiles = (problem.queries - 1) / Shape::kRows + 1;
  Ranges ranges = {};
  ranges.count = decode_ranges<Shape>(problem, heads, tiles);
  const dim3 grid(static_cast<unsigned>(tiles * ranges.count), problem.heads, problem.batches), block(Shape::kThreads);
  if (ranges.count == 1)
    return launch<decode_kernel<T, Shape>>(grid, block, Shape::kSharedBytes, stream, problem, ranges) ? kSuccess
                                                                                                      : kLaunchFailed;
  const int64_t rows = heads * ranges.count * problem.queries;
  const int64_t at_sums = rows * Shape::kDepth * 4, at_counters = at_sums + rows * 8;
  const Workspace workspace(static_cast<size_t>(at_counters + heads * tiles * 8), stream);
  if (!workspace.data()) return kOutOfMemory;
  char *const begin = static_cast<char *>(workspace.data());
  ranges.values = reinterpret_cast<float *>(begin);
  ranges.sums = reinterpret_cast<Floats2 *>(begin + at_sums);
  ranges.counters = reinterpret_cast<uint64_t *>(begin + at_counters);
  ranges.ticket = draw_ticket();
  const int64_t of_head = int64_t(ranges.count) * std::min(problem.queries, Shape::kRows) * Shape::kDepth * 4;
  ranges.alone = of_head <= int64_t(ATTENTION_DECODE_ALONE) << 10;
  bool launched = launch<decode_kernel<T, Shape>>(grid, block, Shape::kSharedBytes, stream, problem, ranges);
  const dim3 each_row(problem.queries, problem.heads, problem.batches);
  if (launched && !ranges.alone)
    launched = launch<decode_reduce_kernel<T, Shape>>(each_row, block, Shape::kMergeBytes, stream, problem, ranges);
  return launched ? kSuccess : kLaunchFailed;
}

template <typename T, int kDepth>
Error decode(const Problem &problem, cudaStream_t stream) {
  if constexpr (kDepth == 64)
    return launch_decode<T, DecodeShape<64, ATTENTION_DECODE_64_KEYS, ATTENTION_DECODE_64_WARPS, ATTENTION_DECODE_64_STAGES>>(
        problem, stream);
  else if constexpr (kDepth == 128)
    return launch_decode<T, DecodeShape<128, ATTENTION_DECODE_128_KEYS, ATTENTION_DECODE_128_WARPS,
                                        ATTENTION_DECODE_128_STAGES>>(problem, stream);
  else
    return launch_decode<T, DecodeShape<kDepth, 16, 2, 3>>(problem, stream);
}

}  // namespace attention
