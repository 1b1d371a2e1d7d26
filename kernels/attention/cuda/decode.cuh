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
  int count, share, longer;  // How many; their tiles of keys, and one more in each of the first `longer`.
  bool alone;                // Whether the last block of a head reduces its ranges; else another launch does.

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
        keys(keys_of<T>(problem), lane),
        values(values_of<T>(problem), lane),
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

// Rows [first_row, first_row + rows) of a head, from all of its ranges to the output: a thread has four features of a
// row, and where that leaves threads over, `ways` of them share the ranges.
template <typename T, class Shape>
struct Reduction {
  static constexpr int kPieces = Shape::kDepth / 4, kBatch = 16;  // Of a row; asked for before the first is used.

  const Problem &problem;
  const Ranges &ranges;
  int first_row, rows;
  SharedAddress sums, parts;  // [ranges, rows]: what Ranges has, then the weight of each; [threads]: four features each.

  SIMT_DEVICE Reduction(const Problem &problem, const Ranges &ranges, SharedAddress shared, int first_row, int rows)
      : problem(problem), ranges(ranges), first_row(first_row), rows(rows), sums(shared + Shape::kThreads * 16), parts(shared) {}

  SIMT_DEVICE SharedAddress sum(int range, int row) const { return sums + (range * rows + row) * 8; }

  // Asks for the results of ranges `first`, `first + ways` and so on; zeros where there are none.
  SIMT_DEVICE void load(Floats4 (&held)[kBatch], int row, int feature, int first, int ways) const {
    const int64_t step = int64_t(ways) * problem.queries * kPieces;
    const auto *from = reinterpret_cast<const Floats4 *>(
        ranges.values + ranges.row(problem, first, first_row + row) * Shape::kDepth + feature);
#pragma unroll
    for (int i = 0; i < kBatch; i++, from += step) {
      held[i] = {};
      if (first + i * ways < ranges.count) held[i] = global_load(from);
    }
  }

  // Every range's weight of every row, divided by the row's sum: a warp a row.
  SIMT_DEVICE void weigh(unsigned thread) const {
    for (int i = static_cast<int>(thread); i < ranges.count * rows; i += Shape::kThreads)
      shared_store(sums + i * 8, global_load(ranges.sums + ranges.row(problem, i / rows, first_row + i % rows)));
    __syncthreads();
    const int lane = static_cast<int>(thread % 32), count = ranges.count;
    for (int row = static_cast<int>(thread / 32); row < rows; row += Shape::kWarps) {
      float highest = kMasked, total = 0.0f;
      for (int range = lane; range < count; range += 32) highest = fmaxf(highest, shared_load<Floats2>(sum(range, row)).x);
      for (int mask = 16; mask > 0; mask /= 2) highest = fmaxf(highest, shuffle_xor(highest, mask));
      const float subtracted = highest == kMasked ? 0.0f : highest * problem.scale_log2;
      for (int range = lane; range < count; range += 32) {
        const Floats2 one = shared_load<Floats2>(sum(range, row));
        const float weight = exp2_approx(one.x * problem.scale_log2 - subtracted);
        total += weight * one.y;
        shared_store(sum(range, row), weight);
      }
      for (int mask = 16; mask > 0; mask /= 2) total += shuffle_xor(total, mask);
      const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);
      for (int range = lane; range < count; range += 32)
        shared_store(sum(range, row), shared_load<float>(sum(range, row)) * inverse);
    }
    __syncthreads();
  }

  SIMT_DEVICE void store(int row, int feature, const Floats4 &value) const {
    const Matrix<T> output = output_of<T>(problem);
    if (feature >= output.depth) return;
    global_store(reinterpret_cast<Words2 *>(output.data + (first_row + row) * output.stride + feature),
                 Words2{pack<T>(value.x, value.y), pack<T>(value.z, value.w)});
  }

  SIMT_DEVICE void run(unsigned thread) const {
    const int pieces = rows * kPieces, ways = pieces < Shape::kThreads ? Shape::kThreads / pieces : 1;
    const int way = static_cast<int>(thread) / pieces;  // Threads that are left over have none, and add nothing.
    int piece = static_cast<int>(thread) % pieces;
    Floats4 held[kBatch];
    const int begin = way < ways ? way : ranges.count;
    load(held, piece / kPieces, piece % kPieces * 4, begin, ways);
    weigh(thread);
    for (;;) {
      const int row = piece / kPieces, feature = piece % kPieces * 4;
      Floats4 value = {};
      for (int first = begin; first < ranges.count; first += kBatch * ways) {
        if (first != begin) load(held, row, feature, first, ways);
#pragma unroll
        for (int i = 0; i < kBatch; i++) {
          const int range = first + i * ways;
          if (range >= ranges.count) break;
          const float weight = shared_load<float>(sum(range, row));
          value.x += weight * held[i].x, value.y += weight * held[i].y;
          value.z += weight * held[i].z, value.w += weight * held[i].w;
        }
      }
      if (ways > 1) return join(value, ways, pieces, thread);
      store(row, feature, value);
      piece += Shape::kThreads;
      if (piece >= pieces) return;
      load(held, piece / kPieces, piece % kPieces * 4, begin, ways);
    }
  }

  // Those that share a piece add up.
  SIMT_DEVICE void join(Floats4 value, int ways, int pieces, unsigned thread) const {
    shared_store(parts + thread * 16, value);
    __syncthreads();
    const int piece = static_cast<int>(thread);
    if (piece >= pieces) return;
    for (int way = 1; way < ways; way++) {
      const Floats4 other = shared_load<Floats4>(parts + (way * pieces + piece) * 16);
      value.x += other.x, value.y += other.y, value.z += other.z, value.w += other.w;
    }
    store(piece / kPieces, piece % kPieces * 4, value);
  }
};

