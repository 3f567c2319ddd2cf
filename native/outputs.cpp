// A step of wide outputs: products, and passes that turn logits into loss, gradients and the optimizer's steps.
// widenet/kernels/passes.py says what each function computes.
//
// Units are taken in blocks whose logits [units, examples] stay in a core's cache; examples lie in the lanes of vectors.
// Each sum has one order, so bits depend neither on threads nor on the width of vectors.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "product.h"
#include "steps.h"
#include "threads.h"

namespace {

// Logits of a block, and its units: a multiple of the rows that are multiplied together.
constexpr int64_t kCells = 65536, kFewest = 72, kMost = 264, kTogether = 24;
constexpr float kShortest = 1e-12f, kInfinity = std::numeric_limits<float>::infinity();

// A batch before an output.
struct Batch {
  const float* direct;  // [examples, inner], the vectors that meet the units'
  int64_t examples, inner;
  int64_t tile;  // units of a tile; blocks begin anew in each
  int64_t is_softmax, fuses;
  int64_t rounds;  // whether products take operands rounded to bfloat16; `direct` is rounded already
  int64_t pairs;   // whether they take them as pairs of bfloat16: 1 by AVX512_BF16, 2 by AMX
  const float* one;    // [examples]: loss weights of targets; of a softmax the logarithms of the divisors
  const float* other;  // [examples]: loss weights of other units; of a softmax the sums of the pulls
};

// Consecutive units of a shard, from the first of a tile on, and the shard's targets in order of units, then examples.
struct Shard {
  const float* weight;  // [units, inner]
  float* lengths;       // [units], by which products divide the weights; null: by none
  const float* bias;    // or null
  int64_t first, last;
  const int64_t* entry_examples;
  const int64_t* entry_units;
  int64_t entries;
  const float* of_targets;  // their values, null for ones; of a softmax their pulls
  float* kept;              // [units, kept_row(...)]: slopes, or a softmax's shares; null: they are computed again
  float* scales;            // [blocks, examples]: by whose exponentials the shares of a softmax were divided
  float* hidden;            // [examples, inner]: the gradient to `direct`
  double* totals;           // [examples]: the sums of the shares of a softmax; of a sigmoid, the losses
  float* peaks;             // [examples], of a softmax
  float* target_logits;
  float* target_vectors;  // [entries, inner], as products take them; null: the weights stay in memory
};

// What is done with the gradients of a shard's units; each may be null.
struct Gradients {
  float* weight;  // [last - first, inner], receives that of the weights
  float* bias;    // [last - first], and that of the biases
  const Touched* touched;
  const Step* weight_step;
  const Step* bias_step;
};

// The most units of a block.
int64_t units_of_block(int64_t examples) {
  int64_t units = kCells / std::max<int64_t>(examples, 1) / kTogether * kTogether;
  return std::min(kMost, std::max(kFewest, units));
}

// Numbers between the rows of logits: caches would hold few rows at a distance of a power of 2.
int64_t row_of(int64_t examples) { return panels(examples) * kPanel + kLine; }

// The same between rows of pairs of examples.
int64_t pairs_row_of(int64_t examples) { return panels(examples) * kPanel / 2 + kLine; }

// The nearest bfloat16, to even in the middle, as torch rounds.
void round_to_bfloat16(const float* from, float* to, int64_t count) {
#pragma GCC ivdep
  for (int64_t n = 0; n < count; n++) {
    uint32_t whole = bits(from[n]), nearest = (whole + 0x7FFFu + (whole >> 16 & 1u)) & 0xFFFF0000u;
    to[n] = number((whole & 0x7FFFFFFFu) <= 0x7F800000u ? nearest : 0x7FC00000u);
  }
}

// A block of units, and its targets.
struct Block {
  int64_t first, units;
  float* scales;
  int64_t low, high;
};

// What a thread needs for a batch, whose vectors are given in panels of examples: [panels, inner, kPanel], and as pairs.
// With `halves`, products take pairs of bfloat16, and shares and slopes are such pairs.
template <bool fuses, bool halves>
class Worker {
 public:
  Worker(const Batch& batch, const float* in_panels, const uint32_t* in_pairs)
      : batch_(batch), in_panels_(in_panels), in_pairs_(in_pairs), inner_(batch.inner), row_(row_of(batch.examples)),
        pairs_row_(pairs_row_of(batch.examples)), wide_(panels(inner_) * kPanel), most_(units_of_block(batch.examples)),
        rows_(whole(most_, kPanel)), whole_(panels(batch.examples) * kPanel), own_row_(whole((inner_ + 1) / 2, kPairs)),
        units_row_(whole(most_ / 2, kPairs)),
        logits_(rows_ * (halves ? kPanel : row_)), own_(most_ * inner_), operand_(most_ * (halves ? kPanel : wide_)),
        gradient_(rows_ * wide_), scaled_(batch.examples * kPanel), hidden_(whole_ * wide_), factors_(row_),
        bias_gradient_(most_), shares_(halves ? rows_ * pairs_row_ : 0), strip_(halves ? units_row_ * kPanel : 0),
        by_examples_(halves ? whole_ * units_row_ : 0), own_pairs_(halves ? rows_ * own_row_ : 0),
        operand_pairs_(halves ? units_row_ * wide_ : 0), scaled_pairs_(halves ? whole_ / 2 * kPanel : 0),
        ends_(panels(batch.examples) + 2) {
    if (batch.pairs == 2) shape_tiles();
  }
  ~Worker() { if (batch_.pairs == 2) release_tiles(); }

