// Vectors of the processor, memory that begins at a cache line, and the exponential of all passes.
#pragma once
#include <cstdint>
#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#elif defined(__AVX2__)
constexpr int kLanes = 8;
#else
constexpr int kLanes = 4;
#endif
constexpr int64_t kLine = 16;  // floats in a cache line

typedef float Floats __attribute__((vector_size(4 * kLanes)));
typedef int32_t Wholes __attribute__((vector_size(4 * kLanes)));
typedef uint32_t Bits __attribute__((vector_size(4 * kLanes)));

// Numbers of 4 bytes that begin at a cache line, zeros at first.
template <class Number>
class Aligned {
 public:
  explicit Aligned(int64_t size) : memory_(new Number[size + kLine]()) {
    auto at = reinterpret_cast<uintptr_t>(memory_.get());
    numbers_ = memory_.get() + (-at % (4 * kLine)) / 4;
  }
  Number* get() const { return numbers_; }

 private:
  std::unique_ptr<Number[]> memory_;
  Number* numbers_;
};

inline Floats load(const float* from) {
  Floats lanes;
  std::memcpy(&lanes, from, sizeof lanes);
  return lanes;
}

inline void store(float* to, Floats lanes) { std::memcpy(to, &lanes, sizeof lanes); }

inline Floats everywhere(float number) { return number - Floats{}; }

inline uint32_t bits(float number) {
  uint32_t whole;
  std::memcpy(&whole, &number, 4);
  return whole;
}

inline float number(uint32_t bits) {
  float from;
  std::memcpy(&from, &bits, 4);
  return from;
}

inline float at_least(float x, float least) { return x < least ? least : x; }
inline Bits bits(Floats lanes) { return (Bits)lanes; }
inline Floats number(Bits bits) { return (Floats)bits; }
inline Floats at_least(Floats lanes, float least) { return lanes < least ? everywhere(least) : lanes; }

// exp(x) for x up to about 0, within 2 units in the last place: Cephes' expf, exp(r) = 1 + r + r^2 * polynomial for |r|
// at most log(2) / 2. Arguments below -87 count as -87; NaN stays NaN. Nothing is fused or reordered, so its bits are the
// same on every processor.
template <class Number>
inline Number exponential(Number x) {
  x = at_least(x, -87.f);
  Number shifted = x * 1.442695041f + 12582912.f, whole = shifted - 12582912.f;
  Number r = (x - whole * 0.693359375f) - whole * -2.12194440e-4f;
  Number series = (((((1.98756915e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                    1.6666665459e-1f) * r + 5.0000001201e-1f) * (r * r) + r + 1.f;
  return series * number((bits(shifted) + 127) << 23);
}

// The sum of a product of numbers, in one order for every width of vectors.
inline float dot(const float* one, const float* other, int64_t count) {
  float part[kLine] = {};
  int64_t n = 0;
  for (; n + kLine <= count; n += kLine)
    for (int64_t l = 0; l < kLine; l++) part[l] += one[n + l] * other[n + l];
  for (int64_t l = 0; n + l < count; l++) part[l] += one[n + l] * other[n + l];
  for (int64_t half = kLine / 2; half > 0; half /= 2)
    for (int64_t l = 0; l < half; l++) part[l] += part[l + half];
  return part[0];
}

// a * b + sum, rounded once if that is wanted and the processor can.
template <bool fuses>
inline Floats multiply_add(Floats a, Floats b, Floats sum) {
#if defined(__AVX512F__)
  if (fuses) return _mm512_fmadd_ps(a, b, sum);
#elif defined(__FMA__)
  if (fuses) return _mm256_fmadd_ps(a, b, sum);
#elif defined(__aarch64__)
  if (fuses) return vfmaq_f32(sum, a, b);
#endif
  return a * b + sum;
}

// Which lanes are above a bound or NaN, as bits.
inline uint32_t exceeding(Floats lanes, Floats bound) {
#if defined(__AVX512F__)
  return _mm512_cmp_ps_mask(lanes, bound, _CMP_NLE_UQ);
#elif defined(__AVX2__)
  return _mm256_movemask_ps(_mm256_cmp_ps(lanes, bound, _CMP_NLE_UQ));
#elif defined(__x86_64__)
  return _mm_movemask_ps(_mm_cmpnle_ps(lanes, bound));
#else
  uint32_t found = 0;
  for (int lane = 0; lane < kLanes; lane++) found |= uint32_t(!(lanes[lane] <= bound[lane])) << lane;
  return found;
#endif
}
