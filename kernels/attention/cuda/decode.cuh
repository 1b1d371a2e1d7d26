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
// The warps' outputs are merged in shared memory, as in `small`. A head of few keys is one block's work. Otherwise the
// merged rows go to a workspace, finished, and a second kernel weighs them: to have the last block of a head do it, which
// saves a launch, took longer (README.md).
//
// Shared memory: kWarps kStages 4 kKeys D bytes; the queries lie in the last stage of the first warp's ring until all
// have them in registers, and the merge area over everything in the end.
//   D = 64, 32 keys, 4 warps, 3 stages: 96 KB.   D = 128, 16 keys, 4 warps: 96 KB.   D = 256, 16 keys, 2 warps: 96 KB.
// Registers: D/2 for outputs, D/4 for queries, kKeys/2 for logits: 104 of 255 at D = 128.
// Workspace: ranges * (2 D + 4) bytes for each row; the ranges of all heads are no more than multiprocessors.
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

// How the tiles of keys are cut: every range has its share, and the first `longer` one more.
struct Cut {
  int ranges, share, longer;

  SIMT_DEVICE int begin(int range) const { return range * share + (range < longer ? range : longer); }
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

// What blocks leave of their ranges in the workspace: finished rows, as elements, and for each the logarithm of what it
// weighs, log2(sum_j 2^(x_j)) with logits x in powers of two; -inf where the row sees no key. A row is a weighted mean
// of its ranges, so that to round these costs no more than to round the result.
template <typename T>
struct Ranges {
  T *rows;          // [ranges, batches, heads, queries, D]
  float *weights;   // [batches, heads, queries, ranges]
  int count;

  static size_t bytes(const Problem &problem, int count) {
    return rows_of(problem) * count * (problem.depth * sizeof(T) + sizeof(float));
  }
  Ranges(const Problem &problem, int count, void *workspace)
      : rows(static_cast<T *>(workspace)),
        weights(reinterpret_cast<float *>(rows + rows_of(problem) * count * problem.depth)),
        count(count) {}

  SIMT_DEVICE T *row(const Problem &problem, int range, int query) const {
    const int64_t head = (int64_t(range) * problem.batches + blockIdx.z) * problem.heads + blockIdx.y;
    return rows + (head * problem.queries + query) * problem.depth;
  }
  SIMT_DEVICE float *weights_of(const Problem &problem, int query) const {
    const int64_t head = int64_t(blockIdx.z) * problem.heads + blockIdx.y;
    return weights + (head * problem.queries + query) * count;
  }

 private:
  static size_t rows_of(const Problem &problem) { return size_t(problem.batches) * problem.heads * problem.queries; }
};

// The block's merged rows to the workspace.
template <typename T, class Shape>
SIMT_DEVICE void put_range(const Merge<Shape> &merge, const Ranges<T> &ranges, const Problem &problem, int range,
                           int first_row, int rows, unsigned thread) {
  constexpr int kChunks = Shape::kDepth / 8;
  for (int piece = static_cast<int>(thread); piece < rows * kChunks; piece += Shape::kThreads) {
    const int row = piece / kChunks, query = first_row + row, feature = piece % kChunks * 8;
    if (feature >= problem.depth) continue;
    const auto sums = merge.get(row, feature, problem.scale_log2);
    global_store(reinterpret_cast<Words4 *>(ranges.row(problem, range, query) + feature), sums.template finished<T>());
    if (feature) continue;
    const float weight = sums.total == 0.0f ? kMasked : sums.top * problem.scale_log2 + log2f(sums.total);
    global_store(ranges.weights_of(problem, query) + range, weight);
  }
}

template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    decode_kernel(const Problem problem, const Ranges<T> ranges, const Cut cut) {
  using Walker = DecodeWalk<T, Shape>;
  const bool alone = is_alone();
  if (alone) allow_next();
  const SharedAddress shared = shared_base(), queries_at = shared + Shape::kQueriesAt;
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32), block = static_cast<int>(blockIdx.x);
  const int row_tile = static_cast<int>(gridDim.x) == cut.ranges ? 0 : block / cut.ranges;
  const int range = block - row_tile * cut.ranges, first_row = row_tile * Shape::kRows;

  // A mask may hide the last tiles of the range, or all.
  const int seen = (visible_keys(problem, first_row + Shape::kRows - 1) + Shape::kKeys - 1) / Shape::kKeys;
  const int behind = cut.begin(range + 1), end = behind < seen ? behind : seen;
  const Walker walk(problem, shared + warp * Shape::kRingBytes, lane, first_row, end);
  const int tile = cut.begin(range) + warp;

