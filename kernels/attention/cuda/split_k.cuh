// Attention in two passes: the keys are cut into ranges, a block for each range and tile of queries; then the
// ranges' results are reduced. For few queries and many keys, where there would be few blocks otherwise.
//
#pragma once

#include "partials.cuh"
#include "tensor_core.cuh"

namespace attention {

// Tiles of keys [begin, end) of one range: all ranges have the same number of tiles, the last ones may have fewer.
struct Range {
  int begin, end;
  SIMT_DEVICE Range(int index, int ranges, int tiles) {
    const int each = (tiles + ranges - 1) / ranges;
    begin = index * each < tiles ? index * each : tiles;
    end = begin + each < tiles ? begin + each : tiles;
  }
};

template <class State>
SIMT_DEVICE void put_partial(const State &state, const Partials &partials, const Problem &problem, int range,
                             int first_row, unsigned lane) {
  constexpr int kStrips = sizeof(state.top) / sizeof(state.top[0]);
  constexpr int kGroups = sizeof(state.output[0]) / sizeof(state.output[0][0]);
#pragma unroll
  for (int strip = 0; strip < kStrips; strip++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int query = first_row + strip * 16 + static_cast<int>(lane / 4) + half * 8;
      if (query >= problem.queries) continue;
      float *row = partials.row(problem, range, query);
      const float top = state.top[strip][half];
      if (lane % 4 == 0) {
        global_store(row + partials.depth, top == kMasked ? kMasked : top * problem.scale_log2);
        global_store(row + partials.depth + 1, state.sum[strip][half]);
        global_store(row + partials.depth + 2, 0.0f);
        global_store(row + partials.depth + 3, 0.0f);
      }
#pragma unroll
      for (int n = 0; n < kGroups; n++) {
        const float *pair = &state.output[strip][n][2 * half];
        const int feature = n * 8 + static_cast<int>(lane % 4 * 2);
        if (feature >= partials.depth) continue;
        if (partials.depth % 2 == 0) {
          global_store(reinterpret_cast<Floats2 *>(row + feature), Floats2{pair[0], pair[1]});
        } else {
          global_store(row + feature, pair[0]);
          if (feature + 1 < partials.depth) global_store(row + feature + 1, pair[1]);
        }
      }
    }
}

// First pass: blockIdx.x counts ranges of each tile of queries.
template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks)
    split_partial_kernel(const Problem problem, const Partials partials) {
  using Walker = Walk<T, Shape>;
  const SharedAddress shared = shared_base();
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const unsigned ranges = static_cast<unsigned>(partials.ranges);
  const int index = static_cast<int>(blockIdx.x % ranges);
  const int first_row = static_cast<int>(blockIdx.x / ranges) * Shape::kRows;
  const int warp_row = first_row + static_cast<int>(warp) * Shape::kStrips * 16;

  wait_for_previous();
  typename Walker::Queries queries;
  fetch_queries<T, Shape>(queries, problem, shared, first_row);

  const Range range(index, partials.ranges, (problem.keys + Shape::kKeys - 1) / Shape::kKeys);
  const int visible = visible_keys(problem, first_row + Shape::kRows - 1);
  const int seen = (visible + Shape::kKeys - 1) / Shape::kKeys;
  const Walker walk(problem, shared, thread, warp_row);
  typename Walker::State state;
  state.begin();
  walk.run(state, queries, range.begin, range.end < seen ? range.end : seen,
           first_edge<Shape>(problem, first_row));
  allow_next();
  state.finish_sums();
  put_partial(state, partials, problem, index, warp_row, lane);
}

constexpr int kMostRanges = 64, kReduceThreads = 128, kMostDepth = 128, kPiece = 4;
constexpr int kHeldRanges = kMostRanges * kMostDepth / (kReduceThreads * kPiece);

