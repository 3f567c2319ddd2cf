// Products of matrices whose sums have one order, whatever the shapes: every number is one sum over the inner index from 0
// on, in one lane; of pairs, as the processor adds two or 32 products at once. So no number depends on those beside it.
#pragma once
#include "lanes.h"

constexpr int64_t kPanel = 2 * kLanes;  // columns that are computed together

inline int64_t panels(int64_t columns) { return (columns + kPanel - 1) / kPanel; }

// Element (r, c) of a matrix is at row * r + column * c.
struct Strided {
  const float* numbers;
  int64_t row, column;
};

// Columns `panel * kPanel` on of a row-major matrix [rows, columns], as [rows, kPanel], with zeros beyond it. Row r is
// multiplied by `factors[r]`, if there are factors.
inline void copy_panel(const float* matrix, int64_t rows, int64_t columns, const float* factors, int64_t panel, float* to) {
  int64_t first = panel * kPanel, count = columns - first < kPanel ? columns - first : kPanel;
  for (int64_t r = 0; r < rows; r++, to += kPanel) {
    const float* from = matrix + r * columns + first;
    float factor = factors ? factors[r] : 1.f;
    if (count == kPanel)
      for (int64_t c = 0; c < kPanel; c++) to[c] = from[c] * factor;
    else
      for (int64_t c = 0; c < kPanel; c++) to[c] = c < count ? from[c] * factor : 0.f;
  }
}

// R rows of left [rows, inner] @ panel [inner, N * kLanes], which are written or added to `to`, whose rows are `stride`
// apart.
template <int R, int N, bool fuses, bool adds>
__attribute__((noinline)) void multiply_rows(const Strided& left, int64_t r, const float* panel, int64_t inner, float* to, int64_t stride) {
  const float* numbers = left.numbers + r * left.row;
  int64_t row = left.row, column = left.column;
  asm("" : "+r"(row), "+r"(column));  // knowing a stride of 1, GCC loads several rows at once, and takes twice as long
  Floats sums[R][N];
#pragma GCC unroll 12
  for (int m = 0; m < R; m++)
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) sums[m][n] = adds ? load(to + (r + m) * stride + n * kLanes) : Floats{};
  for (int64_t k = 0; k < inner; k++) {
    Floats lanes[N];
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) lanes[n] = load(panel + (k * N + n) * kLanes);
#pragma GCC unroll 12
    for (int m = 0; m < R; m++) {
      Floats number = everywhere(numbers[m * row + k * column]);
#pragma GCC unroll 2
      for (int n = 0; n < N; n++) sums[m][n] = multiply_add<fuses>(lanes[n], number, sums[m][n]);
    }
  }
#pragma GCC unroll 12
  for (int m = 0; m < R; m++)
#pragma GCC unroll 2
    for (int n = 0; n < N; n++) store(to + (r + m) * stride + n * kLanes, sums[m][n]);
}

// `rows` rows of a product, as above.
template <bool fuses, bool adds, int N = 2>
inline void multiply(const Strided& left, int64_t rows, const float* panel, int64_t inner, float* to, int64_t stride) {
  constexpr int kRows = N == 1 ? 12 : kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;  // as many sums as there are registers
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) multiply_rows<kRows, N, fuses, adds>(left, r, panel, inner, to, stride);
  for (; r + 2 <= rows; r += 2) multiply_rows<2, N, fuses, adds>(left, r, panel, inner, to, stride);
  for (; r < rows; r++) multiply_rows<1, N, fuses, adds>(left, r, panel, inner, to, stride);
}

// Pairs of bfloat16 in one word, the first in the lower half, from floats that are rounded to bfloat16. Products take them
// by so many, with zeros beyond the last.
constexpr int64_t kPairs = 16;

inline int64_t whole(int64_t numbers, int64_t unit) { return (numbers + unit - 1) / unit * unit; }

// Pairs of neighbours in a row of numbers.
inline void pair_columns(const float* row, int64_t count, uint32_t* to) {
  for (int64_t n = 0; n < count / 2; n++) {
    uint64_t both;
    std::memcpy(&both, row + 2 * n, 8);
    to[n] = static_cast<uint32_t>((both >> 16 & 0xFFFFu) | (both >> 32 & 0xFFFF0000u));
  }
  if (count % 2) to[count / 2] = bits(row[count - 1]) >> 16;
}

// Pairs of neighbours in the columns of [rows, kPanel]: [whole(rows / 2, kPairs), kPanel].
inline void pair_rows(const float* panel, int64_t rows, uint32_t* to) {
  int64_t r = 0;
  for (; r + 1 < rows; r += 2, panel += 2 * kPanel, to += kPanel)
    for (int64_t l = 0; l < kPanel; l++) to[l] = bits(panel[l]) >> 16 | (bits(panel[l + kPanel]) & 0xFFFF0000u);
  for (; r < whole(rows, 2 * kPairs); r += 2, to += kPanel)
    for (int64_t l = 0; l < kPanel; l++) to[l] = r < rows ? bits(panel[l]) >> 16 : 0;
}