  // The shares of a softmax, their sums, and the sums of the units' vectors times them.
  void add_shares(const Shard& shard) {
    std::vector<float> peaks(row_, -kInfinity), sums(row_), before(row_);
    std::copy_n(shard.peaks, batch_.examples, peaks.begin());
    read_hidden(shard);
    each_block(shard, [&](const Block& block) {
      const float* vectors = vectors_of(shard, block);
      fill_operand(block, vectors);
      for (int64_t n = block.low; shard.target_vectors && n < block.high; n++)
        std::copy_n(vectors + (shard.entry_units[n] - block.first) * inner_, inner_, shard.target_vectors + n * inner_);
      before = peaks;
      group_targets(shard, block);
      for (int64_t panel = 0; panel < panels(batch_.examples); panel++) {
        Strip strip = fill_logits(shard, block, vectors, panel);
        for (int64_t place = ends_[panel]; place < ends_[panel + 1]; place++)
          shard.target_logits[grouped_[place]] = at(shard, block, strip, grouped_[place]);
        raise_peaks(block, strip, peaks.data());
        fill_shares(block, strip, peaks.data(), sums.data());
        keep(shard, block, strip);
      }
      for (int64_t e = 0; e < batch_.examples; e++) {
        block.scales[e] = peaks[e];
        bool is_same = before[e] == peaks[e];
        shard.totals[e] *= is_same ? 1.0 : std::exp(static_cast<double>(before[e]) - static_cast<double>(peaks[e]));
        shard.totals[e] += sums[e];
        if (is_same) continue;
        float factor = exponential(before[e] - peaks[e]);
        for (int64_t h = 0; h < wide_; h++) hidden_.get()[e * wide_ + h] *= factor;
      }
      add_hidden(shard, block);
    });
    std::copy_n(peaks.begin(), batch_.examples, shard.peaks);
    write_hidden(shard);
  }

