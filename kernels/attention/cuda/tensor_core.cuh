// Attention on tensor cores: a block takes kRows query rows of one head and walks over its keys, kKeys at a time.
//
//   Q     kRows x D, once: into registers, then its shared memory is used for keys and values; or it stays there
//   loop  S = Q K^T      while V of this tile is on its way (cp.async)
//         softmax        while K of the next tile is on its way
//         O += P V
//   O     through shared memory, so that rows leave in 16-byte pieces
//
// Shared memory: one tile of keys and one of values, 2 kKeys D bytes each. Where Q is held in registers, Q and O lie
// over them, max(kRows, 2 kKeys) 2 D bytes in all; else Q, and later O, lie before them, (kRows + 2 kKeys) 2 D bytes.
//   D = 64, 128 x 64, held: 16 KB.   D = 128, 64 x 64: held 32 KB, else 48 KB.
// The last tiles come first: those are the masked ones, and a warp whose mask is behind it runs a loop without any
// test of elements. Under a causal mask the blocks with most work are launched first.
#pragma once

#include "dispatch.cuh"
#include "parts.cuh"
#include "tiles.cuh"
#include "warp.cuh"

namespace attention {

// The state of a block's walk over keys, warp by warp.
template <typename T, class Shape>
struct Walk {
  using State = Warp<T, Shape::kDepth, Shape::kStrips, Shape::kKeys>;
  using Queries = std::conditional_t<Shape::kHeld, typename State::HeldQueries, typename State::SharedQueries>;
  using Loader = TileLoader<T, Shape::kDepth, Shape::kKeys, Shape::kThreads>;

  const Problem &problem;
  SharedAddress key_tile, value_tile;
  unsigned lane;
  int first_row;  // Of the warp.
  Loader keys, values;

  SIMT_DEVICE Walk(const Problem &problem, SharedAddress shared, unsigned thread, int first_row)
      : problem(problem),
        key_tile(shared + Shape::kKeysAt),
        value_tile(key_tile + Shape::kKeyBytes),
        lane(thread % 32),
        first_row(first_row),
        keys(keys_of<T>(problem), thread),
        values(values_of<T>(problem), thread) {}

  // Only the last tile of all may lack rows: `kEdge` steps look, others need not.
  template <bool kEdge>
  SIMT_DEVICE void load_keys(int tile) const {
    keys.template copy_rows<kEdge>(key_tile, tile * Shape::kKeys);
    cp_async_commit();
  }
  template <bool kEdge>
  SIMT_DEVICE void load_values(int tile) const {
    values.template copy_rows<kEdge>(value_tile, tile * Shape::kKeys);
    cp_async_commit();
  }

  // Take in one tile of keys; the next one down, if it is not below `begin`, is fetched meanwhile.
  template <bool kEdge>
  SIMT_DEVICE void step(State &state, const Queries &queries, int tile, int begin) const {
    typename State::Logits logits;
    cp_async_wait<0>();
    __syncthreads();  // The keys are there, and nobody reads the last tile's values any more.
    load_values<kEdge>(tile);
    State::multiply_keys(logits, queries, key_tile, lane);
    if constexpr (kEdge) State::mask(logits, problem, tile * Shape::kKeys, first_row, lane);
    cp_async_wait<0>();
    __syncthreads();  // The values are there, and nobody reads these keys any more.
    if (tile > begin) load_keys<false>(tile - 1);
    state.weigh(logits, problem, tile * Shape::kKeys, first_row, lane);
    state.multiply_values(logits, value_tile, lane);
  }