#if defined(__AVX512F__)
constexpr bool kMultipliesPairs = true;  // if the processor has AVX512_BF16 or AMX
// [rows, kPanel] with rows and columns exchanged, whose rows are then `stride` apart; rows: a multiple of 4.
inline void turn(const uint32_t* words, int64_t rows, uint32_t* to, int64_t stride) {
  for (int64_t r = 0; r < rows; r += 4)
    for (int64_t c = 0; c < kPanel; c += 4) {
      __m128 four[4];
      for (int n = 0; n < 4; n++) std::memcpy(&four[n], words + (r + n) * kPanel + c, 16);
      _MM_TRANSPOSE4_PS(four[0], four[1], four[2], four[3]);
      for (int n = 0; n < 4; n++) std::memcpy(to + (c + n) * stride + r, &four[n], 16);
    }
}

// As `multiply_rows`, of pairs: left [R, pairs] @ panel [pairs, kPanel]. Two products are added at once.
template <int R, bool adds>
__attribute__((noinline, target("avx512bf16"))) void multiply_pairs(const uint32_t* left, int64_t row, const uint32_t* panel,
                                                                    int64_t pairs, float* to, int64_t stride) {
  asm("" : "+r"(row));
  __m512 sums[R][2];
#pragma GCC unroll 8
  for (int n = 0; n < R; n++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
      sums[n][half] = adds ? _mm512_loadu_ps(to + n * stride + half * kLanes) : _mm512_setzero_ps();
  for (int64_t k = 0; k < pairs; k++) {
    auto low = (__m512bh)_mm512_loadu_si512(panel + k * kPanel);
    auto high = (__m512bh)_mm512_loadu_si512(panel + k * kPanel + kLanes);
#pragma GCC unroll 8
    for (int n = 0; n < R; n++) {
      auto number = (__m512bh)_mm512_set1_epi32(static_cast<int>(left[n * row + k]));
      sums[n][0] = _mm512_dpbf16_ps(sums[n][0], low, number);
      sums[n][1] = _mm512_dpbf16_ps(sums[n][1], high, number);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < R; n++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) _mm512_storeu_ps(to + n * stride + half * kLanes, sums[n][half]);
}

// The same of kPanel rows by AMX: four tiles of 16 rows and columns, which take 16 pairs at once.
template <bool adds>
__attribute__((noinline, target("amx-tile,amx-bf16"))) void multiply_tiles(const uint32_t* left, int64_t row, const uint32_t* panel,
                                                                           int64_t pairs, float* to, int64_t stride) {
  float* lower = to + 16 * stride;
  _tile_zero(0); _tile_zero(1); _tile_zero(2); _tile_zero(3);
  if (adds) {
    _tile_loadd(0, to, 4 * stride); _tile_loadd(1, to + 16, 4 * stride);
    _tile_loadd(2, lower, 4 * stride); _tile_loadd(3, lower + 16, 4 * stride);
  }
  for (int64_t k = 0; k < pairs; k += 16) {
    _tile_loadd(4, left + k, 4 * row); _tile_loadd(5, left + 16 * row + k, 4 * row);
    _tile_loadd(6, panel + k * kPanel, 4 * kPanel); _tile_loadd(7, panel + k * kPanel + 16, 4 * kPanel);
    _tile_dpbf16ps(0, 4, 6); _tile_dpbf16ps(1, 4, 7); _tile_dpbf16ps(2, 5, 6); _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, to, 4 * stride); _tile_stored(1, to + 16, 4 * stride);
  _tile_stored(2, lower, 4 * stride); _tile_stored(3, lower + 16, 4 * stride);
}

// What a thread does before its first tiles.
__attribute__((target("amx-tile"))) inline void shape_tiles() {
  static constexpr struct {
    uint8_t palette = 1, unused[15] = {}, bytes[32] = {64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0, 64, 0};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
  } shape;
  _tile_loadconfig(&shape);
}
__attribute__((target("amx-tile"))) inline void release_tiles() { _tile_release(); }

// `rows` rows of a product of pairs. With tiles, left and `to` have room for whole panels of rows, and `pairs` may be a
// smaller number than the multiple of 16 up to which left and panel hold zeros.
template <bool adds>
inline void multiply_pairs(bool tiles, const uint32_t* left, int64_t row, int64_t rows, const uint32_t* panel, int64_t pairs,
                           float* to, int64_t stride) {
  int64_t r = 0;
  for (; tiles && r < rows; r += kPanel) multiply_tiles<adds>(left + r * row, row, panel, pairs, to + r * stride, stride);
  for (; r + 8 <= rows; r += 8) multiply_pairs<8, adds>(left + r * row, row, panel, pairs, to + r * stride, stride);
  for (; r < rows; r++) multiply_pairs<1, adds>(left + r * row, row, panel, pairs, to + r * stride, stride);
}
#else
constexpr bool kMultipliesPairs = false;

inline void shape_tiles() {}
inline void release_tiles() {}
inline void turn(const uint32_t*, int64_t, uint32_t*, int64_t) {}
template <bool adds>
inline void multiply_pairs(bool, const uint32_t*, int64_t, int64_t, const uint32_t*, int64_t, float*, int64_t) {}
#endif
