// Optimizer steps: one pass over a weight, its gradient and its state. The arithmetic is that of `step` in
// widenet/model/optimizers.py, number by number.
#include "steps.h"

#include <cmath>
#include <vector>

#include "lanes.h"

namespace {

struct Number {
  float weight, first, second;
};

struct Sgd {
  static constexpr int states = 0;
  static Number step(float w, float g, float s, float t, const float* c) { return {w - c[0] * g, s, t}; }
};

// Momentum, and Nesterov's with its look ahead.
struct Momentum {
  static constexpr int states = 1;
  static Number step(float w, float g, float s, float t, const float* c) {
    float velocity = c[0] * s + g, ahead = c[1] * velocity + g;
    return {w - c[2] * (c[1] > 0.f ? ahead : velocity), velocity, t};
  }
};

// AdaGrad, which adds up the squares (c[0] and c[1] are 1), and RMSProp.
struct Squares {
  static constexpr int states = 1;
  static Number step(float w, float g, float s, float t, const float* c) {
    float square = c[0] * s + c[1] * (g * g), held = square < c[4] ? c[4] : square;
    return {w - c[3] * (g / (std::sqrt(held) + c[2])), square, t};
  }
};

struct Adadelta {
  static constexpr int states = 2;
  static Number step(float w, float g, float s, float t, const float* c) {
    float square = c[0] * s + c[1] * (g * g);
    float step_held = t < c[4] ? c[4] : t, held = square < c[4] ? c[4] : square;
    float change = std::sqrt(step_held + c[2]) / std::sqrt(held + c[2]) * g;
    return {w - c[3] * change, square, c[0] * t + c[1] * (change * change)};
  }
};

// Adam and AdamW.
struct Adam {
  static constexpr int states = 2;
  static Number step(float w, float g, float s, float t, const float* c) {
    float mean = s + c[0] * (g - s), square = c[1] * t + c[2] * (g * g);
    return {w - c[3] * (mean / (std::sqrt(square) * c[4] + c[5])), mean, square};
  }
};

float penalized(float scale, float l2, float l1, float w, float g) {
  return scale * g + (l2 > 0.f ? l2 * w : 0.f) + l1 * ((w > 0.f ? 1.f : 0.f) - (w < 0.f ? 1.f : 0.f));
}

template <class Rule>
void advance(const Step& step, int64_t count, float fade, float* __restrict weight, const float* __restrict gradient,
             float* __restrict first, float* __restrict second) {
  const float scale = step.penalties[0], l2 = step.penalties[1], l1 = step.penalties[2], keep = step.penalties[3];
  float c[6];
  for (int n = 0; n < 6; n++) c[n] = step.constants[n];
  for (int64_t h = 0; h < count; h++) {
    float w = weight[h], g = penalized(scale, l2, l1, w, gradient[h]);
    float s = Rule::states > 0 ? fade * first[h] : 0.f, t = Rule::states > 1 ? fade * second[h] : 0.f;
    Number next = Rule::step(keep * w, g, s, t, c);
    weight[h] = next.weight;
    if constexpr (Rule::states > 0) first[h] = next.first;
    if constexpr (Rule::states > 1) second[h] = next.second;
  }
}

// AdaGrad with one number of state for a row, which grows by the mean of the squares of the row's gradient.
void advance_rows(const Step& step, int64_t count, float* __restrict weight, float* __restrict gradient, float* first) {
  const float *p = step.penalties, *c = step.constants;
  for (const int64_t per = step.per; count > 0; count -= per, weight += per, gradient += per, first++) {
    for (int64_t h = 0; h < per; h++) gradient[h] = penalized(p[0], p[1], p[2], weight[h], gradient[h]);
    *first += dot(gradient, gradient, per) / static_cast<float>(per);
    float root = std::sqrt(at_least(*first, c[4])) + c[2];
    for (int64_t h = 0; h < per; h++) weight[h] = p[3] * weight[h] - c[3] * (gradient[h] / root);
  }
}

constexpr int64_t kRowsAhead = 4;

void fetch(const float* row, int64_t columns) {
  for (int64_t h = 0; row && h < columns; h += kLine) __builtin_prefetch(row + h, 1, 3);
}

}  // namespace

void Step::make(int64_t start, int64_t count, float fade, float* gradient) const {
  float *own = weight + start, *one = first ? first + start / per : nullptr, *two = second ? second + start : nullptr;
  if (per > 1) return advance_rows(*this, count, own, gradient, one);
  switch (kind) {
    case Kind::kSgd: return advance<Sgd>(*this, count, fade, own, gradient, one, two);
    case Kind::kMomentum: return advance<Momentum>(*this, count, fade, own, gradient, one, two);
    case Kind::kSquares: return advance<Squares>(*this, count, fade, own, gradient, one, two);
    case Kind::kAdadelta: return advance<Adadelta>(*this, count, fade, own, gradient, one, two);
    case Kind::kAdam: return advance<Adam>(*this, count, fade, own, gradient, one, two);
  }
}

WIDENET int64_t step_tile(const Step* step, int64_t count, float* gradient) try {
  step->make(0, count, 1.f, gradient);
  return 0;
}
OUT_OF_MEMORY

// Make a step of the touched rows of a weight [R, columns]. `fades` are factors on the states, or null for ones.
WIDENET int64_t step_rows(const Step* step, int64_t columns, const Touched* touched, const float* fades) try {
  std::vector<float> gradient(columns);
  for (int64_t u = 0; u < touched->count; u++) {
    if (u + kRowsAhead < touched->count) {
      int64_t later = touched->rows[u + kRowsAhead] * columns;
      fetch(step->weight + later, columns);
      fetch(step->first ? step->first + later / step->per : nullptr, columns / step->per);
      fetch(step->second ? step->second + later : nullptr, columns);
    }
    float* __restrict sum = gradient.data();
    for (int64_t h = 0; h < columns; h++) sum[h] = 0.f;
    for (int64_t z = touched->ends[u]; z < touched->ends[u + 1]; z++) {
      const float* __restrict vector = touched->vectors + touched->examples[z] * columns;
      float value = touched->values ? touched->values[z] : 1.f;
      for (int64_t h = 0; h < columns; h++) sum[h] += value * vector[h];
    }
    step->make(touched->rows[u] * columns, columns, fades ? fades[u] : 1.f, sum);
  }
  return 0;
}
OUT_OF_MEMORY