  // The gradient to the batch's vectors, once the divisors of a softmax are known.
  void finish_hidden(const Shard& shard) {
    for (int64_t e = 0; e < batch_.examples; e++) {
      float factor = factor_of(shard.peaks[e], e);
      for (int64_t h = 0; h < inner_; h++) shard.hidden[e * inner_ + h] *= factor;
    }
    for (int64_t n = 0; n < shard.entries; n++) {
      const float* vector = shard.target_vectors + n * inner_;
      if (!shard.target_vectors) {
        fill_vector(shard, shard.entry_units[n], own_.get());
        vector = own_.get();
      }
      float* hidden = shard.hidden + shard.entry_examples[n] * inner_;
      for (int64_t h = 0; h < inner_; h++) hidden[h] -= shard.of_targets[n] * vector[h];
    }
  }

  // The loss of a sigmoid, its slopes, and the gradient to the batch's vectors; then as `finish`.
  void add_slopes(const Shard& shard, const Gradients& gradients) {
    read_hidden(shard);
    each_block(shard, [&](const Block& block) {
      const float* vectors = vectors_of(shard, block);
      fill_operand(block, vectors);
      fill_slopes(shard, block, vectors, shard.totals);
      add_hidden(shard, block);
      if (gradients.weight_step || gradients.bias_step) finish(shard, gradients, block);
    });
    write_hidden(shard);
  }

  // The gradients to weights and biases, and their steps.
  void finish(const Shard& shard, const Gradients& gradients) {
    each_block(shard, [&](const Block& block) {
      if (!shard.kept) {
        const float* vectors = vectors_of(shard, block);
        if (batch_.is_softmax)
          for (int64_t panel = 0; panel < panels(batch_.examples); panel++) {
            Strip strip = fill_logits(shard, block, vectors, panel);
            fill_shares(block, strip, block.scales, nullptr);
            keep(shard, block, strip);
          }
        else
          fill_slopes(shard, block, vectors, nullptr);
      }
      finish(shard, gradients, block);
    });
  }

 private:
  // Call `work(block)` for the blocks of a shard's units.
  template <class Work>
  void each_block(const Shard& shard, Work work) {
    int64_t of_tile = (batch_.tile + most_ - 1) / most_;
    const int64_t* end = shard.entry_units + shard.entries;
    for (int64_t tile = shard.first; tile < shard.last; tile += batch_.tile) {
      int64_t stop = std::min(tile + batch_.tile, shard.last), number = tile / batch_.tile * of_tile;
      for (int64_t first = tile; first < stop; first += most_, number++) {
        int64_t units = std::min(most_, stop - first);
        int64_t low = std::lower_bound(shard.entry_units, end, first) - shard.entry_units;
        int64_t high = std::lower_bound(shard.entry_units + low, end, first + units) - shard.entry_units;
        work(Block{first, units, shard.scales ? shard.scales + number * batch_.examples : nullptr, low, high});
      }
    }
  }

  // The logits of some examples, then their shares or slopes: [units, kPanel], rows at a distance.
  struct Strip {
    int64_t panel;
    float* numbers;
    int64_t row;
  };

  float* shares_of(const Shard& shard, const Block& block) const {
    return shard.kept ? shard.kept + block.first * row_ : logits_.get();
  }

  uint32_t* pairs_of(const Shard& shard, const Block& block) const {
    return shard.kept ? reinterpret_cast<uint32_t*>(shard.kept) + block.first * pairs_row_ : shares_.get();
  }

  // The vector of a unit as products take it.
  void fill_vector(const Shard& shard, int64_t unit, float* to) const {
    const float* weight = shard.weight + unit * inner_;
    float factor = shard.lengths ? 1.f / shard.lengths[unit] : 1.f;
    for (int64_t h = 0; h < inner_; h++) to[h] = weight[h] * factor;
    if (batch_.rounds) round_to_bfloat16(to, to, inner_);
  }