  const TileLoader<T, Shape::kDepth, Shape::kRows, Shape::kThreads> loader(queries_of<T>(problem), thread);
  wait_for_previous();
  loader.copy(queries_at, first_row);
  cp_async_commit();
#pragma unroll 1
  for (int i = 0; i < Shape::kStages - 1; i++) walk.fetch(tile + i * Shape::kWarps, walk.ring + i * Shape::kStageBytes);
  cp_async_wait<Shape::kStages - 1>();
  __syncthreads();
  typename Walker::State::HeldQueries queries;
  queries.fetch(queries_at, lane, problem.negative);
  __syncthreads();  // The stage that they lie in is the first warp's again.
  walk.fetch(tile + (Shape::kStages - 1) * Shape::kWarps, walk.ring + Shape::kQueriesAt);
  if (!alone) allow_next();

  typename Walker::State state;
  state.begin();
  walk.run(state, queries, tile);
  state.finish_sums();

  const Merge<Shape> merge{shared};
  const int left = problem.queries - first_row, rows = left < Shape::kRows ? left : Shape::kRows;
  __syncthreads();  // No stage is in use any more.
  merge.put(state, rows, warp, lane);
  __syncthreads();
  if (cut.ranges == 1)
    merge.store(output_of<T>(problem), first_row, problem.scale_log2, thread);
  else
    put_range(merge, ranges, problem, range, first_row, rows, thread);
}

// Second pass. A block has 64 features of a row, in pieces of eight: 8 lanes hold a piece of each, and 16 such groups
// take the ranges in turn. Where there are few, each warp has a row of its own. Each warp works out the row's maximum and
// its sum by itself, so that what the groups have is only to be added.
struct Reduction {
  static constexpr int kThreads = 128, kWarps = 4, kPiece = 8, kLanes = 8, kFeatures = kPiece * kLanes;
  static constexpr int kGroups = 32 / kLanes;                       // Of a warp.
  static constexpr int kHeld = 9;                                   // Ranges that a group asks for before it uses one.
  static constexpr int kFew = kGroups * kHeld, kMost = kFew * kWarps;  // Ranges that a warp, and a block, can take.
  static constexpr int kSharedBytes = kWarps * kFeatures * 4;
};

// values += weight * the eight elements of a piece.
template <typename T>
SIMT_DEVICE void add_piece(float (&values)[8], float weight, const Words4 &words) {
  const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    const uint16_t bits = static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16));
    values[i] += weight * to_float(reinterpret_cast<const T &>(bits));
  }
}

template <typename T>
__global__ void __launch_bounds__(Reduction::kThreads)
    decode_reduce_kernel(const Problem problem, const Ranges<T> ranges) {
  using R = Reduction;
  allow_next();
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const bool few = ranges.count <= R::kFew;
  const int chunks = (problem.depth + R::kFeatures - 1) / R::kFeatures, block = static_cast<int>(blockIdx.x);
  const int query = few ? block / chunks * R::kWarps + warp : block / chunks;
  const int feature = block % chunks * R::kFeatures + lane % R::kLanes * R::kPiece;
  const int ways = few ? R::kGroups : R::kGroups * R::kWarps, way = few ? lane / R::kLanes : thread / R::kLanes;
  const float *const weights = ranges.weights_of(problem, query);
  wait_for_previous();
  if (query >= problem.queries) return;

  float own[R::kHeld], all[(R::kMost + 31) / 32];
  Words4 held[R::kHeld];
#pragma unroll
  for (int i = 0; i < R::kHeld; i++) {
    const int range = way + i * ways;
    own[i] = kMasked, held[i] = {};
    if (range < ranges.count && feature < problem.depth) {
      own[i] = global_load(weights + range);
      held[i] = global_load(reinterpret_cast<const Words4 *>(ranges.row(problem, range, query) + feature));
    }
  }
  float highest = kMasked, total = 0.0f;
#pragma unroll
  for (int i = 0; i < (R::kMost + 31) / 32; i++) {
    const int range = lane + i * 32;
    all[i] = range < ranges.count ? global_load(weights + range) : kMasked;
  }
  for (const float weight : all) highest = fmaxf(highest, weight);
#pragma unroll
  for (int mask = 16; mask; mask /= 2) highest = fmaxf(highest, shuffle_xor(highest, mask));
  const float subtracted = highest == kMasked ? 0.0f : highest;
  for (const float weight : all) total += exp2_approx(weight - subtracted);
#pragma unroll
  for (int mask = 16; mask; mask /= 2) total += shuffle_xor(total, mask);

  float values[8] = {};
#pragma unroll
  for (int i = 0; i < R::kHeld; i++) add_piece<T>(values, exp2_approx(own[i] - subtracted), held[i]);
#pragma unroll
  for (int mask = R::kLanes; mask < 32; mask *= 2)
#pragma unroll
    for (float &value : values) value += shuffle_xor(value, mask);
  if (!few) {
    const SharedAddress shared = shared_base() + lane * R::kPiece * 4;
    if (lane < R::kLanes) {
      shared_store(shared + warp * R::kFeatures * 4, Floats4{values[0], values[1], values[2], values[3]});
      shared_store(shared + warp * R::kFeatures * 4 + 16, Floats4{values[4], values[5], values[6], values[7]});
    }
    __syncthreads();
    if (warp || lane >= R::kLanes) return;
#pragma unroll
    for (int other = 1; other < R::kWarps; other++)
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const auto four = shared_load<Floats4>(shared + other * R::kFeatures * 4 + i * 4);
        values[i] += four.x, values[i + 1] += four.y, values[i + 2] += four.z, values[i + 3] += four.w;
      }
  }
  if (lane >= R::kLanes || feature >= problem.depth) return;
  const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);
  const Matrix<T> output = output_of<T>(problem);
  const Words4 words{pack<T>(values[0] * inverse, values[1] * inverse), pack<T>(values[2] * inverse, values[3] * inverse),
                     pack<T>(values[4] * inverse, values[5] * inverse), pack<T>(values[6] * inverse, values[7] * inverse)};
  global_store(reinterpret_cast<Words4 *>(output.data + query * output.stride + feature), words);
}