// How a block of the second pass is divided: a group of threads has a row's features, four each; `ways` groups share a
// row's ranges, so that every thread has `kHeldRanges` of them at most; rows with few ranges are taken several at once.
struct Division {
  int pieces, ways, rows;
  Division(int depth, int ranges)
      : pieces((depth + kPiece - 1) / kPiece),
        ways(std::max(1, std::min(kReduceThreads / pieces, ranges))),
        rows(kReduceThreads / pieces / ways) {}
};

// Four features of a partial's row; what lies beyond the row's end is not asked for.
SIMT_DEVICE Floats4 load_piece(const float *row, int feature, int depth) {
  if (depth % kPiece == 0) return global_load(reinterpret_cast<const Floats4 *>(row + feature));
  float values[kPiece] = {};
#pragma unroll
  for (int i = 0; i < kPiece; i++)
    if (feature + i < depth) values[i] = global_load(row + feature + i);
  return {values[0], values[1], values[2], values[3]};
}

// What the groups have reduced, side by side in shared memory as floats.
struct Groups {
  SharedAddress begin;
  int pieces;
  static constexpr int kBytes = kReduceThreads * (16 + 8);

  SIMT_DEVICE SharedAddress values(int group, int piece) const { return begin + (group * pieces + piece) * 16; }
  SIMT_DEVICE SharedAddress value(int group, int feature) const {
    return values(group, feature / kPiece) + feature % kPiece * 4;
  }
  SIMT_DEVICE SharedAddress top(int group) const { return begin + kReduceThreads * 16 + group * 8; }
  SIMT_DEVICE SharedAddress sum(int group) const { return top(group) + 4; }
};

// A group's share of a row: ranges `way`, `way + ways` and so on, all of them asked for before the first is used.
SIMT_DEVICE void reduce_ranges(const Problem &problem, const Partials &partials, const Groups &groups, int ways, int query,
                               int group, int piece) {
  const int depth = partials.depth;
  float tops[kHeldRanges], sums[kHeldRanges], highest = kMasked, total = 0.0f;
  Floats4 held[kHeldRanges], value = {};
#pragma unroll
  for (int i = 0; i < kHeldRanges; i++) {
    const int range = group % ways + i * ways;
    tops[i] = kMasked, sums[i] = 0.0f, held[i] = {};
    if (range < partials.ranges) {
      const float *row = partials.row(problem, range, query);
      tops[i] = global_load(row + depth), sums[i] = global_load(row + depth + 1);
      held[i] = load_piece(row, piece * kPiece, depth);
    }
  }
#pragma unroll
  for (int i = 0; i < kHeldRanges; i++) highest = fmaxf(highest, tops[i]);
  const float subtracted = highest == kMasked ? 0.0f : highest;
#pragma unroll
  for (int i = 0; i < kHeldRanges; i++) {
    const float weight = exp2_approx(tops[i] - subtracted);
    total += weight * sums[i];
    value.x += weight * held[i].x, value.y += weight * held[i].y;
    value.z += weight * held[i].z, value.w += weight * held[i].w;
  }
  shared_store(groups.values(group, piece), value);
  if (piece == 0) {
    shared_store(groups.top(group), highest);
    shared_store(groups.sum(group), total);
  }
}