  // The vectors of a block as products take them.
  const float* vectors_of(const Shard& shard, const Block& block) {
    const float* vectors = shard.weight + block.first * inner_;
    for (int64_t t = 0; shard.lengths && t < block.units; t++) {
      float length = std::sqrt(dot(vectors + t * inner_, vectors + t * inner_, inner_));
      shard.lengths[block.first + t] = length <= kShortest ? kInfinity : length;
    }
    if (shard.lengths || batch_.rounds) {
      for (int64_t t = 0; t < block.units; t++) fill_vector(shard, block.first + t, own_.get() + t * inner_);
      vectors = own_.get();
    }
    for (int64_t t = 0; halves && t < block.units; t++)
      pair_columns(vectors + t * inner_, inner_, own_pairs_.get() + t * own_row_);
    return vectors;
  }

  // The vectors of a block in panels.
  void fill_operand(const Block& block, const float* vectors) {
    for (int64_t panel = 0; panel < panels(inner_); panel++) {
      float* to = operand_.get() + (halves ? 0 : panel * kPanel * block.units);
      copy_panel(vectors, block.units, inner_, nullptr, panel, to);
      if (halves) pair_rows(to, block.units, operand_pairs_.get() + panel * kPanel * units_row_);
    }
  }

  Strip fill_logits(const Shard& shard, const Block& block, const float* vectors, int64_t panel) {
    Strip strip{panel, logits_.get(), kPanel};
    if constexpr (halves) {
      multiply_pairs<false>(batch_.pairs == 2, own_pairs_.get(), own_row_, block.units, in_pairs_ + panel * own_row_ * kPanel,
                            (inner_ + 1) / 2, strip.numbers, strip.row);
    } else {
      strip = {panel, shares_of(shard, block) + panel * kPanel, row_};
      multiply<fuses, false>({vectors, inner_, 1}, block.units, in_panels_ + panel * kPanel * inner_, inner_,
                             strip.numbers, strip.row);
    }
    for (int64_t t = 0; shard.bias && t < block.units; t++)
      for (int64_t half = 0; half < kPanel; half += kLanes) {
        float* lanes = strip.numbers + t * strip.row + half;
        store(lanes, load(lanes) + shard.bias[block.first + t]);
      }
    return strip;
  }

  // Store shares or slopes for the products.
  void keep(const Shard& shard, const Block& block, const Strip& strip) {
    if constexpr (halves) {
      int64_t count = std::min(kPanel, batch_.examples - strip.panel * kPanel);
      for (int64_t t = 0; t < block.units; t++) {
        float* numbers = strip.numbers + t * strip.row;
        std::fill(numbers + count, numbers + kPanel, 0.f);
        pair_columns(numbers, kPanel, pairs_of(shard, block) + t * pairs_row_ + strip.panel * kPanel / 2);
      }
      pair_rows(strip.numbers, block.units, strip_.get());
      turn(strip_.get(), whole((block.units + 1) / 2, kPairs), by_examples_.get() + strip.panel * kPanel * units_row_, units_row_);
    }
  }

  // Group the targets of a block by panels of examples.
  void group_targets(const Shard& shard, const Block& block) {
    std::fill(ends_.begin(), ends_.end(), 0);
    for (int64_t n = block.low; n < block.high; n++) ends_[shard.entry_examples[n] / kPanel + 2]++;
    for (size_t panel = 2; panel < ends_.size(); panel++) ends_[panel] += ends_[panel - 1];
    grouped_.resize(block.high - block.low);
    for (int64_t n = block.low; n < block.high; n++) grouped_[ends_[shard.entry_examples[n] / kPanel + 1]++] = n;
  }

  // What a strip has of a target.
  float& at(const Shard& shard, const Block& block, const Strip& strip, int64_t n) const {
    int64_t lane = shard.entry_examples[n] - strip.panel * kPanel;
    return strip.numbers[(shard.entry_units[n] - block.first) * strip.row + lane];
  }

  void raise_peaks(const Block& block, const Strip& strip, float* peaks) const {
    float* of_panel = peaks + strip.panel * kPanel;
    Floats low = load(of_panel), high = load(of_panel + kLanes);
    for (int64_t t = 0; t < block.units; t++) {
      const float* lanes = strip.numbers + t * strip.row;
      Floats one = load(lanes), other = load(lanes + kLanes);
      low = one > low ? one : low;
      high = other > high ? other : high;
    }
    store(of_panel, low);
    store(of_panel + kLanes, high);
  }

