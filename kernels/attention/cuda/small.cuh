// Attention for few heads and short sequences: one block takes 16 query rows, and its warps divide the keys.
//
// Tiles of 64 rows would leave most of a GPU idle there (S = 128, one head: 2 blocks). With 16 rows there are four
// times as many blocks, and inside each the keys are walked by kWarps warps side by side: each has a tile of keys and
// one of values of its own, so that no warp waits for another inside the loop. At the end the warps' outputs are
// merged in shared memory: with M = max m_w, O = sum e^(m_w - M) O_w / sum e^(m_w - M) l_w. One launch, no workspace.
//
// Shared memory: kWarps pairs of tiles of kKeys keys, 4 kKeys D bytes each, and the queries, 32 D bytes. The merge
// lies over them: 16 rows of D + 8 floats and two more floats a row, for each warp.
//   D = 64, 4 warps: 16 keys 18 KB, 32 keys 34 KB, 64 keys 66 KB.   D = 128, 32 keys: 68 KB.
#pragma once

#include "dispatch.cuh"
#include "parts.cuh"
#include "tiles.cuh"
#include "warp.cuh"

namespace attention {

template <int kDepth_, int kKeys_, int kWarps_>
struct SmallShape {
  static constexpr int kDepth = kDepth_, kKeys = kKeys_, kWarps = kWarps_, kRows = 16;
  static constexpr int kThreads = kWarps * 32, kStep = kWarps * kKeys;  // Keys that all warps take at a time.
  static constexpr int kTileBytes = kKeys * kDepth * 2;
  static constexpr int kQueryBytes = kRows * kDepth * 2;
  static constexpr int kQueriesAt = kWarps * 2 * kTileBytes;
  static constexpr int kMergePitch = kDepth + 8;  // Floats: rows begin in different banks.
  static constexpr int kMergeBytes = kWarps * kRows * (kMergePitch + 2) * 4;
  static constexpr int kTilesBytes = kQueriesAt + kQueryBytes;
  static constexpr int kSharedBytes = kTilesBytes > kMergeBytes ? kTilesBytes : kMergeBytes;

  static_assert(kKeys % 16 == 0, "keys: a multiple of 16, the depth of an mma");
  static_assert(kDepth == 16 || kDepth == 32 || kDepth == 64 || kDepth == 128, "features: 16, 32, 64 or 128");
  static_assert(kWarps >= 1 && kWarps <= 32, "warps: 1 to 32, a block has at most 1024 threads");
  static_assert(kMergeBytes <= kSharedBytes, "merge area: it has to lie within the tiles");
  static_assert(kSharedBytes <= 101376, "shared memory: a block of an L4 may have 99 KB");
};

// Eight finished elements of a row to global memory.
template <int kDepth, typename T>
SIMT_DEVICE void store_chunk(const Matrix<T> &matrix, int row, int feature, const Words4 &words) {
  T *target = matrix.data + row * matrix.stride + feature;
  if constexpr (kDepth == 16) {
    const uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
    for (int i = 0; i < 8; i++)
      if (feature + i < matrix.depth) {
        const uint16_t bits = static_cast<uint16_t>(pairs[i / 2] >> (i % 2 * 16));
        global_store(target + i, reinterpret_cast<const T &>(bits));
      }
  } else if (feature < matrix.depth) {
    global_store(reinterpret_cast<Words4 *>(target), words);
  }
}

// The outputs of the warps, side by side in shared memory as floats.
template <class Shape>
struct Merge {
  SharedAddress begin;

  SIMT_DEVICE SharedAddress value(int warp, int row, int feature) const {
    return begin + ((warp * Shape::kRows + row) * Shape::kMergePitch + feature) * 4;
  }
  SIMT_DEVICE SharedAddress top(int warp, int row) const {
    return begin + (Shape::kWarps * Shape::kRows * Shape::kMergePitch + warp * Shape::kRows + row) * 4;
  }
  SIMT_DEVICE SharedAddress sum(int warp, int row) const { return top(warp + Shape::kWarps, row); }

