// Parts of the kernel's work on the CPU: how they are written down (../parts.h).
#pragma once

#include "../parts.h"

#if defined(ATTENTION_PARTS)

#include <cmath>

#include "block.h"

namespace attention {

// What the head that this thread works on is to write down.
struct Recorder {
  Parts parts;
  int64_t head = 0;
};
inline thread_local Recorder recorder;

inline void record(Part part, int64_t row, int64_t column, float value) {
  const Parts &parts = recorder.parts;
  if (part != parts.part || row >= parts.rows || column >= parts.width) return;
  parts.data[(recorder.head * parts.rows + row) * parts.width + column] = value;
}

// Logarithms of the weights of four keys for one vector of a block; `reference` was subtracted from their scores.
inline void record_weights(const Block &block, const Keys &keys, int n, int j, int seen, const Vec (&weights)[4],
                           Vec reference) {
  for (int lane = 0; lane < kLanes && n * kLanes + lane < block.rows; lane++)
    for (int i = 0; i < 4 && j + i < seen; i++)
      record(kWeights, block.first + n * kLanes + lane, keys.first + j + i,
             std::log2(weights[i][lane]) + reference[lane]);
}

// Scores of keys of a tile, before they become weights.
template <class By>
void record_scores(const Block &block, const Keys &keys, int n, int seen, const float *scores, const By &weights) {
  for (int lane = 0; lane < kLanes && n * kLanes + lane < block.rows; lane++)
    for (int j = 0; j < seen; j++)
      record(kScores, block.first + n * kLanes + lane, keys.first + j,
             weights.scaled(splat(scores[j * block.lanes() + lane]))[0]);
}

// What a block has come to, before it ends.
inline void record_block(const Block &block, int64_t depth) {
  for (int i = 0; i < block.rows; i++) {
    const int64_t row = block.first + i;
    const float reference = block.max[i] + block.headroom;
    record(kRowMaximum, row, 0, block.max[i] == -FLT_MAX ? -INFINITY : block.max[i]);
    record(kRowSum, row, 0, std::log2(block.sum[i]) + reference);
    record(kWeightedValues, row, depth, block.sum[i]);
    record(kWeightedValues, row, depth + 1, reference);
    for (int64_t d = 0; d < depth && block.keys > 0; d++)
      record(kWeightedValues, row, d, block.o[d * block.lanes() + i]);
  }
}

}  // namespace attention

#endif