  // Turn the logits of some examples into exp(logit - peak), and add these up.
  void fill_shares(const Block& block, const Strip& strip, const float* peaks, float* sums) const {
    int64_t first = strip.panel * kPanel;
    float of_panel[kPanel] = {};
    std::copy_n(peaks + first, std::min(kPanel, batch_.examples - first), of_panel);
    Floats low = load(of_panel), high = load(of_panel + kLanes), low_sum{}, high_sum{};
    for (int64_t t = 0; t < block.units; t++) {
      float* lanes = strip.numbers + t * strip.row;
      store(lanes, exponential(load(lanes) - low));
      store(lanes + kLanes, exponential(load(lanes + kLanes) - high));
      if (batch_.rounds) round_to_bfloat16(lanes, lanes, kPanel);
      low_sum += load(lanes);
      high_sum += load(lanes + kLanes);
    }
    if (!sums) return;
    store(sums + first, low_sum);
    store(sums + first + kLanes, high_sum);
  }

  // The slopes of a sigmoid's cross-entropy by the logits; adds each example's loss, if losses are wanted.
  void fill_slopes(const Shard& shard, const Block& block, const float* vectors, double* losses) {
    group_targets(shard, block);
    for (int64_t panel = 0; panel < panels(batch_.examples); panel++) {
      Strip strip = fill_logits(shard, block, vectors, panel);
      targets_.clear();
      for (int64_t place = ends_[panel]; place < ends_[panel + 1]; place++)
        targets_.push_back(at(shard, block, strip, grouped_[place]));
      fill_slopes(block, strip, losses);
      for (int64_t place = ends_[panel]; place < ends_[panel + 1]; place++) {
        int64_t n = grouped_[place], e = shard.entry_examples[n];
        float z = targets_[place - ends_[panel]], value = shard.of_targets ? shard.of_targets[n] : 1.f;
        float other = batch_.other[e], weight = value > 0.f ? batch_.one[e] : other;
        float ex = exponential(z > 0.f ? -z : z), share = 1.f / (1.f + ex), a = z < 0.f ? ex * share : share;
        at(shard, block, strip, n) = (a - value) * weight;
        if (!losses) continue;
        double softplus = std::log1p(static_cast<double>(ex)) + static_cast<double>(z < 0.f ? 0.f : z);
        losses[e] += (softplus - static_cast<double>(value) * static_cast<double>(z)) * static_cast<double>(weight) -
                     softplus * static_cast<double>(other);
      }
      for (int64_t t = 0; batch_.rounds && t < block.units; t++)
        round_to_bfloat16(strip.numbers + t * strip.row, strip.numbers + t * strip.row, kPanel);
      keep(shard, block, strip);
    }
  }

  // The same as if no unit were a target.
  void fill_slopes(const Block& block, const Strip& strip, double* losses) const {
    int64_t first = strip.panel * kPanel, count = std::min(kPanel, batch_.examples - first);
    float above[kPanel] = {}, weights[kPanel] = {}, x[kPanel];
    double factors[kPanel];
    std::copy_n(batch_.other + first, count, weights);
    std::fill_n(factors, kPanel, 1.0);
    for (int64_t t = 0; t < block.units; t++) {
      float* lanes = strip.numbers + t * strip.row;
      for (int64_t half = 0; half < kPanel; half += kLanes) {
        Floats z = load(lanes + half), ex = exponential(z > 0.f ? -z : z), share = 1.f / (1.f + ex);
        store(lanes + half, load(weights + half) * (z < 0.f ? ex * share : share));
        store(above + half, load(above + half) + (z < 0.f ? Floats{} : z));
        store(x + half, ex);
      }
      for (int64_t l = 0; l < kPanel; l++) factors[l] *= 1.0 + static_cast<double>(x[l]);
    }
    for (int64_t l = 0; losses && l < count; l++)
      losses[first + l] += (std::log(factors[l]) + static_cast<double>(above[l])) * static_cast<double>(weights[l]);
  }

