// Attention on tensor cores: a block takes kRows query rows of one head and walks over its keys, kKeys at a time.
//
//   Q     kRows x D, once, into registers; its shared memory is then used for keys and values
//   loop  S = Q K^T      while V of this tile is on its way (cp.async)
//         softmax        while K of the next tile is on its way
//         O += P V
//   O     through shared memory, so that rows leave in 16-byte pieces
//
// Shared memory: one tile of keys and one of values, 2 kKeys D bytes each; Q and O lie over them and may need more:
//   max(kRows, 2 kKeys) 2 D bytes.          D = 64, 64 x 64: 16 KB.   D = 128, 64 x 64: 32 KB.
// The last tiles come first: those are the masked ones, and a warp whose mask is behind it runs a loop without any
// test of elements. Under a causal mask the blocks with most work are launched first.
#pragma once

#include "dispatch.cuh"
#include "warp.cuh"

namespace attention {

template <int kDepth_, int kRows_, int kKeys_, int kWarps_, int kBlocks_>
struct TensorCoreShape {
  static constexpr int kDepth = kDepth_, kRows = kRows_, kKeys = kKeys_, kWarps = kWarps_;
  static constexpr int kBlocks = kBlocks_;  // Blocks a multiprocessor is to hold: bounds the registers.
  static constexpr int kThreads = kWarps * 32, kStrips = kRows / kWarps / 16;
  static constexpr int kKeyBytes = kKeys * kDepth * 2;
  static constexpr int kQueryBytes = kRows * kDepth * 2;
  static constexpr int kSharedBytes = kQueryBytes > 2 * kKeyBytes ? kQueryBytes : 2 * kKeyBytes;

  static_assert(kRows % (16 * kWarps) == 0, "query rows: a multiple of 16 for each warp");
  static_assert(kKeys % 16 == 0, "keys: a multiple of 16, the depth of an mma");
  static_assert(kDepth == 16 || kDepth == 32 || kDepth == 64 || kDepth == 128, "features: 16, 32, 64 or 128");
  static_assert(kWarps >= 1 && kWarps <= 32, "warps: 1 to 32, a block has at most 1024 threads");
  static_assert(kSharedBytes <= 101376, "shared memory: a block of an L4 may have 99 KB");
};

// The state of a block's walk over keys, warp by warp.
template <typename T, class Shape, bool kCausal>
struct Walk {
  using State = Warp<T, Shape::kDepth, Shape::kStrips, Shape::kKeys>;

  const Problem &problem;
  Matrix<const T> keys, values;
  SharedAddress key_tile, value_tile;
  int thread, lane, first_row;  // first_row: of the warp.

  SIMT_DEVICE void load_keys(int tile) const {
    load_tile<Shape::kDepth, Shape::kKeys, Shape::kThreads>(key_tile, keys, tile * Shape::kKeys, thread);
    cp_async_commit();
  }
  SIMT_DEVICE void load_values(int tile) const {
    load_tile<Shape::kDepth, Shape::kKeys, Shape::kThreads>(value_tile, values, tile * Shape::kKeys, thread);
    cp_async_commit();
  }

  // Take in one tile of keys; the next one down, if it is not below `begin`, is fetched meanwhile.
  template <bool kEdge>
  SIMT_DEVICE void step(State &state, const typename State::Queries &queries, int tile, int begin) const {
    typename State::Logits logits;
    cp_async_wait<0>();
    __syncthreads();  // The keys are there, and nobody reads the last tile's values any more.
    load_values(tile);
    State::multiply_keys(logits, queries, key_tile, lane);
    if constexpr (kEdge) State::template mask<kCausal>(logits, problem, tile * Shape::kKeys, first_row, lane);
    cp_async_wait<0>();
    __syncthreads();  // The values are there, and nobody reads these keys any more.
    if (tile > begin) load_keys(tile - 1);
    state.weigh(logits, problem.scale_log2);
    state.multiply_values(logits, value_tile, lane);
  }