// Second pass: each group reduces its ranges, then the groups of a row are reduced in the same way.
template <typename T>
__global__ void __launch_bounds__(kReduceThreads)
    split_reduce_kernel(const Problem problem, const Partials partials, const Division division) {
  allow_next();
  const int thread = static_cast<int>(threadIdx.x), depth = partials.depth;
  const int ways = division.ways, first_row = static_cast<int>(blockIdx.x) * division.rows;
  const int group = thread / division.pieces, query = first_row + group / ways;
  const Groups groups{shared_base(), division.pieces};
  wait_for_previous();
  if (group < division.rows * ways && query < problem.queries)
    reduce_ranges(problem, partials, groups, ways, query, group, thread % division.pieces);
  __syncthreads();

  const int left = problem.queries - first_row, rows = left < division.rows ? left : division.rows;
  for (int at = thread; at < rows * depth; at += kReduceThreads) {
    const int row = at / depth, feature = at % depth, begin = row * ways, end = begin + ways;
    float highest = kMasked, total = 0.0f, value = 0.0f;
    for (int one = begin; one < end; one++) highest = fmaxf(highest, shared_load<float>(groups.top(one)));
    const float subtracted = highest == kMasked ? 0.0f : highest;
    for (int one = begin; one < end; one++) {
      const float weight = exp2_approx(shared_load<float>(groups.top(one)) - subtracted);
      total += weight * shared_load<float>(groups.sum(one));
      value += weight * shared_load<float>(groups.value(one, feature));
    }
    const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);
    const Matrix<T> output = output_of<T>(problem);
    global_store(output.data + (first_row + row) * output.stride + feature, from_float<T>(value * inverse));
  }
}

template <int kDepth>
using SplitShape = typename Narrow<kDepth>::Base;

template <typename T, int kDepth>
Error split_partial(const Problem &problem, const Partials &partials, cudaStream_t stream) {
  using Shape = SplitShape<kDepth>;
  const unsigned tiles = static_cast<unsigned>((problem.queries + Shape::kRows - 1) / Shape::kRows);
  const dim3 grid(tiles * static_cast<unsigned>(partials.ranges), problem.heads, problem.batches), block(Shape::kThreads);
  const bool launched =
      launch_early<split_partial_kernel<T, Shape>>(grid, block, Shape::kSharedBytes, stream, problem, partials);
  return launched ? kSuccess : kLaunchFailed;
}

template <typename T>
Error split_reduce(const Problem &problem, const Partials &partials, cudaStream_t stream) {
  const Division division(partials.depth, partials.ranges);
  const dim3 grid((problem.queries + division.rows - 1) / division.rows, problem.heads, problem.batches);
  const bool launched =
      launch_early<split_reduce_kernel<T>>(grid, dim3(kReduceThreads), Groups::kBytes, stream, problem, partials, division);
  return launched ? kSuccess : kLaunchFailed;
}

// As many ranges as give the device the blocks that the manifest's `tuning` asks for, each of a tile of keys or more.
template <int kDepth>
int split_ranges(const Problem &problem) {
  using Shape = SplitShape<kDepth>;
  constexpr int64_t kWanted = ATTENTION_SPLIT_BLOCKS;
  const int64_t tiles = (problem.keys + Shape::kKeys - 1) / Shape::kKeys;
  const int64_t blocks = int64_t((problem.queries + Shape::kRows - 1) / Shape::kRows) * problem.heads * problem.batches;
  const int64_t ranges = std::max<int64_t>(1, std::min({(kWanted + blocks - 1) / blocks, tiles, int64_t(kMostRanges)}));
  const int64_t each = (tiles + ranges - 1) / ranges;  // Of as many tiles each, fewer ranges may do.
  return static_cast<int>(std::max<int64_t>(1, (tiles + each - 1) / std::max<int64_t>(1, each)));
}

template <typename T, int kDepth>
Error split_k(const Problem &problem, cudaStream_t stream) {
  const int ranges = split_ranges<kDepth>(problem);
  if (ranges == 1) return launch_tensor_core<T, SplitShape<kDepth>>(problem, stream);
  const size_t rows = size_t(ranges) * problem.batches * problem.heads * problem.queries;
  const Workspace workspace(rows * (problem.depth + kPartialExtra) * sizeof(float), stream);
  if (!workspace.data()) return kOutOfMemory;
  const Partials partials{static_cast<float *>(workspace.data()), ranges, problem.depth};
  if (const Error error = split_partial<T, kDepth>(problem, partials, stream)) return error;
  return split_reduce<T>(problem, partials, stream);
}

}  // namespace attention
