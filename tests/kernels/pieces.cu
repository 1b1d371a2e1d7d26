// Which block takes which piece of work: Pieces and Schedule of groups.cuh on any numbers of blocks, heads and tiles.
#include "cuda/groups.cuh"

using namespace attention;
using namespace simt;

// takers: [batches, heads, tiles of 64 rows], 0 before; each tile says which block took it, as its number from 1 on.
__global__ void pieces_kernel(const Schedule schedule, const Problem problem, const int tiles, int32_t *const takers) {
  for (Pieces pieces(schedule); pieces.more(); pieces.next()) {
    const Work work = schedule.at(problem, pieces.piece());
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
