// Which block takes which piece of work: Pieces and Schedule of groups.cuh on any numbers of blocks, heads and tiles.
#include "cuda/groups.cuh"

using namespace attention;
using namespace simt;

constexpr int kTileRows = 64;

// takers: [batches, heads, row tiles], 0 before; each piece says which block took it, as its number from 1 on.
__global__ void pieces_kernel(const Schedule schedule, const Problem problem, int32_t *const takers) {
  for (Pieces pieces(schedule); pieces.more(); pieces.next()) {
    const Work work = schedule.at(problem, pieces.piece(), kTileRows);
    const int unit = work.batch * problem.heads + work.head;
    int32_t *const place = takers + unit * schedule.row_tiles + work.first_row / kTileRows;
    // A second time by the same block is told by a number that no block has; by another, the emulator calls it a race.
    global_store(place, global_load(place) ? -1 : static_cast<int32_t>(blockIdx.x) + 1);
  }
}

// `section`: heads that are shared out together; 0: without a mask, where all are.
extern "C" const char *take_pieces(long blocks, long row_tiles, long heads, long batches, long section, int32_t *takers) {
  const int tiles = static_cast<int>(row_tiles), units = static_cast<int>(heads * batches), pieces = units * tiles;
  const int width = section ? static_cast<int>(section) : 1;
  Problem problem = {};
  problem.heads = static_cast<int>(heads), problem.batches = static_cast<int>(batches);
  simt::withdraw_all();
  simt::expose(takers, static_cast<size_t>(pieces) * sizeof(int32_t), "takers", true);
  const Schedule schedule{tiles, units, width, pieces, section ? width * tiles : pieces};
  launch<pieces_kernel>(dim3(static_cast<unsigned>(blocks)), dim3(1), 0, nullptr, schedule, problem, takers);
  return launch_error();
}

extern "C" void choose_section(long units, long row_tiles, int64_t *section) {
  *section = heads_of_section(units, row_tiles);
}
