// The two products of bfloat16 and float16 on matrix units: AMX (Sapphire Rapids and later).
//
// A tile instruction adds A (16 rows x 32) times B (32 x 16) to C (16 x 16 floats) in 16 cycles: 512 multiply-adds a
// cycle, where AVX-512 has 32. B's rows go in by pairs: element (k, n) is half k % 2 of the 32-bit word n of row k / 2.
// Both products keep the layout of the others, queries across the lanes, so that the softmax is the same:
//   - S^T = K Q^T: keys are A's rows, as the caller left them. B is Q^T: words of 32 bits, two features of a query,
//     transposed once a block.
//   - O^T = V^T P^T: A is V^T, transposed once for all blocks of a group. B is P^T: two rows of weights, rounded and
//     interleaved by one conversion and one permutation.
// Q is not scaled on its way in: that would round it again, and large logits would be off by much. A score is scaled by
// the multiply-add that takes the maximum away.
// Six accumulators, one A and one B are the eight tile registers: for D = 64 and three vectors of queries, a tile is
// loaded for each 1.2 multiplications. By count, the products of a score take 0.25 cycles, its softmax 0.75.
//
// The units multiply bfloat16. A float16 is the sum of two of those, exactly, and so nearly is a weight. Of a product,
// hi * hi + hi * lo + lo * hi leaves out 2^-16. Three products take 0.75 cycles a score in place of the 4 of AVX-512.
// Infinity has no such parts (inf * 0 is no number): a head with any goes to vector units.
//
// Numbers below 2^-126 count as zero, here and in PyTorch's products of the kind.
#pragma once

#include "elements.h"

#if defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__AVX512BW__) && defined(__linux__)
#define ATTENTION_MATRIX 1

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "block.h"
#include "softmax.h"
#include "workspace.h"

namespace attention {

// Whether this process may use the units: Linux wants to be asked before the first use.
inline bool has_matrix_units() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return allowed;
}

// The units of this thread, with eight tiles of 16 rows of 64 bytes. Whoever had set them finds its shapes again: a
// library may count on those that it left.
class MatrixUnits {
 public:
  MatrixUnits() {
    asm volatile("sttilecfg %0" : "=m"(before_));
    const Shapes own = {1, 0, {}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    asm volatile("ldtilecfg %0" ::"m"(own));
  }
  ~MatrixUnits() {
    if (before_.palette)
      asm volatile("ldtilecfg %0" ::"m"(before_));
    else
      asm volatile("tilerelease");
  }
  MatrixUnits(const MatrixUnits &) = delete;
  MatrixUnits &operator=(const MatrixUnits &) = delete;

 private:
  struct Shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
  };
  static_assert(sizeof(Shapes) == 64, "what ldtilecfg reads");
  Shapes before_;
};

// The instructions, with the number of a tile as a constant. Those of g++ 12 do not tell that they read memory.
template <int C>
ATTENTION_INLINE void tile_zero() {
  asm volatile("tilezero %%tmm%c0" ::"i"(C));
}
template <int C>
ATTENTION_INLINE void tile_load(const void *from, int64_t stride) {
  asm volatile("tileloadd (%1,%2,1), %%tmm%c0" ::"i"(C), "r"(from), "r"(stride) : "memory");
}
template <int C>
ATTENTION_INLINE void tile_store(void *to, int64_t stride) {
  asm volatile("tilestored %%tmm%c0, (%1,%2,1)" ::"i"(C), "r"(to), "r"(stride) : "memory");
}
template <int C, int A, int B>
ATTENTION_INLINE void tile_multiply() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(C), "i"(A), "i"(B));
}

// action(0), action(1), ... with constants.
template <int N, int I = 0, class Action>
ATTENTION_INLINE void repeat(const Action &action) {
  if constexpr (I < N) {
    action(std::integral_constant<int, I>());
    repeat<N, I + 1>(action);
  }
}

using Words = __m512i;  // 16 words of 32 bits