  // What turns the shares of a softmax, divided by the exponential of a peak, into slopes but for the pulls.
  float factor_of(float peak, int64_t e) const { return batch_.other[e] * exponential(peak - batch_.one[e]); }

  // Copy the gradient to the batch's vectors, to rows of whole panels.
  void read_hidden(const Shard& shard) {
    for (int64_t e = 0; e < batch_.examples; e++)
      std::copy_n(shard.hidden + e * inner_, inner_, hidden_.get() + e * wide_);
  }

  void write_hidden(const Shard& shard) const {
    for (int64_t e = 0; e < batch_.examples; e++)
      std::copy_n(hidden_.get() + e * wide_, inner_, shard.hidden + e * inner_);
  }

  // hidden += shares.T @ vectors
  void add_hidden(const Shard& shard, const Block& block) {
    for (int64_t panel = 0; panel < panels(inner_); panel++) {
      float* to = hidden_.get() + panel * kPanel;
      if constexpr (halves)
        multiply_pairs<true>(batch_.pairs == 2, by_examples_.get(), units_row_, batch_.examples,
                             operand_pairs_.get() + panel * kPanel * units_row_, (block.units + 1) / 2, to, wide_);
      else
        multiply<fuses, true>({shares_of(shard, block), 1, row_}, batch_.examples,
                              operand_.get() + panel * kPanel * block.units, block.units, to, wide_);
    }
  }

  // The gradients to a block's weights and biases, and their steps.
  void finish(const Shard& shard, const Gradients& gradients, const Block& block) {
    float* factors = factors_.get();
    for (int64_t e = 0; e < batch_.examples; e++) factors[e] = batch_.is_softmax ? factor_of(block.scales[e], e) : 1.f;
    if (gradients.bias || gradients.bias_step) fill_bias_gradient(shard, block, factors);
    if (gradients.weight || gradients.weight_step) {
      fill_weight_gradient(shard, block, factors);
      if (shard.lengths) through_lengths(shard, block);
      if (gradients.touched) add_touched(*gradients.touched, block);
    }
    give(gradients, block, block.first - shard.first);
  }

  float share_of(const Shard& shard, const Block& block, int64_t t, int64_t e) const {
    if constexpr (halves) {
      uint32_t pair = pairs_of(shard, block)[t * pairs_row_ + e / 2];
      return number(e % 2 ? pair & 0xFFFF0000u : pair << 16);
    }
    return shares_of(shard, block)[t * row_ + e];
  }

  void fill_bias_gradient(const Shard& shard, const Block& block, const float* factors) {
    std::vector<float> row(halves ? batch_.examples + 1 : 0);
    for (int64_t t = 0; t < block.units; t++) {
      const float* shares = row.data();
      if constexpr (halves) {
        const uint32_t* pairs = pairs_of(shard, block) + t * pairs_row_;
        for (int64_t e = 0; e < batch_.examples; e += 2) {
          row[e] = number(pairs[e / 2] << 16);
          row[e + 1] = number(pairs[e / 2] & 0xFFFF0000u);
        }
      } else {
        shares = shares_of(shard, block) + t * row_;
      }
      bias_gradient_.get()[t] = dot(shares, factors, batch_.examples);
    }
    for (int64_t n = block.low; batch_.is_softmax && n < block.high; n++)
      bias_gradient_.get()[shard.entry_units[n] - block.first] -= shard.of_targets[n];
  }

