// Products of matrices whose sums have one order, whatever the shapes: every number is one sum over the inner index from 0
// on, in one lane of a vector. So no number depends on the rows and columns beside it, or on the width of vectors.
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
    for (int64_t c = 0; c < count; c++) to[c] = from[c] * factor;
    for (int64_t c = count; c < kPanel; c++) to[c] = 0.f;
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

// Pairs of bfloat16 in one word, the first in the lower half, from floats that are rounded to bfloat16.
inline uint32_t pair(float first, float second) { return bits(first) >> 16 | (bits(second) & 0xFFFF0000u); }

// Pairs of neighbours in a row of numbers; a missing one is 0.
inline void pair_columns(const float* row, int64_t count, uint32_t* to) {
  for (int64_t n = 0; n + 1 < count; n += 2) *to++ = pair(row[n], row[n + 1]);
  if (count % 2) *to = pair(row[count - 1], 0.f);
}

// Pairs of neighbours in the columns of [rows, kPanel], whose rows are `stride` apart: [rows / 2, kPanel] at `distance`.
inline void pair_rows(const float* panel, int64_t rows, int64_t stride, uint32_t* to, int64_t distance) {
  for (int64_t r = 0; r < rows; r += 2, to += distance) {
    const float *one = panel + r * stride, *other = r + 1 < rows ? one + stride : nullptr;
    for (int64_t l = 0; l < kPanel; l++) to[l] = pair(one[l], other ? other[l] : 0.f);
  }
}

#if defined(__AVX512F__)
constexpr bool kMultipliesPairs = true;  // if the processor has AVX512_BF16

// As `multiply_rows`, of pairs: left [rows, inner / 2] @ panel [inner / 2, kPanel]. Two products are added at once.
template <int R, bool adds>
__attribute__((noinline, target("avx512bf16"))) void multiply_pairs(const uint32_t* left, int64_t row, int64_t column,
                                                                    const uint32_t* panel, int64_t pairs, float* to,
                                                                    int64_t stride) {
  asm("" : "+r"(row), "+r"(column));
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
      auto number = (__m512bh)_mm512_set1_epi32(static_cast<int>(left[n * row + k * column]));
      sums[n][0] = _mm512_dpbf16_ps(sums[n][0], low, number);
      sums[n][1] = _mm512_dpbf16_ps(sums[n][1], high, number);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < R; n++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) _mm512_storeu_ps(to + n * stride + half * kLanes, sums[n][half]);
}

template <bool adds>
inline void multiply_pairs(const uint32_t* left, int64_t row, int64_t column, int64_t rows, const uint32_t* panel,
                           int64_t pairs, float* to, int64_t stride) {
  int64_t r = 0;
  for (; r + 8 <= rows; r += 8) multiply_pairs<8, adds>(left + r * row, row, column, panel, pairs, to + r * stride, stride);
  for (; r < rows; r++) multiply_pairs<1, adds>(left + r * row, row, column, panel, pairs, to + r * stride, stride);
}
#else
constexpr bool kMultipliesPairs = false;

template <bool adds>
inline void multiply_pairs(const uint32_t*, int64_t, int64_t, int64_t, const uint32_t*, int64_t, float*, int64_t) {}
#endif
