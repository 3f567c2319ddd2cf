// Tiles of an output: products, and passes that turn logits into loss and slopes. widenet/kernels/output_passes.py says
// what each function computes.
//
// Logits are [examples, units] without the biases, and slopes overwrite them. Sums over examples are added within parts
// of 64 examples, then over the parts. Nothing is fused or reordered, so the bits are the same on every processor.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lanes.h"
#include "steps.h"

namespace {

constexpr int64_t kPiece = 256, kPart = 64, kFew = 16;
// Units whose factors are multiplied before taking a logarithm (the product is at most 2^256), examples whose slopes are
// added together first, and the count below which numbers are added one by one.

using Gemm = void (*)(const char*, const char*, const int*, const int*, const int*, const float*, const float*,
                      const int*, const float*, const int*, const float*, float*, const int*);

// The sum, by repeatedly folding the numbers in half; overwrites them.
double sum(float* numbers, int64_t count) {
  while (count > kFew) {
    int64_t half = (count + 1) >> 1;
    for (int64_t n = 0; n < count - half; n++) numbers[n] += numbers[n + half];
    count = half;
  }
  double total = 0.0;
  for (int64_t n = 0; n < count; n++) total += static_cast<double>(numbers[n]);
  return total;
}

// The largest of one or more numbers; overwrites them.
float peak_of(float* numbers, int64_t count) {
  while (count > kFew) {
    int64_t half = (count + 1) >> 1;
    for (int64_t n = 0; n < count - half; n++) {
      float low = numbers[n], high = numbers[n + half];
      numbers[n] = high > low ? high : low;
    }
    count = half;
  }
  float peak = numbers[0];
  for (int64_t n = 0; n < count; n++) peak = numbers[n] > peak ? numbers[n] : peak;
  return peak;
}

// The sum of log(1 + x) over a piece; overwrites `factors`.
double log_of_product(const float* x, double* factors) {
  int64_t count = kPiece / 2;
  for (int64_t v = 0; v < count; v++)
    factors[v] = (1.0 + static_cast<double>(x[v])) * (1.0 + static_cast<double>(x[v + count]));
  while (count > kFew) {
    count >>= 1;
    for (int64_t v = 0; v < count; v++) factors[v] *= factors[v + count];
  }
  double product = 1.0;
  for (int64_t v = 0; v < count; v++) product *= factors[v];
  return std::log(product);
}

// A tile: its logits and biases, and its targets in order of units, then examples.
struct Tile {
  float* logits;
  const float* bias;
  int64_t examples, units, first;  // the first unit in its shard
  const int64_t* entry_examples;
  const int64_t* entry_units;
  int64_t entries;

