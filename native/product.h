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

// R rows of left [rows, inner] @ panel [inner, kPanel], which are written or added to `to`, whose rows are `stride` apart.
// Inlined with known strides, GCC loads several rows by one vector and takes twice as long.
template <int R, bool fuses, bool adds>
__attribute__((noinline)) void multiply_rows(const Strided& left, int64_t r, const float* panel, int64_t inner, float* to, int64_t stride) {
  const float* numbers = left.numbers + r * left.row;
  int64_t row = left.row, column = left.column;
  Floats sums[R][2];
#pragma GCC unroll 8
  for (int n = 0; n < R; n++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++)
      sums[n][half] = adds ? load(to + (r + n) * stride + half * kLanes) : Floats{};
  for (int64_t k = 0; k < inner; k++) {
    Floats low = load(panel + k * kPanel), high = load(panel + k * kPanel + kLanes);
#pragma GCC unroll 8
    for (int n = 0; n < R; n++) {
      Floats number = everywhere(numbers[n * row + k * column]);
      sums[n][0] = multiply_add<fuses>(low, number, sums[n][0]);
      sums[n][1] = multiply_add<fuses>(high, number, sums[n][1]);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < R; n++)
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) store(to + (r + n) * stride + half * kLanes, sums[n][half]);
}

// `rows` rows of a product, as above.
template <bool fuses, bool adds>
inline void multiply(const Strided& left, int64_t rows, const float* panel, int64_t inner, float* to, int64_t stride) {
  constexpr int kRows = kLanes == 16 ? 8 : kLanes == 8 ? 6 : 4;  // as many sums as there are registers
  int64_t r = 0;
  for (; r + kRows <= rows; r += kRows) multiply_rows<kRows, fuses, adds>(left, r, panel, inner, to, stride);
  for (; r + 2 <= rows; r += 2) multiply_rows<2, fuses, adds>(left, r, panel, inner, to, stride);
  for (; r < rows; r++) multiply_rows<1, fuses, adds>(left, r, panel, inner, to, stride);
}