template <typename T>
Error decode_reduce(const Problem &problem, const Ranges<T> &ranges, cudaStream_t stream) {
  using R = Reduction;
  const int rows = ranges.count <= R::kFew ? R::kWarps : 1, chunks = (problem.depth + R::kFeatures - 1) / R::kFeatures;
  const dim3 grid((problem.queries + rows - 1) / rows * chunks, problem.heads, problem.batches);
  const bool launched = launch_early<decode_reduce_kernel<T>>(grid, dim3(R::kThreads), R::kSharedBytes, stream, problem,
                                                              ranges);
  return launched ? kSuccess : kLaunchFailed;
}

// A head whose keys are few steps of all warps is left whole. Of others the device gets the blocks that the manifest's
// `tuning` asks for, each with a step at least, so that the workspace is no more than flash's: it cuts 64 KB of keys and
// values, two steps, into a range, with D + 1 floats for each row.
template <class Shape>
Cut cut_keys(const Problem &problem) {
  const int64_t blocks = int64_t(problem.batches) * problem.heads * ((problem.queries - 1) / Shape::kRows + 1);
  const int64_t wanted = ATTENTION_DECODE_BLOCKS;
  const int tiles = (problem.keys + Shape::kKeys - 1) / Shape::kKeys, steps = tiles / Shape::kWarps;
  const int64_t room = int64_t(steps) * (problem.depth + 1) / (problem.depth + 2);
  const int64_t ranges = steps <= ATTENTION_DECODE_WHOLE ? 1 : std::min({wanted / blocks, room, int64_t(Reduction::kMost)});
  const int count = static_cast<int>(std::max<int64_t>(1, ranges));
  return {count, tiles / count, tiles % count};
}

// The shape for a number of features: values by the manifest's `tuning`, where there are some.
template <int kDepth>
struct DecodeBy {
  using Shape = DecodeShape<kDepth, 16, 2, 3>;
};
template <>
struct DecodeBy<64> {
  using Shape =
      DecodeShape<64, ATTENTION_DECODE_64_KEYS, ATTENTION_DECODE_64_WARPS, ATTENTION_DECODE_64_STAGES>;
};
template <>
struct DecodeBy<128> {
  using Shape =
      DecodeShape<128, ATTENTION_DECODE_128_KEYS, ATTENTION_DECODE_128_WARPS, ATTENTION_DECODE_128_STAGES>;
};

template <int kDepth>
Cut decode_cut(const Problem &problem) {
  return cut_keys<typename DecodeBy<kDepth>::Shape>(problem);
}

template <typename T, class Shape>
Error launch_decode(const Problem &problem, cudaStream_t stream) {
  const int64_t tiles = (problem.queries - 1) / Shape::kRows + 1;
  const Cut cut = cut_keys<Shape>(problem);
  const dim3 grid(static_cast<unsigned>(tiles * cut.ranges), problem.heads, problem.batches), block(Shape::kThreads);
  const auto run = [&](const Ranges<T> &ranges) {
    const size_t bytes = early_bytes(grid, Shape::kSharedBytes);
    return launch_early<decode_kernel<T, Shape>>(grid, block, bytes, stream, problem, ranges, cut);
  };
  if (cut.ranges == 1) return run({problem, 1, nullptr}) ? kSuccess : kLaunchFailed;
  const Workspace workspace(Ranges<T>::bytes(problem, cut.ranges), stream);
  if (!workspace.data()) return kOutOfMemory;
  const Ranges<T> ranges(problem, cut.ranges, workspace.data());
  return run(ranges) ? decode_reduce<T>(problem, ranges, stream) : kLaunchFailed;
}

template <typename T, int kDepth>
Error decode(const Problem &problem, cudaStream_t stream) {
  return launch_decode<T, typename DecodeBy<kDepth>::Shape>(problem, stream);
}

}  // namespace attention