  float* row(int64_t e) const { return logits + e * units; }
  float target_logit(int64_t n) const { return row(entry_examples[n])[entry_units[n] - first] + bias[entry_units[n] - first]; }
  // If a target occurs twice, the slope of the last entry counts.
  bool is_last(int64_t n) const {
    return n + 1 == entries || entry_units[n + 1] != entry_units[n] || entry_examples[n + 1] != entry_examples[n];
  }
  std::vector<float> target_logits() const {
    std::vector<float> found(entries);
    for (int64_t n = 0; n < entries; n++) found[n] = target_logit(n);
    return found;
  }
};

// What turns logits into slopes. For a sigmoid: the targets' values, or null for ones, and the loss weights of targets
// and of other units; for a softmax: the targets' pulls, the logarithm of the denominators, and the sums of the pulls.
struct Numbers {
  const float* of_targets;
  const float* one;
  const float* other;
};

double sigmoid(const Tile& tile, const Numbers& given, float* bias_gradient) {
  std::vector<float> targets = tile.target_logits(), part(tile.units);
  float x[kPiece], above[kPiece];
  double factors[kPiece / 2], total = 0.0;
  for (int64_t begin = 0; begin < tile.examples; begin += kPart) {
    std::fill(part.begin(), part.end(), 0.f);
    for (int64_t e = begin; e < std::min(begin + kPart, tile.examples); e++) {
      double value = 0.0;
      float weight = given.other[e];
      for (int64_t first = 0; first < tile.units; first += kPiece) {
        int64_t count = std::min(kPiece, tile.units - first);
        float* __restrict logits = tile.row(e) + first;
        const float* __restrict bias = tile.bias + first;
        float* __restrict sums = part.data() + first;
        for (int64_t v = 0; v < count; v++) {
          float z = logits[v] + bias[v], ex = exponential(z > 0.f ? -z : z), share = 1.f / (1.f + ex);
          float slope = weight * (z < 0.f ? ex * share : share);
          logits[v] = slope;
          sums[v] += slope;
          x[v] = ex;
          above[v] = z < 0.f ? 0.f : z;
        }
        for (int64_t v = count; v < kPiece; v++) x[v] = above[v] = 0.f;
        value += log_of_product(x, factors) + sum(above, kPiece);
      }
      total += value * static_cast<double>(weight);
    }
    for (int64_t t = 0; t < tile.units; t++) bias_gradient[t] += part[t];
  }
  double change = 0.0;
  for (int64_t n = 0; n < tile.entries; n++) {
    int64_t e = tile.entry_examples[n], t = tile.entry_units[n] - tile.first;
    float z = targets[n], value = given.of_targets ? given.of_targets[n] : 1.f, other = given.other[e];
    float weight = value > 0.f ? given.one[e] : other;
    float ex = exponential(z > 0.f ? -z : z), share = 1.f / (1.f + ex), a = z < 0.f ? ex * share : share;
    double softplus = std::log1p(static_cast<double>(ex)) + static_cast<double>(z < 0.f ? 0.f : z);
    change += (softplus - static_cast<double>(value) * static_cast<double>(z)) * static_cast<double>(weight) -
              softplus * static_cast<double>(other);
    if (tile.is_last(n)) {
      float slope = (a - value) * weight;
      tile.row(e)[t] = slope;
      bias_gradient[t] += slope - a * other;
    }
  }
  return total + change;
}

double softmax(const Tile& tile, const Numbers& given, float* bias_gradient) {
  std::vector<float> targets = tile.target_logits(), part(tile.units);
  for (int64_t begin = 0; begin < tile.examples; begin += kPart) {
    std::fill(part.begin(), part.end(), 0.f);
    for (int64_t e = begin; e < std::min(begin + kPart, tile.examples); e++) {
      float log_sum = given.one[e], coupling = given.other[e];
      float* __restrict logits = tile.row(e);
      const float* __restrict bias = tile.bias;
      float* __restrict sums = part.data();
      for (int64_t t = 0; t < tile.units; t++) {
        float slope = exponential(logits[t] + bias[t] - log_sum) * coupling;
        logits[t] = slope;
        sums[t] += slope;
      }
    }
    for (int64_t t = 0; t < tile.units; t++) bias_gradient[t] += part[t];
  }
  for (int64_t n = 0; n < tile.entries; n++) {
    int64_t e = tile.entry_examples[n], t = tile.entry_units[n] - tile.first;
    if (!tile.is_last(n)) continue;
    tile.row(e)[t] = exponential(targets[n] - given.one[e]) * given.other[e] - given.of_targets[n];
    bias_gradient[t] -= given.of_targets[n];
  }
  return 0.0;
}

void softmax_sums(const Tile& tile, float* target_logits, float* peaks, double* totals) {
  std::vector<float> shifted(tile.units), folded(tile.units + 1);
  for (int64_t e = 0; e < tile.examples; e++) {
    const float* __restrict logits = tile.row(e);
    for (int64_t t = 0; t < tile.units; t++) folded[t] = shifted[t] = logits[t] + tile.bias[t];
    folded[tile.units] = peaks[e];
    float peak = peak_of(folded.data(), tile.units + 1);
    for (int64_t t = 0; t < tile.units; t++) shifted[t] = exponential(shifted[t] - peak);
    totals[e] = totals[e] * std::exp(static_cast<double>(peaks[e]) - static_cast<double>(peak)) +
                sum(shifted.data(), tile.units);
    peaks[e] = peak;
  }
  for (int64_t n = 0; n < tile.entries; n++) target_logits[n] = tile.target_logit(n);
}

// Round to the nearest bfloat16, to even in the middle, as torch does.
void round_to_bfloat16(const float* from, float* to, int64_t count) {
  for (int64_t n = 0; n < count; n++) {
    uint32_t whole = bits(from[n]), nearest = (whole + 0x7FFFu + (whole >> 16 & 1u)) & 0xFFFF0000u;
    to[n] = number((whole & 0x7FFFFFFFu) <= 0x7F800000u ? nearest : 0x7FC00000u);
  }
}

// The tiles of a shard and their targets, as widenet/kernels/output_passes.py lays them out.
struct Shard {
  Gemm gemm;  // the sgemm that torch's products call
  const float* direct;
  int64_t examples, inner;
  float* weight;
  const float* lengths;  // by which products divide the weights; null: by none
  float* bias;
  const int64_t* starts;  // the first unit of each tile, then their number
  const int64_t* edges;   // the first entry of each tile, then their number
  int64_t tiles;
  const int64_t* entry_examples;
  const int64_t* entry_units;
  int64_t before;   // tiles of the shard before these
  int64_t rounded;  // whether products take operands rounded to bfloat16
};

// One tile after the other: its logits and the operand of its products.
class Sweep {
 public:
  Sweep(const Shard& shard, float* kept)
      : shard_(shard), kept_(kept), most_(0), logits_(kept ? 0 : most() * shard.examples),
        operands_(shard.rounded || shard.lengths ? most() * shard.inner : 0) {}