  // gradient = (factors * shares) @ direct, less the pulls of the targets
  void fill_weight_gradient(const Shard& shard, const Block& block, const float* factors) {
    for (int64_t panel = 0; panel < panels(inner_); panel++) {
      float *scaled = scaled_.get(), *to = gradient_.get() + panel * kPanel;
      copy_panel(batch_.direct, batch_.examples, inner_, batch_.is_softmax ? factors : nullptr, panel, scaled);
      if (batch_.rounds) round_to_bfloat16(scaled, scaled, batch_.examples * kPanel);
      if constexpr (halves) {
        pair_rows(scaled, batch_.examples, scaled_pairs_.get());
        multiply_pairs<false>(batch_.pairs == 2, pairs_of(shard, block), pairs_row_, block.units, scaled_pairs_.get(),
                              (batch_.examples + 1) / 2, to, wide_);
      } else {
        multiply<fuses, false>({shares_of(shard, block), row_, 1}, block.units, scaled, batch_.examples, to, wide_);
      }
    }
    for (int64_t n = block.low; batch_.is_softmax && n < block.high; n++) {
      int64_t t = shard.entry_units[n] - block.first, e = shard.entry_examples[n];
      float* gradient = gradient_.get() + t * wide_;
      const float* direct = batch_.direct + e * inner_;
      float pull = shard.of_targets[n], share = batch_.rounds ? share_of(shard, block, t, e) : 0.f;
      for (int64_t h = 0; !batch_.rounds && h < inner_; h++) gradient[h] -= pull * direct[h];
      // The product's own term, which is rounded, would not cancel a pull: it is taken back.
      for (int64_t h = 0; batch_.rounds && h < inner_; h++) {
        float scaled = factors[e] * direct[h], rounded;
        round_to_bfloat16(&scaled, &rounded, 1);
        gradient[h] += (share * scaled - pull * direct[h]) - share * rounded;
      }
    }
  }

  // Turn the gradient to directions into that to the weights.
  void through_lengths(const Shard& shard, const Block& block) {
    for (int64_t t = 0; t < block.units; t++) {
      const float* weight = shard.weight + (block.first + t) * inner_;
      float* gradient = gradient_.get() + t * wide_;
      float factor = 1.f / shard.lengths[block.first + t], along = dot(gradient, weight, inner_) * factor * factor;
      for (int64_t h = 0; h < inner_; h++) gradient[h] = (gradient[h] - along * weight[h]) * factor;
    }
  }

  void add_touched(const Touched& touched, const Block& block) {
    const int64_t* end = touched.rows + touched.count;
    int64_t u = std::lower_bound(touched.rows, end, block.first) - touched.rows;
    for (; u < touched.count && touched.rows[u] < block.first + block.units; u++) {
      float* gradient = gradient_.get() + (touched.rows[u] - block.first) * wide_;
      for (int64_t z = touched.ends[u]; z < touched.ends[u + 1]; z++) {
        const float* vector = touched.vectors + touched.examples[z] * inner_;
        float value = touched.values ? touched.values[z] : 1.f;
        for (int64_t h = 0; h < inner_; h++) gradient[h] += value * vector[h];
      }
    }
  }

  // Make the steps, or write the gradients from a place on.
  void give(const Gradients& gradients, const Block& block, int64_t place) {
    float *weight = gradient_.get(), *bias = bias_gradient_.get();
    if (gradients.bias) std::copy_n(bias, block.units, gradients.bias + place);
    if (gradients.bias_step) gradients.bias_step->make(block.first, block.units, 1.f, bias);
    for (int64_t t = 0; gradients.weight && t < block.units; t++)
      std::copy_n(weight + t * wide_, inner_, gradients.weight + (place + t) * inner_);
    if (!gradients.weight_step) return;
    if (wide_ == inner_) return gradients.weight_step->make(block.first * inner_, block.units * inner_, 1.f, weight);
    for (int64_t t = 0; t < block.units; t++)
      gradients.weight_step->make((block.first + t) * inner_, inner_, 1.f, weight + t * wide_);
  }

