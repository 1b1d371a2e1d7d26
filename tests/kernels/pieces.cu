// Which block takes which piece of work: Pieces and Schedule of groups.cuh on any numbers of blocks, heads and tiles.
#include "cuda/groups.cuh"

using namespace attention;
using namespace simt;

// takers: [batches, heads, tiles of 64 rows], 0 before; each tile says which block took it, as its number from 1 on.
__global__ void pieces_kernel(const Schedule schedule, const Problem problem, const int tiles, int32_t *const takers) {
  for (Pieces pieces(schedule); pieces.more(); pieces.next()) {
    const Work work = pieces.work(problem, 64);
    for (int group = 0; group < work.groups && work.row(group) < problem.queries; group++) {
      int32_t *const place = takers + (work.batch * problem.heads + work.head) * tiles + work.row(group) / 64;
      // A second time by the same block is told by a number that no block has; by another, the emulator calls it a race.
      global_store(place, global_load(place) ? -1 : static_cast<int32_t>(blockIdx.x) + 1);
    }
  }
}

const char *take(long blocks, long tiles, const Problem &problem, const Schedule &schedule, int32_t *takers) {
  simt::withdraw_all();
  simt::expose(takers, static_cast<size_t>(tiles * problem.heads * problem.batches) * sizeof(int32_t), "takers", true);
  const dim3 grid(static_cast<unsigned>(blocks));
  launch<pieces_kernel>(grid, dim3(1), 0, nullptr, schedule, problem, static_cast<int>(tiles), takers);
  return launch_error();
}

// `section`: heads that are shared out together; 0: without a mask, where all are.
extern "C" const char *take_pieces(long blocks, long row_tiles, long heads, long batches, long section, int32_t *takers) {
  const int tiles = static_cast<int>(row_tiles), units = static_cast<int>(heads * batches), pieces = units * tiles;
  const int width = section ? static_cast<int>(section) : 1;
  Problem problem = {};
  problem.heads = static_cast<int>(heads), problem.batches = static_cast<int>(batches), problem.queries = 64 * tiles;
  const Schedule schedule{tiles, units, width, pieces, section ? width * tiles : pieces, 1, pieces, 1, 1, false};
  return take(blocks, row_tiles, problem, schedule, takers);
}

// As a call of so many queries shares them out, for the multiprocessors of the build.
extern "C" const char *take_rows(long queries, long heads, long batches, long groups, long causal, long folded,
                                 int32_t *takers) {
  Problem problem = {};
  problem.heads = static_cast<int>(heads), problem.batches = static_cast<int>(batches);
  problem.queries = static_cast<int>(queries), problem.causal = causal;
  const Schedule schedule = make_schedule(problem, static_cast<int>(groups), folded);
  return take(std::min<int64_t>(kSms, schedule.pieces), (queries - 1) / 64 + 1, problem, schedule, takers);
}

extern "C" void choose_section(long units, long row_tiles, int64_t *section) {
  *section = heads_of_section(units, row_tiles);
}

// takers: [heads of all batches, tiles of 192 rows, tiles of keys]; slots: of the workspace, which tile of rows is there,
// from 1 on.
__global__ void shares_kernel(const EvenSchedule schedule, const Problem problem, const int keys,
                              const int most, int32_t *const takers, int32_t *const slots) {
  for (EvenPieces pieces(schedule); pieces.more(); pieces.next()) {
    const Work work = pieces.work(problem, keys);
    const int tile = (work.batch * problem.heads + work.head) * schedule.row_tiles + work.first_row / 192;
    for (int step = work.begin; step < work.end; step++) {
      int32_t *const place = takers + int64_t(tile) * most + step;
      global_store(place, global_load(place) ? -1 : static_cast<int32_t>(blockIdx.x) + 1);
    }
    if (work.slot >= 0) global_store(slots + work.slot, global_load(slots + work.slot) ? -1 : tile + 1);
  }
}

extern "C" const char *take_shares(long queries, long keys, long heads, long batches, long causal, long lead,
                                   int32_t *takers, int32_t *slots) {
  constexpr int kKeys = 128;
  Problem problem = {};
  problem.heads = static_cast<int>(heads), problem.batches = static_cast<int>(batches);
  problem.queries = static_cast<int>(queries), problem.keys = static_cast<int>(keys);
  problem.causal = causal, problem.lead = static_cast<int>(lead);
  const EvenSchedule schedule = even_schedule(problem, 3, kKeys);
  const int most = (problem.keys - 1) / kKeys + 1;
  simt::withdraw_all();
  simt::expose(takers, size_t(heads * batches) * schedule.row_tiles * most * sizeof(int32_t), "takers", true);
  simt::expose(slots, 2 * kSms * sizeof(int32_t), "slots", true);
  launch<shares_kernel>(dim3(schedule.blocks), dim3(1), 0, nullptr, schedule, problem, kKeys, most, takers, slots);
  return launch_error();
}
