// Exact sums in 64-bit fixed point. widenet/kernels/fixed_point.py says what they compute.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

#include "export.h"

namespace {

constexpr int kBits = 62, kDoubleBias = 1023, kDoubleMantissaBits = 52, kLargestExponent = 1000;

template <class To, class From>
To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// The sum of a total and a truncated number. It wraps around if a term is not finite; nobody reads such a total.
int64_t wrapped(int64_t total, double number) {
  return static_cast<int64_t>(static_cast<uint64_t>(total) + static_cast<uint64_t>(static_cast<int64_t>(number)));
}

// Add terms [rows, columns], scaled by one number a row, to a total. Each product is rounded once, then truncated.
template <class Number>
int64_t add(int64_t* total, const Number* term, const double* scales, int64_t rows, int64_t columns) {
  for (int64_t e = 0; e < rows; e++) {
    double scale = scales[e];
    for (int64_t h = 0; h < columns; h++)
      total[e * columns + h] = wrapped(total[e * columns + h], static_cast<double>(term[e * columns + h]) * scale);
  }
  return 0;
}

// Write the exact sum [rows, columns] of terms. Magnitudes are compared as integers: without the sign, the bits of
// floats have the same order, with NaN above infinity.
template <class Number>
int64_t sum(const Number* const* terms, int64_t num_terms, Number* total, int64_t rows, int64_t columns) {
  using Whole = std::conditional_t<sizeof(Number) == 4, int32_t, int64_t>;
  constexpr Whole magnitude = std::numeric_limits<Whole>::max();
  const Whole infinity = bits_of<Whole>(std::numeric_limits<Number>::infinity());
  int headroom = 0;
  while ((num_terms - 1) >> headroom > 0) headroom++;
  std::vector<int64_t> sums(columns);
  for (int64_t e = 0; e < rows; e++) {
    Number* row = total + e * columns;
    Whole peak = 0;
    for (int64_t k = 0; k < num_terms; k++) {
      const Number* term = terms[k] + e * columns;
      for (int64_t h = 0; h < columns; h++) {
        Whole size = bits_of<Whole>(term[h]) & magnitude;
        peak = size > peak ? size : peak;
      }
    }
    if (peak >= infinity) {
      for (int64_t h = 0; h < columns; h++) row[h] = std::numeric_limits<Number>::quiet_NaN();
      continue;
    }
    int exponent;
    std::frexp(static_cast<double>(bits_of<Number>(peak)), &exponent);
    exponent = kBits - headroom - exponent;
    exponent = exponent > kLargestExponent ? kLargestExponent : exponent;
    exponent = exponent < -kLargestExponent ? -kLargestExponent : exponent;
    double scale = bits_of<double>(static_cast<int64_t>(exponent + kDoubleBias) << kDoubleMantissaBits);
    std::fill(sums.begin(), sums.end(), 0);
    for (int64_t k = 0; k < num_terms; k++) {
      const Number* term = terms[k] + e * columns;
      for (int64_t h = 0; h < columns; h++) sums[h] += static_cast<int64_t>(static_cast<double>(term[h]) * scale);
    }
    for (int64_t h = 0; h < columns; h++) row[h] = static_cast<Number>(static_cast<double>(sums[h]) / scale);
  }
  return 0;
}

}  // namespace

WIDENET int64_t add_fixed_float32(int64_t* total, const float* term, const double* scales, int64_t rows, int64_t columns) {
  return add(total, term, scales, rows, columns);
}

WIDENET int64_t add_fixed_float64(int64_t* total, const double* term, const double* scales, int64_t rows, int64_t columns) {
  return add(total, term, scales, rows, columns);
}

WIDENET int64_t exact_sum_float32(const float* const* terms, int64_t num_terms, float* total, int64_t rows, int64_t columns) try {
  return sum(terms, num_terms, total, rows, columns);
}
OUT_OF_MEMORY

WIDENET int64_t exact_sum_float64(const double* const* terms, int64_t num_terms, double* total, int64_t rows, int64_t columns) try {
  return sum(terms, num_terms, total, rows, columns);
}
OUT_OF_MEMORY