  // Tiles end-1 down to begin; those from `edge` on have elements that somebody may not see.
  SIMT_DEVICE void run(State &state, const Queries &queries, int begin, int end, int edge) const {
    if (end > begin) load_keys<true>(end - 1);
    int tile = end - 1;
    for (; tile >= begin && tile >= edge; tile--) step<true>(state, queries, tile, begin);
    for (; tile >= begin; tile--) step<false>(state, queries, tile, begin);
    __syncthreads();  // Shared memory is free for the output.
  }
};

// The block's queries, by way of shared memory.
template <typename T, class Shape, class Queries>
SIMT_DEVICE void fetch_queries(Queries &queries, const Problem &problem, SharedAddress shared, int first_row) {
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const auto matrix = queries_of<T>(problem);
  const TileLoader<T, Shape::kDepth, Shape::kRows, Shape::kThreads> loader(matrix, thread);
  loader.copy(shared, first_row);
  cp_async_commit();
  cp_async_wait<0>();
  const SharedAddress own_rows = shared + warp * Shape::kStrips * 16 * Shape::kDepth * 2;
  if constexpr (Shape::kHeld) {
    __syncthreads();
    queries.fetch(own_rows, lane, problem.negative);
    __syncthreads();  // Keys may lie over them.
  } else {
    if (problem.negative) loader.negate(shared);
    __syncthreads();
    queries.fetch(own_rows, lane);
  }
}

// First tile, counted from the start, in which some row from `first_row` on may not see every key.
template <class Shape>
SIMT_DEVICE int first_edge(const Problem &problem, int first_row) {
  const int whole = visible_keys(problem, first_row);
  return whole / Shape::kKeys;
}

template <typename T, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, Shape::kBlocks) tensor_core_kernel(const Problem problem) {
  using Walker = Walk<T, Shape>;
  const SharedAddress shared = shared_base();
  const unsigned thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * Shape::kRows;
  const int warp_row = static_cast<int>(warp) * Shape::kStrips * 16;

  wait_for_previous();
  typename Walker::Queries queries;
  fetch_queries<T, Shape>(queries, problem, shared, first_row);

  const int visible = visible_keys(problem, first_row + Shape::kRows - 1);
  const Walker walk(problem, shared, thread, first_row + warp_row);
  typename Walker::State state;
  state.begin();
  walk.run(state, queries, 0, (visible + Shape::kKeys - 1) / Shape::kKeys, first_edge<Shape>(problem, first_row));
  allow_next();
  state.finish_sums();
  ATTENTION_SEEN(state.record_rows(problem, first_row + warp_row, lane));

  // Each warp writes its own rows, and reads no others.
  const SharedAddress rows = shared + warp_row * Shape::kDepth * 2;
  state.put_output(rows, lane);
  __syncwarp();
  store_tile<Shape::kDepth, Shape::kStrips * 16, 32>(rows, output_of<T>(problem), first_row + warp_row, lane);
}

template <typename T, class Shape>
Error launch_tensor_core(const Problem &problem, cudaStream_t stream) {
  const dim3 grid((problem.queries + Shape::kRows - 1) / Shape::kRows, problem.heads, problem.batches);
  const dim3 block(Shape::kThreads);
  const bool launched = launch_early<tensor_core_kernel<T, Shape>>(grid, block, Shape::kSharedBytes, stream, problem);
  return launched ? kSuccess : kLaunchFailed;
}

// How many rows a multiprocessor takes one after the other, in eighths: those of whole waves; under a causal mask, where
// blocks differ and go on as others end, those of all waves and of one for the last to end.
template <class Shape>
int64_t rows_in_turn(const Problem &problem) {
  constexpr int64_t kSlots = kSms * Shape::kBlocks;
  const int64_t blocks = int64_t(problem.batches) * problem.heads * ((problem.queries - 1) / Shape::kRows + 1);
  const int64_t waves = problem.causal ? 8 * blocks / kSlots + 8 : 8 * ((blocks - 1) / kSlots + 1);
  return waves * Shape::kBlocks * Shape::kRows;
}

template <typename T, int kDepth>
Error tensor_core(const Problem &problem, cudaStream_t stream) {
  using Large = typename Wide<kDepth>::Base;
  using Small = typename Narrow<kDepth>::Base;
  // Of the large tiles' time for a row, on an H200, in percent.
  const int64_t small_takes = kDepth == 64 ? (problem.causal ? 105 : 107) : 117;
  if constexpr (!std::is_same<Large, Small>::value)
    if (100 * rows_in_turn<Large>(problem) < small_takes * rows_in_turn<Small>(problem))
      return launch_tensor_core<T, Large>(problem, stream);
  return launch_tensor_core<T, Small>(problem, stream);
}

}  // namespace attention