  int64_t most() {
    for (int64_t n = 0; n < shard_.tiles; n++) most_ = std::max(most_, shard_.starts[n + 1] - shard_.starts[n]);
    return most_;
  }

  Tile tile(int64_t n) const {
    int64_t start = shard_.starts[n], low = shard_.edges[n];
    // A tile that is kept begins at a cache line, as any tensor does.
    float* at = kept_ ? kept_ + ((shard_.examples * start + kLine - 1) / kLine + shard_.before + n) * kLine : logits_.get();
    return {at, shard_.bias + start, shard_.examples, shard_.starts[n + 1] - start, start,
            shard_.entry_examples + low, shard_.entry_units + low, shard_.edges[n + 1] - low};
  }

  // The weights of a tile as products take them.
  const float* operand(const Tile& tile) const {
    const float* weight = shard_.weight + tile.first * shard_.inner;
    int64_t count = tile.units * shard_.inner;
    float* own = operands_.get();
    if (shard_.lengths) {
      for (int64_t t = 0; t < tile.units; t++)
        for (int64_t h = 0; h < shard_.inner; h++)
          own[t * shard_.inner + h] = weight[t * shard_.inner + h] / shard_.lengths[tile.first + t];
      weight = own;
    }
    if (shard_.rounded) {
      round_to_bfloat16(weight, own, count);
      weight = own;
    }
    return weight;
  }

  // logits = direct @ weight.T. The routine sees every matrix transposed.
  void fill_logits(const Tile& tile, const float* operand) const {
    multiply('T', 'N', tile.units, tile.examples, shard_.inner, operand, shard_.inner, shard_.direct, shard_.inner, 0.f,
             tile.logits, tile.units);
  }

  // gradient += slopes @ weight.
  void add_direct_gradient(const Tile& tile, const float* operand, float* gradient) const {
    multiply('N', 'N', shard_.inner, tile.examples, tile.units, operand, shard_.inner, tile.logits, tile.units, 1.f,
             gradient, shard_.inner);
  }

  // gradient = slopes.T @ direct.
  void fill_weight_gradient(const Tile& tile, float* gradient) const {
    multiply('N', 'T', shard_.inner, tile.units, tile.examples, shard_.direct, shard_.inner, tile.logits, tile.units,
             0.f, gradient, shard_.inner);
  }

 private:
  void multiply(char one, char other, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b,
                int64_t ldb, float scale, float* c, int64_t ldc) const {
    int sizes[] = {int(m), int(n), int(k), int(lda), int(ldb), int(ldc)};
    float unscaled = 1.f;
    shard_.gemm(&one, &other, &sizes[0], &sizes[1], &sizes[2], &unscaled, a, &sizes[3], b, &sizes[4], &scale, c,
                &sizes[5]);
  }

  const Shard& shard_;
  float* kept_;
  int64_t most_;
  // The routine sums in another order if an operand does not begin at a cache line.
  Aligned logits_, operands_;
};

using Pass = double (*)(const Tile&, const Numbers&, float*);

Pass pass_of(int64_t is_softmax) { return is_softmax ? softmax : sigmoid; }

// The numbers of the targets of a tile.
Numbers within(const Numbers& numbers, int64_t low) {
  return {numbers.of_targets ? numbers.of_targets + low : nullptr, numbers.one, numbers.other};
}

// An optimizer's step of a shard's weights or biases; without it, `numbers` is null.
struct Stepped {
  float* numbers;
  float* first;
  float* second;
  Step step;

  void make(int64_t start, int64_t count, const float* gradient) const {
    make_step(step, count, 1.f, numbers + start, gradient, first ? first + start : nullptr,
              second ? second + start : nullptr);
  }
};

}  // namespace

