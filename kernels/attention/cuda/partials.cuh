// What a block of the first of two passes leaves of its range of keys: the workspace of `split_k`.
//
// A partial result of a row over range i: a logit m_i near its highest, its sum l_i = sum_j 2^(x_j - m_i) and its weighted
// values P_i = sum_j 2^(x_j - m_i) v_j, with logits x in powers of two. A range in which a row sees no key has
// m_i = -inf, l_i = 0 and P_i = 0.
//
// The workspace is [ranges, batches, heads, queries, D + 4] floats: P_i, m_i, l_i and two zeros, so that rows begin
// at multiples of 16 bytes where D allows it.
#pragma once

#include "dispatch.cuh"

namespace attention {

constexpr int kPartialExtra = 4;

// Where a row's partial result over a range lies.
struct Partials {
  float *data;
  int ranges, depth;

  SIMT_DEVICE float *row(const Problem &problem, int range, int query) const {
    const int64_t head = (int64_t(range) * problem.batches + blockIdx.z) * problem.heads + blockIdx.y;
    return data + (head * problem.queries + query) * (depth + kPartialExtra);
  }
};

}  // namespace attention
