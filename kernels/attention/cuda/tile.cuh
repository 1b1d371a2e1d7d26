// Tiles of two-byte elements in shared memory, swizzled so that ldmatrix meets no bank twice.
//
// A row of D elements is D/8 chunks of 16 bytes. Eight consecutive rows of one column of chunks are what ldmatrix
// reads at a time; they have to lie in eight different groups of banks. Where rows are lines of 128 bytes, chunk c of
// row r is kept at c XOR (r mod 8). Rows of 32, 64 or 192 bytes begin within a line: there r counts in lines, or in
// pairs of rows, and fewer chunks change places.
//
// All steps of 16 rows, and of 2 chunks, are then an addition and an XOR away from an address, because a group of
// chunks that change places is aligned to its size: a lane works out one address for each operand, before its loops.
#pragma once

#include "problem.cuh"

namespace attention {

using namespace simt;

constexpr uint32_t kSigns = 0x80008000u;  // Of two elements in a register.

template <int kDepth>
struct Swizzle {
  static_assert(kDepth == 16 || kDepth % 64 == 0 || kDepth % 64 == 32, "rows of 32 bytes, or a multiple of 64");
  static constexpr int kChunks = kDepth / 8;
  static constexpr int kPitch = kDepth * 2;  // Bytes of a row.
  static constexpr int kGroup = kDepth == 16 ? 2 : kDepth % 64 ? 4 : 8;  // Chunks that change places.

  SIMT_DEVICE static int turn(int row) { return kGroup == 8 ? row & 7 : kGroup == 4 ? row >> 1 & 3 : row >> 2 & 1; }
  SIMT_DEVICE static SharedAddress at(SharedAddress tile, int row, int chunk) {
    return tile + row * kPitch + ((chunk ^ turn(row)) << 4);
  }
  // That many times two chunks on, from the address of a row's first or second chunk.
  SIMT_DEVICE static SharedAddress step(SharedAddress begin, int steps) {
    constexpr int kWithin = kGroup / 2;
    return (begin ^ (steps % kWithin << 5)) + steps / kWithin * kGroup * 16;
  }
};

// What one of kThreads threads copies of every tile of kRows rows: the same chunks of every kStep-th row, one where
// a row has a power of two of them, else each third. It works out addresses once; from tile to tile they move by a
// multiplication, from row to row by an addition.
template <typename T, int kDepth, int kRows, int kThreads>
struct TileLoader {
  using Layout = Swizzle<kDepth>;
  static constexpr int kAcross = Layout::kChunks & -Layout::kChunks;  // Threads side by side in a row.
  static constexpr int kParts = Layout::kChunks / kAcross, kStep = kThreads / kAcross;
  // Every so many copies the swizzle is the same again.
  static constexpr int kTurns = kStep % 8 == 0 ? 1 : 8 / kStep;
  static_assert(kThreads % kAcross == 0, "threads: a multiple of those that share a row");
  static_assert(kParts == 1 || kAcross == Layout::kGroup, "parts of a row: no chunk leaves its own");
  static_assert(kStep % 8 == 0 || 8 % kStep == 0, "rows between two copies: a divisor or a multiple of 8");

  const T *source;  // This thread's chunk of row `row`.
  int64_t stride;
  SharedAddress places[kTurns];  // Of its first copies, within a tile.
  int rows, depth, row, feature;

  SIMT_DEVICE TileLoader(const Matrix<const T> &matrix, unsigned thread) {
    row = static_cast<int>(thread / kAcross);
    feature = static_cast<int>(thread % kAcross * 8);
    rows = matrix.rows, depth = matrix.depth, stride = matrix.stride;
    source = matrix.data + row * stride + feature;
#pragma unroll
    for (int i = 0; i < kTurns; i++) places[i] = Layout::at(0, row + i * kStep, feature / 8);
  }

  // Begin to copy rows [first, first + kRows) into a tile. Rows and features that the matrix does not have become
  // zero. The caller commits, waits, and then has its threads meet.
  SIMT_DEVICE void copy(SharedAddress tile, int first) const {
    if (first + kRows <= rows)
      copy_rows<false>(tile, first);
    else
      copy_rows<true>(tile, first);
  }

  // The same where the caller knows whether the last rows may be missing.
  template <bool kChecked>
  SIMT_DEVICE void copy_rows(SharedAddress tile, int first) const {
    const T *from = source + first * stride;  // Where nothing is to be read it may point anywhere.
    const int left = rows - first - row;
#pragma unroll
    for (int i = 0; i * kStep < kRows; i++, from += kStep * stride) {
      if (kRows % kStep != 0 && i * kStep + row >= kRows) break;
      const SharedAddress place = tile + places[i % kTurns] + i / kTurns * kTurns * kStep * Layout::kPitch;
      if constexpr (kDepth == 16) {
        shared_store(place, gather(from, first + i * kStep + row));
      } else {
#pragma unroll
        for (int part = 0; part < kParts; part++) {
          const int ahead = part * kAcross * 8;
          cp_async_16(place + ahead * 2, from + ahead, feature + ahead < depth && (!kChecked || i * kStep < left));
        }
      }
    }
  }

  // Turn the sign of every element that this thread copied; between its wait and the barrier.
  SIMT_DEVICE void negate(SharedAddress tile) const {
#pragma unroll 1
    for (int at = row; at < kRows; at += kStep)
#pragma unroll 1
      for (int chunk = feature / 8; chunk < Layout::kChunks; chunk += kAcross) {
        const SharedAddress place = Layout::at(tile, at, chunk);
        Words4 words = shared_load<Words4>(place);
        words.x ^= kSigns, words.y ^= kSigns, words.z ^= kSigns, words.w ^= kSigns;
        shared_store(place, words);
      }
  }

 private:
  // Eight elements, zeros beyond the last row and the last feature, by plain loads: for rows that do not begin at
  // multiples of 16 bytes. Only tiles of 16 features are loaded this way.
  SIMT_DEVICE Words4 gather(const T *from, int at) const {
    uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++)
      if (at < rows && feature + i < depth) {
        const T element = global_load(from + i);
        words[i / 2] |= static_cast<uint32_t>(reinterpret_cast<const uint16_t &>(element)) << (i % 2 * 16);
      }
    return {words[0], words[1], words[2], words[3]};
  }
};

// Rows [first, first + kRows) of a tile to global memory, by kThreads threads.
template <int kDepth, int kRows, int kThreads, typename T>
SIMT_DEVICE void store_tile(SharedAddress tile, const Matrix<T> &matrix, int first, unsigned thread) {
  using Layout = Swizzle<kDepth>;
  constexpr unsigned kCopies = kRows * Layout::kChunks;
#pragma unroll
  for (unsigned done = 0; done < kCopies; done += kThreads) {
    const unsigned copy = done + thread;
    if (kCopies % kThreads != 0 && copy >= kCopies) break;
    const int row = static_cast<int>(copy / Layout::kChunks), chunk = static_cast<int>(copy % Layout::kChunks);
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