WIDENET int64_t tile_pass(int64_t is_softmax, float* logits, int64_t examples, int64_t units, const float* bias,
                         int64_t first, const int64_t* entry_examples, const int64_t* entry_units, int64_t entries,
                         const Numbers* numbers, float* bias_gradient, double* loss) try {
  Tile tile{logits, bias, examples, units, first, entry_examples, entry_units, entries};
  *loss = pass_of(is_softmax)(tile, *numbers, bias_gradient);
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t tile_softmax_sums(float* logits, int64_t examples, int64_t units, const float* bias, int64_t first,
                               const int64_t* entry_examples, const int64_t* entry_units, int64_t entries,
                               float* target_logits, float* peaks, double* totals) try {
  softmax_sums({logits, bias, examples, units, first, entry_examples, entry_units, entries}, target_logits, peaks, totals);
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t sweep_softmax_sums(const Shard* shard, float* kept, float* target_logits, float* peaks, double* totals) try {
  Sweep sweep(*shard, kept);
  for (int64_t n = 0; n < shard->tiles; n++) {
    Tile tile = sweep.tile(n);
    sweep.fill_logits(tile, sweep.operand(tile));
    softmax_sums(tile, target_logits + shard->edges[n], peaks, totals);
  }
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t sweep_updates(const Shard* shard, int64_t is_softmax, float* kept, const Numbers* numbers,
                             float* direct_gradient, const Stepped* weight, const Stepped* bias, double* loss) try {
  Sweep sweep(*shard, kept);
  Aligned gradient(sweep.most() * shard->inner);
  for (int64_t n = 0; n < shard->tiles; n++) {
    Tile tile = sweep.tile(n);
    const float* operand = sweep.operand(tile);
    if (!kept) sweep.fill_logits(tile, operand);
    std::vector<float> bias_gradient(tile.units, 0.f);
    *loss += pass_of(is_softmax)(tile, within(*numbers, shard->edges[n]), bias_gradient.data());
    if (shard->rounded) round_to_bfloat16(tile.logits, tile.logits, tile.examples * tile.units);
    sweep.add_direct_gradient(tile, operand, direct_gradient);
    sweep.fill_weight_gradient(tile, gradient.get());
    weight->make(tile.first * shard->inner, tile.units * shard->inner, gradient.get());
    if (bias->numbers) bias->make(tile.first, tile.units, bias_gradient.data());
  }
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t sweep_slopes(const Shard* shard, int64_t is_softmax, float* kept, int64_t has_logits,
                            const Numbers* numbers, float* bias_gradient, float* weight_gradient,
                            float* direct_gradient, double* loss) try {
  Sweep sweep(*shard, kept);
  Aligned gradient(weight_gradient ? sweep.most() * shard->inner : 0);
  for (int64_t n = 0; n < shard->tiles; n++) {
    Tile tile = sweep.tile(n);
    const float* operand = sweep.operand(tile);
    if (!has_logits) sweep.fill_logits(tile, operand);
    *loss += pass_of(is_softmax)(tile, within(*numbers, shard->edges[n]), bias_gradient + tile.first);
    if (shard->rounded) round_to_bfloat16(tile.logits, tile.logits, tile.examples * tile.units);
    sweep.add_direct_gradient(tile, operand, direct_gradient);
    if (!weight_gradient) continue;
    sweep.fill_weight_gradient(tile, gradient.get());
    std::copy_n(gradient.get(), tile.units * shard->inner, weight_gradient + tile.first * shard->inner);
  }
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t sweep_gradients(const Shard* shard, int64_t is_softmax, float* kept, const Numbers* numbers,
                             float* weight_gradient) try {
  Sweep sweep(*shard, kept);
  Aligned gradient(sweep.most() * shard->inner);
  for (int64_t n = 0; n < shard->tiles; n++) {
    Tile tile = sweep.tile(n);
    if (!kept) {
      sweep.fill_logits(tile, sweep.operand(tile));
      std::vector<float> ignored(tile.units, 0.f);
      pass_of(is_softmax)(tile, within(*numbers, shard->edges[n]), ignored.data());
      if (shard->rounded) round_to_bfloat16(tile.logits, tile.logits, tile.examples * tile.units);
    }
    sweep.fill_weight_gradient(tile, gradient.get());
    std::copy_n(gradient.get(), tile.units * shard->inner,
                weight_gradient + (tile.first - shard->starts[0]) * shard->inner);
  }
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t to_bfloat16(const float* from, float* to, int64_t count) try {
  round_to_bfloat16(from, to, count);
  return 0;
}
OUT_OF_MEMORY