  // The first `rows` rows of a warp's state.
  template <class State>
  SIMT_DEVICE void put(const State &state, int rows, int warp, unsigned lane) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = static_cast<int>(lane / 4) + half * 8;
      if (half * 8 >= rows) break;
      if (lane % 4 == 0) {
        shared_store(top(warp, row), state.top[0][half]);
        shared_store(sum(warp, row), state.sum[0][half]);
      }
#pragma unroll
      for (int n = 0; n < Shape::kDepth / 8; n++)
        shared_store(value(warp, row, n * 8 + static_cast<int>(lane % 4 * 2)),
                     Floats2{state.output[0][n][2 * half], state.output[0][n][2 * half + 1]});
    }
  }

  // Eight features of a row, the sum of its weights, and the highest of the warps' references.
  struct Sums {
    float values[8], total, top;

    // Divided, as elements.
    template <typename T>
    SIMT_DEVICE Words4 finished() const {
      const float inverse = total == 0.0f ? 0.0f : reciprocal_approx(total);
      return {pack<T>(values[0] * inverse, values[1] * inverse), pack<T>(values[2] * inverse, values[3] * inverse),
              pack<T>(values[4] * inverse, values[5] * inverse), pack<T>(values[6] * inverse, values[7] * inverse)};
    }
  };
  SIMT_DEVICE Sums get(int row, int feature, float scale_log2) const {
    float tops[Shape::kWarps], highest = kMasked, total = 0.0f, values[8] = {};
#pragma unroll
    for (int warp = 0; warp < Shape::kWarps; warp++) {
      tops[warp] = shared_load<float>(top(warp, row));
      highest = fmaxf(highest, tops[warp]);
    }
    const float subtracted = highest == kMasked ? 0.0f : highest * scale_log2;
#pragma unroll
    for (int warp = 0; warp < Shape::kWarps; warp++) {
      const float factor = exp2_approx(tops[warp] * scale_log2 - subtracted);
      total += factor * shared_load<float>(sum(warp, row));
#pragma unroll
      for (int i = 0; i < 8; i += 4) {
        const Floats4 four = shared_load<Floats4>(value(warp, row, feature + i));
        values[i] += factor * four.x, values[i + 1] += factor * four.y;
        values[i + 2] += factor * four.z, values[i + 3] += factor * four.w;
      }
    }
    return {{values[0], values[1], values[2], values[3], values[4], values[5], values[6], values[7]}, total, highest};
  }

  // The rows that the output has, from `first_row` on: finished, to global memory.
  template <typename T>
  SIMT_DEVICE void store(const Matrix<T> &output, int first_row, float scale_log2, unsigned thread) const {
    constexpr unsigned kChunks = Shape::kDepth / 8;
    for (unsigned piece = thread; piece < Shape::kRows * kChunks; piece += Shape::kThreads) {
      const int row = static_cast<int>(piece / kChunks), feature = static_cast<int>(piece % kChunks * 8);
      if (first_row + row < output.rows)
        store_chunk<Shape::kDepth>(output, first_row + row, feature,
                                   get(row, feature, scale_log2).template finished<T>());
    }
  }
};

// One warp's walk over every kWarps-th tile of keys.
template <typename T, class Shape>
struct SmallWalk {
  using State = Warp<T, Shape::kDepth, 1, Shape::kKeys>;
  using Loader = TileLoader<T, Shape::kDepth, Shape::kKeys, 32>;

  const Problem &problem;
  const Loader &keys, &values;
  SharedAddress key_tile, value_tile;
  unsigned lane;
  int first_row, tiles, edge;

  // Take in a tile whose keys and values are on their way; the next one's are fetched as soon as there is room.
  template <bool kFirst>
  SIMT_DEVICE void step(State &state, const typename State::HeldQueries &queries, int tile) const {
    typename State::Logits logits;
    const int next = tile + Shape::kWarps;
    cp_async_wait<1>();
    __syncwarp();  // The keys are there for all lanes.
    State::multiply_keys(logits, queries, key_tile, lane);
    __syncwarp();  // Nobody reads these keys any more.
    if (next < tiles) keys.copy(key_tile, next * Shape::kKeys);
    cp_async_commit();
    if (tile >= edge) State::mask(logits, problem, tile * Shape::kKeys, first_row, lane);
    state.template weigh<kFirst>(logits, problem, tile * Shape::kKeys, first_row, lane);
    cp_async_wait<1>();
    __syncwarp();  // The values are there.
    state.multiply_values(logits, value_tile, lane);
    __syncwarp();
    if (next < tiles) values.copy(value_tile, next * Shape::kKeys);
    cp_async_commit();
  }
};

