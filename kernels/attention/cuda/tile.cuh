// Tiles of two-byte elements in shared memory, swizzled so that ldmatrix meets no bank twice.
//
// A row of D elements is D/8 chunks of 16 bytes. Eight consecutive rows of one column of chunks are what ldmatrix
// reads at a time; they have to lie in eight different groups of banks. Where a row is 128 bytes or more, chunk c of
// row r is kept at c XOR (r mod 8); narrower rows share a line of 128 bytes, so r counts in lines there.
//
// All steps of 16 rows, and of 2 chunks, are then one addition or one XOR away from an address, because tiles are
// aligned to their rows' size: a lane works out one address for each operand, before its loops.
#pragma once

#include "problem.cuh"

namespace attention {

using namespace simt;

template <int kDepth>
struct Swizzle {
  static_assert(kDepth == 16 || kDepth == 32 || kDepth % 64 == 0, "rows of 32, 64 or a multiple of 128 bytes");
  static constexpr int kChunks = kDepth / 8;
  static constexpr int kPitch = kDepth * 2;  // Bytes of a row.

  SIMT_DEVICE static int turn(int row) {
    return kDepth >= 64 ? row & 7 : kDepth == 32 ? row >> 1 & 3 : row >> 2 & 1;
  }
  SIMT_DEVICE static SharedAddress at(SharedAddress tile, int row, int chunk) {
    return tile + row * kPitch + ((chunk ^ turn(row)) << 4);
  }
};

// Eight elements, zeros beyond the last row and the last feature, by plain loads: for rows that do not begin at
// multiples of 16 bytes. Only tiles of 16 features are loaded this way.
template <typename T>
SIMT_DEVICE Words4 gather(const Matrix<const T> &matrix, int row, int feature) {
  uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++)
    if (row < matrix.rows && feature + i < matrix.depth) {
      const T element = global_load(matrix.data + row * matrix.stride + feature + i);
      words[i / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t &>(element)) << (i % 2 * 16);
    }
  return {words[0], words[1], words[2], words[3]};
}

// Begin to copy rows [first, first + kRows) into a tile, by kThreads threads; rows and features that the matrix does
// not have become zero. The caller commits, waits, and then has its threads meet.
template <int kDepth, int kRows, int kThreads, typename T>
SIMT_DEVICE void load_tile(SharedAddress tile, const Matrix<const T> &matrix, int first, int thread) {
  using Layout = Swizzle<kDepth>;
  constexpr int kCopies = kRows * Layout::kChunks;
#pragma unroll
  for (int done = 0; done < kCopies; done += kThreads) {
    const int copy = done + thread;
    if (kCopies % kThreads != 0 && copy >= kCopies) break;
    const int row = copy / Layout::kChunks, chunk = copy % Layout::kChunks;
    const SharedAddress place = Layout::at(tile, row, chunk);
    if constexpr (kDepth == 16) {
      shared_store(place, gather(matrix, first + row, chunk * 8));
    } else {
      const bool inside = first + row < matrix.rows && chunk * 8 < matrix.depth;
      const int64_t offset = inside ? (first + row) * matrix.stride + chunk * 8 : 0;
      cp_async_16(place, matrix.data + offset, inside);
    }
  }
}

// Turn the sign of every element that the same thread loaded; between its wait and the barrier.
template <int kDepth, int kRows, int kThreads>
SIMT_DEVICE void negate_tile(SharedAddress tile, int thread) {
  using Layout = Swizzle<kDepth>;
  for (int copy = thread; copy < kRows * Layout::kChunks; copy += kThreads) {
    const SharedAddress place = Layout::at(tile, copy / Layout::kChunks, copy % Layout::kChunks);
    Words4 words = shared_load<Words4>(place);
    words.x ^= 0x80008000u, words.y ^= 0x80008000u, words.z ^= 0x80008000u, words.w ^= 0x80008000u;
    shared_store(place, words);
  }
}

// Rows [first, first + kRows) of a tile to global memory, by kThreads threads.
template <int kDepth, int kRows, int kThreads, typename T>
SIMT_DEVICE void store_tile(SharedAddress tile, const Matrix<T> &matrix, int first, int thread) {
  using Layout = Swizzle<kDepth>;
  constexpr int kCopies = kRows * Layout::kChunks;
#pragma unroll
  for (int done = 0; done < kCopies; done += kThreads) {
    const int copy = done + thread;
    if (kCopies % kThreads != 0 && copy >= kCopies) break;
    const int row = copy / Layout::kChunks, chunk = copy % Layout::kChunks;
    if (first + row >= matrix.rows) continue;
    const SharedAddress place = Layout::at(tile, row, chunk);
    T *target = matrix.data + (first + row) * matrix.stride + chunk * 8;
    if constexpr (kDepth == 16) {
      for (int i = 0; i < 8; i++)
        if (chunk * 8 + i < matrix.depth) global_store(target + i, shared_load<T>(place + 2 * i));
    } else if (chunk * 8 < matrix.depth) {
      global_store(reinterpret_cast<Words4 *>(target), shared_load<Words4>(place));
    }
  }
}

}  // namespace attention