  // Tiles end-1 down to begin; those from `edge` on have elements that somebody may not see.
  SIMT_DEVICE void run(State &state, const typename State::Queries &queries, int begin, int end, int edge) const {
    if (end > begin) load_keys(end - 1);
    int tile = end - 1;
    for (; tile >= begin && tile >= edge; tile--) step<true>(state, queries, tile, begin);
    for (; tile >= begin; tile--) step<false>(state, queries, tile, begin);
    __syncthreads();  // Shared memory is free for the output.
  }
};

// The block's queries, by way of shared memory into registers.
template <typename T, class Shape, class Queries>
SIMT_DEVICE void fetch_queries(Queries &queries, const Problem &problem, SharedAddress shared, int first_row) {
  using State = Warp<T, Shape::kDepth, Shape::kStrips, Shape::kKeys>;
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const auto matrix = head_of<T>(problem.q, problem.q_strides, problem.queries, problem.depth);
  load_tile<Shape::kDepth, Shape::kRows, Shape::kThreads>(shared, matrix, first_row, thread);
  cp_async_commit();
  cp_async_wait<0>();
  if (problem.negative) negate_tile<Shape::kDepth, Shape::kRows, Shape::kThreads>(shared, thread);
  __syncthreads();
  State::load_queries(queries, shared + warp * Shape::kStrips * 16 * Shape::kDepth * 2, lane);
  __syncthreads();
}

// First tile, counted from the start, in which some row from `first_row` on may not see every key.
template <class Shape, bool kCausal>
SIMT_DEVICE int first_edge(const Problem &problem, int first_row) {
  const int whole = visible_keys(problem, first_row, kCausal);
  return whole / Shape::kKeys;
}

template <typename T, class Shape, bool kCausal>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) tensor_core_kernel(const Problem problem) {
  using Walker = Walk<T, Shape, kCausal>;
  const SharedAddress shared = shared_base();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int block = kCausal ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = block * Shape::kRows, warp_row = warp * Shape::kStrips * 16;

  typename Walker::State::Queries queries;
  fetch_queries<T, Shape>(queries, problem, shared, first_row);

  const int visible = visible_keys(problem, first_row + Shape::kRows - 1, kCausal);
  const Walker walk{problem,
                    head_of<T>(problem.k, problem.k_strides, problem.keys, problem.depth),
                    head_of<T>(problem.v, problem.v_strides, problem.keys, problem.depth),
                    shared,
                    shared + Shape::kKeyBytes,
                    thread,
                    lane,
                    first_row + warp_row};
  typename Walker::State state;
  state.begin();
  walk.run(state, queries, 0, (visible + Shape::kKeys - 1) / Shape::kKeys, first_edge<Shape, kCausal>(problem, first_row));
  state.finish_sums();

  // Each warp writes its own rows, and reads no others.
  const SharedAddress rows = shared + warp_row * Shape::kDepth * 2;
  state.put_output(rows, lane);
  __syncwarp();
  store_tile<Shape::kDepth, Shape::kStrips * 16, 32>(rows, output_head_of<T>(problem), first_row + warp_row, lane);
}

template <typename T, class Shape>
Error launch_tensor_core(const Problem &problem, cudaStream_t stream) {
  const dim3 grid((problem.queries + Shape::kRows - 1) / Shape::kRows, problem.heads, problem.batches);
  const dim3 block(Shape::kThreads);
  const bool launched =
      problem.causal ? launch<tensor_core_kernel<T, Shape, true>>(grid, block, Shape::kSharedBytes, stream, problem)
                     : launch<tensor_core_kernel<T, Shape, false>>(grid, block, Shape::kSharedBytes, stream, problem);
  return launched ? kSuccess : kLaunchFailed;
}

// Provisional for an L4: its compiler's report decides (no spills), timings on an H200 guide.
template <int kDepth>
struct TensorCoreTile : TensorCoreShape<kDepth, 64, 64, 4, kDepth == 128 ? 2 : 3> {};

template <typename T, int kDepth>
Error tensor_core(const Problem &problem, cudaStream_t stream) {
  return launch_tensor_core<T, TensorCoreTile<kDepth>>(problem, stream);
}

}  // namespace attention