template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) small_kernel(const Problem problem) {
  using State = Warp<T, Shape::kDepth, 1, Shape::kKeys>;
  const bool alone = is_alone();
  if (alone) allow_next();
  const SharedAddress shared = shared_base();
  const unsigned thread = threadIdx.x, lane = thread % 32;
  const int warp = static_cast<int>(thread / 32);
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Shape::kRows;
  const SharedAddress query_tile = shared + Shape::kQueriesAt;
  const SharedAddress key_tile = shared + warp * 2 * Shape::kTileBytes, value_tile = key_tile + Shape::kTileBytes;
  using Loader = TileLoader<T, Shape::kDepth, Shape::kKeys, 32>;
  const Loader keys(keys_of<T>(problem), lane);
  const Loader values(values_of<T>(problem), lane);

  const int visible = visible_keys(problem, first_row + Shape::kRows - 1);
  const int edge = visible_keys(problem, first_row) / Shape::kKeys;
  const int tiles = (visible + Shape::kKeys - 1) / Shape::kKeys;
  int tile = warp;

  wait_for_previous();
  // Everything that the first products need is asked for at once: the queries by all, its own tiles by each warp.
  TileLoader<T, Shape::kDepth, Shape::kRows, Shape::kThreads>(queries_of<T>(problem), thread).copy(query_tile, first_row);
  if (tile < tiles) keys.copy(key_tile, tile * Shape::kKeys);
  cp_async_commit();
  if (tile < tiles) values.copy(value_tile, tile * Shape::kKeys);
  cp_async_commit();

  State state;
  state.begin();
  cp_async_wait<1>();
  __syncthreads();
  typename State::HeldQueries queries;
  queries.fetch(query_tile, lane, problem.negative);
  if (!alone) allow_next();

  const SmallWalk<T, Shape> walk{problem, keys, values, key_tile, value_tile, lane, first_row, tiles, edge};
  if (tile < tiles) walk.template step<true>(state, queries, tile);
  for (tile += Shape::kWarps; tile < tiles; tile += Shape::kWarps) walk.template step<false>(state, queries, tile);
  state.finish_sums();
  ATTENTION_SEEN(state.record_rows(problem, first_row, lane));

  const Merge<Shape> merge{shared};
  __syncthreads();  // No tile is in use any more.
  merge.put(state, problem.queries - first_row, warp, lane);
  __syncthreads();
  merge.store(output_of<T>(problem), first_row, problem.scale_log2, thread);
}

template <typename T, class Shape>
Error launch_small(const Problem &problem, cudaStream_t stream) {
  const dim3 grid((problem.queries + Shape::kRows - 1) / Shape::kRows, problem.heads, problem.batches);
  const dim3 block(Shape::kThreads);
  const size_t bytes = early_bytes(grid, Shape::kSharedBytes);
  const bool launched = launch_early<small_kernel<T, Shape>>(grid, block, bytes, stream, problem);
  return launched ? kSuccess : kLaunchFailed;
}

// What `act` gives for the shape of a call: larger tiles of keys for more of them, as each warp should have one, or few.
// Values by the manifest's `tuning`.
template <int kDepth, class Act>
auto with_small_shape(const Problem &problem, Act act) {
  if constexpr (kDepth == 64) {
    constexpr int kWarps = ATTENTION_SMALL_64_WARPS;
    if (problem.keys <= 64) return act(SmallShape<kDepth, ATTENTION_SMALL_64_SHORT, kWarps>());
    if (problem.keys > 128) return act(SmallShape<kDepth, ATTENTION_SMALL_64_LONG, kWarps>());
    return act(SmallShape<kDepth, ATTENTION_SMALL_64_MIDDLE, kWarps>());
  } else {
    return act(SmallShape<kDepth, 32, 4>());
  }
}

template <int kDepth>
int small_step(const Problem &problem) {
  return with_small_shape<kDepth>(problem, [](auto shape) { return decltype(shape)::kStep; });
}

template <typename T, int kDepth>
Error small(const Problem &problem, cudaStream_t stream) {
  return with_small_shape<kDepth>(problem, [&](auto shape) { return launch_small<T, decltype(shape)>(problem, stream); });
}

}  // namespace attention