  const Batch& batch_;
  const float* in_panels_;
  const uint32_t* in_pairs_;
  int64_t inner_, row_, pairs_row_, wide_, most_;
  int64_t rows_, whole_, own_row_, units_row_;  // units of a block, examples and pairs, with room for whole tiles
  Aligned<float> logits_, own_, operand_, gradient_, scaled_, hidden_, factors_, bias_gradient_;
  Aligned<uint32_t> shares_, strip_, by_examples_, own_pairs_, operand_pairs_, scaled_pairs_;  // pairs along examples, units or `inner`
  std::vector<int64_t> ends_, grouped_;  // the targets of a block by panels of examples, and the first of each panel
  std::vector<float> targets_;
};

// Call `work(worker, number)` for each shard, in threads.
template <bool fuses, bool halves, class Work>
int64_t each_shard(const Batch& batch, int64_t num_shards, int64_t num_threads, Work work) {
  int64_t count = panels(batch.examples), half = whole((batch.inner + 1) / 2, kPairs);
  Aligned<float> direct(count * kPanel * batch.inner);
  Aligned<uint32_t> pairs(halves ? count * kPanel * half : 0);
  for (int64_t e = 0; e < count * kPanel; e++)
    for (int64_t h = 0; h < batch.inner; h++)
      direct.get()[(e / kPanel * batch.inner + h) * kPanel + e % kPanel] =
          e < batch.examples ? batch.direct[e * batch.inner + h] : 0.f;
  for (int64_t panel = 0; halves && panel < count; panel++)
    pair_rows(direct.get() + panel * kPanel * batch.inner, batch.inner, pairs.get() + panel * kPanel * half);
  auto worker_of = [&](int64_t) { return Worker<fuses, halves>(batch, direct.get(), pairs.get()); };
  return share_out(num_shards, num_threads, worker_of, work);
}

template <class Work>
int64_t each_shard(const Batch& batch, int64_t num_shards, int64_t num_threads, Work work) {
  if constexpr (kMultipliesPairs)
    if (batch.pairs) return each_shard<true, true>(batch, num_shards, num_threads, work);
  return batch.fuses ? each_shard<true, false>(batch, num_shards, num_threads, work)
                     : each_shard<false, false>(batch, num_shards, num_threads, work);
}

}  // namespace

WIDENET int64_t kept_row(int64_t examples, int64_t pairs) { return pairs ? pairs_row_of(examples) : row_of(examples); }

WIDENET int64_t blocks_of(int64_t examples, int64_t units) {
  int64_t most = units_of_block(examples);
  return (units + most - 1) / most;
}

WIDENET int64_t add_shares(const Batch* batch, const Shard* const* shards, int64_t num_shards, int64_t num_threads) try {
  return each_shard(*batch, num_shards, num_threads, [&](auto& worker, int64_t s) { worker.add_shares(*shards[s]); });
}
OUT_OF_MEMORY

WIDENET int64_t finish_hidden(const Batch* batch, const Shard* const* shards, int64_t num_shards, int64_t num_threads) try {
  return each_shard(*batch, num_shards, num_threads, [&](auto& worker, int64_t s) { worker.finish_hidden(*shards[s]); });
}
OUT_OF_MEMORY

WIDENET int64_t add_slopes(const Batch* batch, const Shard* const* shards, int64_t num_shards, int64_t num_threads,
                           const Gradients* const* gradients) try {
  return each_shard(*batch, num_shards, num_threads,
                    [&](auto& worker, int64_t s) { worker.add_slopes(*shards[s], *gradients[s]); });
}
OUT_OF_MEMORY

WIDENET int64_t finish(const Batch* batch, const Shard* const* shards, int64_t num_shards, int64_t num_threads,
                       const Gradients* const* gradients) try {
  return each_shard(*batch, num_shards, num_threads,
                    [&](auto& worker, int64_t s) { worker.finish(*shards[s], *gradients[s]); });
}
OUT_OF_MEMORY