template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) decode_kernel(const Problem problem, const Ranges ranges) {
  using Walker = DecodeWalk<T, Shape>;
  const SharedAddress shared = shared_base(), queries_at = shared + Shape::kQueriesAt;
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32), count = ranges.count;
  const bool one_tile = static_cast<int>(gridDim.x) == count;
  const int block = static_cast<int>(blockIdx.x), row_tile = one_tile ? 0 : block / count;
  const int range = block - row_tile * count, first_row = row_tile * Shape::kRows;

  // Every range has its share of the tiles, to within one; a mask may hide the last of them.
  const int seen = (visible_keys(problem, first_row + Shape::kRows - 1) + Shape::kKeys - 1) / Shape::kKeys;
  const int begin = range * ranges.share + (range < ranges.longer ? range : ranges.longer);
  const int behind = begin + ranges.share + (range < ranges.longer), end = behind < seen ? behind : seen;
  const Walker walk(problem, shared + warp * Shape::kRingBytes, lane, first_row, end);
  int tile = begin + warp;

  TileLoader<T, Shape::kDepth, Shape::kRows, Shape::kThreads>(queries_of<T>(problem), thread).copy(queries_at, first_row);
  cp_async_commit();
#pragma unroll
  for (int i = 0; i < Shape::kStages - 1; i++) walk.fetch(tile + i * Shape::kWarps, walk.ring + i * Shape::kStageBytes);
  uint64_t *const counter =
      ranges.alone ? ranges.counter(problem, row_tile, one_tile ? 1 : static_cast<int>(gridDim.x) / count) : nullptr;
  if (counter && thread == 0) open_counter(counter, ranges.ticket);
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
  const int left = problem.queries - first_row, rows = left < Shape::kRows ? left : Shape::kRows;
  __syncthreads();  // No stage is in use any more.
  merge.put(state, rows, warp, lane);
  __syncthreads();
  if (count == 1) return merge.store(output_of<T>(problem), first_row, problem.scale_log2, thread);
  put_range(merge, ranges, problem, range, first_row, thread);
  if (!counter) return;

  __syncthreads();  // All of it is written, and the merge area free.
  if (thread == 0) shared_store(shared, static_cast<uint32_t>(arrive_last(counter, static_cast<unsigned>(count))));
  __syncthreads();
  const bool last = shared_load<uint32_t>(shared) != 0;
  if (last) Reduction<T, Shape>(problem, ranges, shared, first_row, rows).run(thread);
}

// A row a block, where the ranges of a head are too much for one.
template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads) decode_reduce_kernel(const Problem problem, const Ranges ranges) {
  Reduction<T, Shape>(problem, ranges, shared_base(), static_cast<int>(blockIdx.x), 1).run(threadIdx.x);
}

// As many ranges as give the device the blocks that the manifest's `tuning` asks for, each with work for every warp.
template <class Shape>
Ranges cut_keys(const Problem &problem, int64_t blocks) {
  const int64_t wanted = ATTENTION_DECODE_BLOCKS, least = ATTENTION_DECODE_STEPS * Shape::kWarps;
  const int visible = std::max(0, problem.keys + std::min(0, problem.queries + problem.lead));
  const int tiles = (visible + Shape::kKeys - 1) / Shape::kKeys;
  Ranges ranges = {};
  ranges.count = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(wanted / blocks, tiles / least)));
  ranges.share = tiles / ranges.count, ranges.longer = tiles % ranges.count;
  return ranges;
}

template <typename T, class Shape>
Error launch_decode(const Problem &problem, cudaStream_t stream) {
  const int64_t heads = int64_t(problem.batches) * problem.heads, tiles = (problem.queries - 1) / Shape::kRows + 1;
  Ranges ranges = cut_keys<Shape>(problem, heads * tiles);
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
    launched = launch<decode_reduce_kernel<T, Shape>>(each_row, block, Shape::kThreads * 16 + ranges.count * 8, stream,
                                                      problem, ranges);
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