// rows[i][j] becomes rows[j][i].
ATTENTION_INLINE void transpose(Words (&rows)[16]) {
  Words pairs[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int half = 0; half < 2; half++) {
      rows[i + 2 * half] = _mm512_unpacklo_epi64(pairs[i + half], pairs[i + 2 + half]);
      rows[i + 2 * half + 1] = _mm512_unpackhi_epi64(pairs[i + half], pairs[i + 2 + half]);
    }
  // rows[4 r + c] holds, in its quarter q, words 4 r to 4 r + 3 of what becomes row 4 q + c.
  for (int c = 0; c < 4; c++) {
    const Words low01 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0x88);
    const Words low23 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0x88);
    const Words high01 = _mm512_shuffle_i32x4(rows[c], rows[4 + c], 0xdd);
    const Words high23 = _mm512_shuffle_i32x4(rows[8 + c], rows[12 + c], 0xdd);
    pairs[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    pairs[8 + c] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    pairs[4 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    pairs[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
  for (int i = 0; i < 16; i++) rows[i] = pairs[i];
}

// How many bfloat16 an element, or a weight for such elements, is taken apart into.
template <typename T>
constexpr int kParts = std::is_same<T, Float16>::value ? 2 : 1;

// 16 pairs of numbers as pairs of bfloat16: part 0 is rounded, part 1 is what that left.
template <int P>
ATTENTION_INLINE void take_apart(__m512 low, __m512 high, Words (&parts)[P]) {
  Words order;  // Low and high halves of the conversion's result, turn about.
  for (int i = 0; i < 16; i++) reinterpret_cast<uint32_t *>(&order)[i] = i | (16 + i) << 16;
  for (int p = 0; p < P; p++) {
    parts[p] = _mm512_permutexvar_epi16(order, (Words)_mm512_cvtne2ps_pbh(high, low));
    low -= (__m512)_mm512_slli_epi32(parts[p], 16);
    high -= (__m512)_mm512_and_si512(parts[p], _mm512_set1_epi32(INT32_C(-65536)));
  }
}

// Weights that become bfloat16, to 1/20 of what rounding them costs, or two of them. `factor` is what scores are
// multiplied with; it is positive, so that the largest score is the largest before.
template <int P>
struct RoundedWeights {
  float factor;

  ATTENTION_INLINE Vec scaled(Vec scores) const { return scores * factor; }

  // 2^x = 2^floor(x) times a minimax polynomial of the rest that is exact at 0: off by 9e-5, or 3e-6. Zero below
  // 2^-126, and NaN for NaN.
  template <int M>
  ATTENTION_INLINE void operator()(Vec (&scores)[M], Vec max, float headroom) const {
    const Vec reference = max + headroom;
    Vec x[M], f[M], power[M];
    for (int i = 0; i < M; i++) x[i] = scores[i] * factor - reference;
    for (int i = 0; i < M; i++) f[i] = (Vec)_mm512_maskz_reduce_ps(0xffff, (__m512)x[i], _MM_FROUND_TO_NEG_INF);
    if constexpr (P == 1) {
      for (int i = 0; i < M; i++) power[i] = f[i] * 7.70672e-2f + 2.2764482e-1f;
      for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 6.9511682e-1f;
    } else {
      for (int i = 0; i < M; i++) power[i] = f[i] * 1.34267e-2f + 5.224245e-2f;
      for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 2.4128022e-1f;
      for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 6.9304484e-1f;
    }
    for (int i = 0; i < M; i++) power[i] = power[i] * f[i] + 1.0f;
    for (int i = 0; i < M; i++) {
      const __mmask16 counts = _mm512_cmp_ps_mask((__m512)x[i], _mm512_set1_ps(-126.0f), _CMP_NLT_UQ);
      scores[i] = (Vec)_mm512_maskz_scalef_ps(counts, (__m512)power[i], (__m512)x[i]);
    }
  }

  // By pairs of keys: part p of pair i takes the place of row P i + p.
  ATTENTION_INLINE static void put(float *rows, int lanes, int j, const Vec (&four)[4]) {
    for (int pair = 0; pair < 2; pair++) {
      Words parts[P];
      take_apart<P>((__m512)four[2 * pair], (__m512)four[2 * pair + 1], parts);
      for (int p = 0; p < P; p++) _mm512_store_si512(rows + ((j / 2 + pair) * P + p) * lanes, parts[p]);
    }
  }

  // Up to the end of a tile.
  static void put_zeros(float *rows, int lanes, int j, int count) {
    const int end = static_cast<int>(divide_up(count, 32)) * 16 * P;
    for (int row = j / 2 * P; row < end; row++) store(rows + row * lanes, Vec{});
  }
};

// The products of blocks of one head on matrix units. `Scratch` is laid out for `padded(depth)` features.
template <typename T>
class MatrixProducts {
 public:
  using Element = T;
  static constexpr int P = kParts<T>;
  static constexpr int kSteps = 32, kTile = 16 * kSteps;  // Halves that one multiplication sums up, and of a tile.
  static constexpr int kKeys = kKeyTile / kSteps * kSteps;
  static_assert(kLanes == 16 && kKeys > 0, "a vector of queries is a tile's column");

  static int64_t padded(int64_t depth) { return divide_up(depth, kSteps) * kSteps; }

  // Whether parts stand for all elements of these rows: whether none is infinite.
  static bool suits(const T *rows, int64_t stride, int64_t count, int64_t depth) {
    __mmask32 infinite = 0;
    for (int64_t i = 0; P > 1 && i < count; i++)
      for (int64_t d = 0; d < depth; d += kSteps)
        infinite |= _mm512_cmpeq_epi16_mask(_mm512_slli_epi16(load_halves(rows + i * stride, d, depth), 1),
                                            _mm512_set1_epi16(INT16_C(-2048)));  // 0x7c00, without a sign
    return !infinite;
  }

  MatrixProducts(int64_t depth, float scale, Scratch &scratch)
      : depth_(depth),
        width_(padded(depth)),
        sign_(scale < 0 ? INT32_MIN | 0x8000 : 0),
        weights_{std::max(std::fabs(scale) * 1.44269504088896341f, 1e-30f)},  // Not 0, for -inf has to stay what it is.
        scratch_(scratch) {}

  // Starts a block: its queries as tiles [part][vector][step of features], with the scale's sign.
  void begin(const Block &block, const T *rows, int64_t stride) const {
    const Words sign = _mm512_set1_epi32(sign_);
    uint16_t *to = halves(block.q);
    for (int i = 0; i < block.lanes(); i += kLanes)
      for (int64_t d = 0; d < depth_; d += kSteps, to += kTile) {
        Words parts[P][16] = {};
        for (int r = 0; r < 16 && i + r < block.rows; r++) load_parts(rows + (i + r) * stride, d, parts, r);
        for (int p = 0; p < P; p++) {
          transpose(parts[p]);
          uint16_t *const tile = to + p * block.lanes() * width_;
          for (int r = 0; r < 16; r++) _mm512_store_si512(tile + r * kSteps, _mm512_xor_si512(parts[p][r], sign));
        }
      }
  }

  // Takes a tile of keys and values: V^T as tiles [part][16 features][32 keys], K as it is where it fills tiles.
  void take(const T *k, int64_t k_stride, const T *v, int64_t v_stride, int count) {
    k_ = reinterpret_cast<const uint16_t *>(k), k_stride_ = k_stride;
    whole_ = P == 1 && depth_ % kSteps == 0 ? count / 16 * 16 : 0;
    uint16_t *const copy = halves(scratch_.k);
    for (int j = whole_; j < (count + 15) / 16 * 16; j++)
      for (int64_t d = 0; d < depth_; d += kSteps) {
        Words parts[P][1] = {};
        if (j < count) load_parts(k + j * k_stride, d, parts, 0);
        for (int p = 0; p < P; p++) _mm512_store_si512(copy + (p * kKeys + j) * width_ + d, parts[p][0]);
      }

    uint16_t *to = halves(scratch_.v);
    for (int64_t d = 0; d < depth_; d += 16)
      for (int j = 0; j < kKeys; j += kSteps, to += kTile)
        if (j < count) {
          Words parts[P][16];
          for (int r = 0; r < 16; r++) load_pair(v + (j + 2 * r) * v_stride, v_stride, d, count - j - 2 * r, parts, r);
          for (int p = 0; p < P; p++) {
            transpose(parts[p]);
            for (int r = 0; r < 16; r++) _mm512_store_si512(to + p * kKeys * width_ + r * kSteps, parts[p][r]);
          }
        }
  }

  // The first `seen` keys of that tile, whose first is number `first`, for one block.
  void attend(const Block &block, int64_t first, int seen) const {
    static_assert(kBlockVectors == 3, "a case for every number of vectors");
    const Keys keys = {{}, {}, first, seen};
    switch (block.vectors) {
      case 1: return attend<1>(block, keys);
      case 2: return attend<2>(block, keys);
      default: return attend<3>(block, keys);
    }
  }

 private:
  static uint16_t *halves(float *memory) { return reinterpret_cast<uint16_t *>(memory); }

  // 32 halves of a row from `d` on, zeros where there are fewer.
  static Words load_halves(const T *row, int64_t d, int64_t depth) {
    return _mm512_maskz_loadu_epi16(depth - d >= kSteps ? ~0u : (1u << (depth - d)) - 1, row + d);
  }

  // 16 features of a row, from `d` on.
  Words load_numbers(const T *row, int64_t d) const {
    const __mmask16 mask = depth_ - d >= 16 ? 0xffff : (1u << std::max<int64_t>(depth_ - d, 0)) - 1;
    const __m256i found = _mm256_maskz_loadu_epi16(mask, row + d);
    return P == 1 ? _mm512_cvtepu16_epi32(found) : (Words)_mm512_maskz_cvtph_ps(0xffff, found);
  }

  // The parts of 32 features of a row from `d` on, in the order of the row, as rows `r`.
  template <int R>
  void load_parts(const T *row, int64_t d, Words (&parts)[P][R], int r) const {
    if constexpr (P == 1) {
      parts[0][r] = load_halves(row, d, depth_);
    } else {
      __m512 low = (__m512)load_numbers(row, d), high = (__m512)load_numbers(row, d + 16);
      for (int p = 0; p < P; p++) {
        parts[p][r] = (Words)_mm512_cvtne2ps_pbh(high, low);
        low -= (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(parts[p][r])), 16);
        high -= (__m512)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(parts[p][r], 1)), 16);
      }
    }
  }

  // The parts of 16 features from `d` on of two keys, by pairs; zeros beyond the last of `count` keys.
  void load_pair(const T *row, int64_t stride, int64_t d, int count, Words (&parts)[P][16], int r) const {
    const Words low = count > 0 ? load_numbers(row, d) : Words{};
    const Words high = count > 1 ? load_numbers(row + stride, d) : Words{};
    if constexpr (P == 1) {
      parts[0][r] = _mm512_or_si512(low, _mm512_slli_epi32(high, 16));
    } else {
      Words two[P];
      take_apart<P>((__m512)low, (__m512)high, two);
      for (int p = 0; p < P; p++) parts[p][r] = two[p];
    }
  }

  template <int N>
  void attend(const Block &block, const Keys &keys) const {
    float *const scores = scratch_.scores;
    score<N>(block, keys, 0, scores);
    Vec decay[N];
    for (int n = 0; n < N; n++) decay[n] = weigh_keys(block, keys, n, scores, weights_);
    int grown = 0;  // Whether a maximum has: later tiles rarely have a larger one.
    for (int n = 0; n < N; n++) grown |= _mm512_cmp_ps_mask((__m512)decay[n], _mm512_set1_ps(1.0f), _CMP_NEQ_UQ);
    if (keys.first > 0 && grown)
      for (int64_t d = 0; d < depth_; d++)
        for (int n = 0; n < N; n++) {
          float *const at = block.o + (d * N + n) * kLanes;
          store(at, load(at) * decay[n]);
        }
    int64_t group = 0;
    for (; group + 2 <= divide_up(depth_, 16); group += 2) accumulate<2, N>(block, keys, group, scores);
    if (group < divide_up(depth_, 16)) accumulate<1, N>(block, keys, group, scores);
  }

  // Scores from key `begin` on for the last N vectors of a block. Of keys that its first does not see only the others'.
  template <int N>
  void score(const Block &block, const Keys &keys, int begin, float *scores) const {
    const int vector = block.vectors - N, end = keys.seen_by(block.keys_full + (vector + 1) * kLanes - 1);
    int j = begin;
    for (; j + 16 < end; j += 32) score_keys<2, N>(block, vector, j, scores);
    if (j < end) score_keys<1, N>(block, vector, j, scores), j += 16;
    if constexpr (N > 1)
      if (j < keys.count) score<N - 1>(block, keys, j, scores);
  }

  // Scores of 16 or 32 keys for N vectors of queries. What stands beyond the last key is not used.
  template <int G, int N>
  void score_keys(const Block &block, int vector, int j, float *scores) const {
    const uint16_t *const q = halves(block.q) + vector * width_ * kLanes;
    const int lanes = block.lanes();
    repeat<G * N>([](auto c) { tile_zero<c>(); });
    for (int64_t d = 0; d < depth_; d += kSteps)
      repeat<G * P>([&](auto part) {
        constexpr int g = part / P, p = part % P;
        const int row = j + 16 * g;
        const bool direct = row < whole_;
        const uint16_t *const keys =
            direct ? k_ + row * k_stride_ + d : halves(scratch_.k) + (p * kKeys + row) * width_ + d;
        tile_load<6>(keys, 2 * (direct ? k_stride_ : width_));
        repeat<N *(P - p)>([&](auto of) {
          constexpr int n = of % N;
          tile_load<7>(q + (of / N * lanes + n * kLanes) * width_ + d * kLanes, 2 * kSteps);
          tile_multiply<g * N + n, 6, 7>();
        });
      });
    repeat<G>([&](auto g) {
      repeat<N>([&](auto n) {
        tile_store<g * N + n>(scores + (j + 16 * g) * lanes + (vector + n) * kLanes, 4 * lanes);
      });
    });
  }

  // F groups of 16 features of the outputs: o += V^T P^T. There is no o the first time.
  template <int F, int N>
  void accumulate(const Block &block, const Keys &keys, int64_t group, const float *weights) const {
    constexpr int kRow = N * kLanes;
    float *const o = block.o + group * 16 * kRow;
    if (keys.first == 0)
      repeat<F * N>([](auto c) { tile_zero<c>(); });
    else
      repeat<F * N>([&](auto c) { tile_load<c>(o + c / N * 16 * kRow + c % N * kLanes, 4 * kRow); });
    const uint16_t *const v = halves(scratch_.v) + group * 16 * kKeys;
    for (int j = 0; j < keys.count; j += kSteps)
      repeat<N * P>([&](auto part) {
        constexpr int n = part / P, p = part % P;
        tile_load<7>(weights + (j / 2 * P + p) * kRow + n * kLanes, 4 * P * kRow);
        repeat<F *(P - p)>([&](auto of) {
          constexpr int f = of % F;
          tile_load<6>(v + of / F * kKeys * width_ + f * 16 * kKeys + j * 16, 2 * kSteps);
          tile_multiply<f * N + n, 6, 7>();
        });
      });
    repeat<F * N>([&](auto c) { tile_store<c>(o + c / N * 16 * kRow + c % N * kLanes, 4 * kRow); });
  }

  const int64_t depth_, width_;
  const int32_t sign_;
  const RoundedWeights<P> weights_;
  Scratch &scratch_;
  const uint16_t *k_ = nullptr;
  int64_t k_stride_ = 0;
  int whole_ = 0;  // Keys of the tile that are read where the caller left them.
};

}  // namespace attention

#endif
