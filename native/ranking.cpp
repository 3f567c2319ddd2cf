// Prediction: products of examples with units, the k best units of each example, and the divisor of a softmax.
// widenet/kernels/best_units.py says what each function computes.
//
// Examples lie in the lanes of vectors. A product is one sum in the order of the columns, so no result depends on the
// examples and units beside it.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "export.h"
#include "product.h"
#include "threads.h"

namespace {

constexpr int64_t kPiece = 256, kCached = 65536, kExactColumns = 1024, kBlock = 64;
// Units whose logits stay in the nearest cache, numbers of vectors that stay in the next one, columns of whole numbers
// in 8 bits whose products add up to less than 2^24, which floats hold exactly, and logits that are compared at once.
constexpr float kShortest = 1e-12f, kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLast = 0xFFFFFFFF, kMissing = static_cast<int64_t>(0x807FFFFF00000000u);
constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinite = 0x7F800000, kNotANumber = 0x7FC00000;

// The vectors that enter an output.
struct Query {
  const float* direct;  // [examples, inner]; whole numbers if the units are in 8 bits
  const float* scales;  // of each example's whole numbers, or null
  int64_t examples, inner, fuses;
  const int64_t* ends;      // of each example's excluded units, after a 0; or null
  const int64_t* excluded;  // ascending
  const uint8_t* barred;    // whether no example may have a unit, or null
};

// Consecutive units of a shard.
struct Units {
  const void* vectors;  // float, or int8 if the query has scales
  int64_t stride;       // of a vector
  int64_t directions;   // whether products are with vectors of length 1
  const float* factors;   // of each unit's products, or null
  const float* biases;    // or null
  int64_t first, step;    // number of the first of them, and the distance to the next one
  int64_t count;
};

// A running search for the k best units of each example. Other threads may read and raise the floors.
struct Search {
  int64_t k, size;
  float* floors;
  int64_t* least;
  int64_t* counts;
  int64_t* keys;  // [examples, size]
};

float floor_of(const Search& search, int64_t e) {
  return number(__atomic_load_n(reinterpret_cast<const uint32_t*>(search.floors + e), __ATOMIC_RELAXED));
}

int64_t key_of(float logit, int64_t unit) {
  auto whole = static_cast<int32_t>(bits(logit + 0.f));  // no -0
  if ((whole & kMagnitude) > kInfinite) whole = kNotANumber;
  return static_cast<int64_t>(whole ^ (whole >> 31 & kMagnitude)) * (kLast + 1) + (kLast - unit);
}

float logit_of(int64_t key) {
  auto ordered = static_cast<int32_t>(key >> 32);
  return number(ordered ^ (ordered >> 31 & kMagnitude));
}

// Keep an example's k best keys, and raise its floor to just below the last of them: a lower unit may have an equal logit.
void keep_best(const Search& search, int64_t e) {
  int64_t* keys = search.keys + e * search.size;
  std::nth_element(keys, keys + search.k - 1, keys + search.counts[e], std::greater<>());
  search.counts[e] = search.k;
  search.least[e] = keys[search.k - 1];
  float below = std::nextafter(logit_of(search.least[e]), -kInfinity);
  if (below > floor_of(search, e))
    __atomic_store_n(reinterpret_cast<uint32_t*>(search.floors + e), bits(below), __ATOMIC_RELAXED);
}

// Offer an example a unit; return whether that has raised the floor.
bool offer(const Search& search, int64_t e, float logit, int64_t unit) {
  int64_t key = key_of(logit, unit);
  if (key < search.least[e]) return false;
  search.keys[e * search.size + search.counts[e]++] = key;
  if (search.counts[e] < search.size) return false;
  keep_best(search, e);
  return true;
}

// After the first units: the floor of an example, for which other searches wait.
void set_floor(const Search& search, int64_t e) {
  if (search.least[e] == kMissing && search.counts[e] > search.k) keep_best(search, e);
}

bool is_hidden(const Query& query, int64_t e, int64_t unit) {
  if (query.barred && query.barred[unit]) return true;
  return query.ends && std::binary_search(query.excluded + query.ends[e], query.excluded + query.ends[e + 1], unit);
}

// 1 over the length of a vector; 0 if it has no direction.
float direction_of(const float* vector, int64_t inner) {
  float length = std::sqrt(dot(vector, vector, inner));
  return length <= kShortest ? 0.f : 1.f / length;
}

// Vectors of units as floats.
struct Operand {
  const float* vectors;
  int64_t stride;
  const float* factors;
  const float* biases;

  Operand from(int64_t t) const {
    return {vectors + t * stride, stride, factors ? factors + t : nullptr, biases ? biases + t : nullptr};
  }
};

// Examples in the lanes of N vectors.
template <int N, bool fuses>
class Lanes {
 public:
  static constexpr int64_t kWidth = N * kLanes;

  explicit Lanes(const Query& query)
      : query_(query), blocks_((query.examples + kWidth - 1) / kWidth), examples_(blocks_ * kWidth * query.inner),
        scales_(blocks_ * kWidth) {
    for (int64_t e = 0; e < blocks_ * kWidth; e++) {
      bool is_there = e < query.examples;
      float* lane = examples_.get() + e / kWidth * kWidth * query.inner + e % kWidth;
      for (int64_t h = 0; h < query.inner; h++) lane[h * kWidth] = is_there ? query.direct[e * query.inner + h] : 0.f;
      scales_.get()[e] = is_there && query.scales ? query.scales[e] : 1.f;
    }
  }

  // Call `work(t, count, block, logits)` for the pieces of the units and each block of examples; logits are
  // [count, kWidth].
  template <class Work>
  void each_piece(const Units& units, Work work) const {
    int64_t inner = query_.inner, many = std::max(kPiece, kCached / std::max<int64_t>(inner, 1) / kPiece * kPiece);
    int64_t most = std::min(many, units.count);
    Aligned<float> logits(kPiece * kWidth), vectors(query_.scales ? most * inner : 0), factors(units.directions ? most : 0);
    for (int64_t start = 0; start < units.count; start += many) {
      int64_t stop = std::min(start + many, units.count);
      Operand operand = operand_of(units, start, stop, vectors.get(), factors.get());
      for (int64_t block = 0; block < blocks_; block++)
        for (int64_t t = start; t < stop; t += kPiece) {
          int64_t count = std::min(kPiece, stop - t);
          fill(block, operand.from(t - start), count, logits.get());
          work(t, count, block, logits.get());
        }
    }
  }

  // Add the logits of a piece to the running sums of a softmax.
  static void add_sums(const float* logits, int64_t count, float* shares, int64_t examples, float* peaks, double* totals) {
    constexpr int64_t half = kPiece / 2;
    float highest[kWidth];
    for (int64_t l = 0; l < kWidth; l++) highest[l] = l < examples ? peaks[l] : 0.f;
    for (int n = 0; n < N; n++) {
      const float* from = logits + n * kLanes;
      float* to = shares + n * kLanes;
      Floats peak = load(highest + n * kLanes);
      Wholes is_nan = peak != peak;
      for (int64_t t = 0; t < count; t++) {
        Floats z = load(from + t * kWidth);
        peak = z > peak ? z : peak;
        is_nan |= z != z;
      }
      peak = is_nan ? everywhere(number(uint32_t{kNotANumber})) : peak;
      store(highest + n * kLanes, peak);
      for (int64_t t = 0; t < half; t++) {
        Floats share = t < count ? exponential(load(from + t * kWidth) - peak) : Floats{};
        if (t + half < count) share += exponential(load(from + (t + half) * kWidth) - peak);
        store(to + t * kWidth, share);
      }
    }
    for (int64_t left = half / 2; left >= 8; left /= 2)
      for (int64_t n = 0; n < left * kWidth; n++) shares[n] += shares[n + left * kWidth];
    for (int64_t l = 0; l < examples; l++) {
      double s[8];
      for (int64_t t = 0; t < 8; t++) s[t] = shares[t * kWidth + l];
      double sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
      double before = peaks[l], now = highest[l];
      totals[l] = totals[l] * (before == now ? 1.0 : std::exp(before - now)) + sum;
      peaks[l] = highest[l];
    }
  }

  // Search units of a shard, and add them to the running sums of a softmax, if there are any.
  void rank(const Units& units, float* peaks, double* totals, const Search& search) const {
    Aligned<float> shares(peaks ? kPiece / 2 * kWidth : 0);
    each_piece(units, [&](int64_t t, int64_t count, int64_t block, const float* logits) {
      int64_t first = block * kWidth, examples = std::min(kWidth, query_.examples - first);
      if (peaks) add_sums(logits, count, shares.get(), examples, peaks + first, totals + first);
      search_piece(units.first + t * units.step, units.step, count, first, examples, logits, search);
      for (int64_t e = first; e < first + examples; e++) set_floor(search, e);
    });
  }

 private:
  Operand operand_of(const Units& units, int64_t start, int64_t stop, float* own_vectors, float* own_factors) const {
    int64_t inner = query_.inner;
    const float* factors = units.factors ? units.factors + start : nullptr;
    const float* biases = units.biases ? units.biases + start : nullptr;
    if (query_.scales) {
      const int8_t* whole = static_cast<const int8_t*>(units.vectors) + start * units.stride;
      for (int64_t t = 0; t < stop - start; t++)
        for (int64_t h = 0; h < inner; h++) own_vectors[t * inner + h] = whole[t * units.stride + h];
      return {own_vectors, inner, factors, biases};
    }
    const float* vectors = static_cast<const float*>(units.vectors) + start * units.stride;
    if (units.directions) {
      for (int64_t t = 0; t < stop - start; t++) own_factors[t] = direction_of(vectors + t * units.stride, inner);
      factors = own_factors;
    }
    return {vectors, units.stride, factors, biases};
  }

  // The logits of a block of examples.
  void fill(int64_t block, const Operand& operand, int64_t count, float* logits) const {
    int64_t inner = query_.inner, columns = query_.scales ? std::min(inner, kExactColumns) : inner;
    const float* examples = examples_.get() + block * kWidth * inner;
    multiply<fuses, false, N>({operand.vectors, operand.stride, 1}, count, examples, columns, logits, kWidth);
    if (columns < inner) add_further(examples, operand, count, logits);
    for (int64_t t = 0; t < count; t++)
      for (int n = 0; n < N; n++) {
        float* to = logits + t * kWidth + n * kLanes;
        Floats lanes = load(to);
        if (operand.factors) lanes *= operand.factors[t];
        if (query_.scales) lanes *= load(scales_.get() + block * kWidth + n * kLanes);
        if (operand.biases) lanes += operand.biases[t];
        store(to, lanes);
      }
  }

  // Add the products of whole numbers of the columns after the first.
  void add_further(const float* examples, const Operand& operand, int64_t count, float* logits) const {
    std::vector<int32_t> totals(logits, logits + count * kWidth);
    for (int64_t h = kExactColumns; h < query_.inner; h += kExactColumns) {
      int64_t columns = std::min(kExactColumns, query_.inner - h);
      multiply<fuses, false, N>({operand.vectors + h, operand.stride, 1}, count, examples + h * kWidth, columns, logits,
                                kWidth);
      for (size_t n = 0; n < totals.size(); n++) totals[n] += static_cast<int32_t>(logits[n]);
    }
    std::copy(totals.begin(), totals.end(), logits);
  }

  void search_piece(int64_t unit, int64_t step, int64_t count, int64_t first, int64_t examples, const float* logits,
                    const Search& search) const {
    float bounds[kWidth];
    for (int64_t l = 0; l < kWidth; l++) bounds[l] = l < examples ? floor_of(search, first + l) : kInfinity;
    for (int64_t t = 0; t < count; t++, unit += step) {
      const float* lanes = logits + t * kWidth;
      uint32_t found = 0;
      for (int n = 0; n < N; n++) found |= exceeding(load(lanes + n * kLanes), load(bounds + n * kLanes)) << (n * kLanes);
      for (; found; found &= found - 1) {
        int64_t l = __builtin_ctz(found), e = first + l;
        if (l >= examples || key_of(lanes[l], unit) < search.least[e] || is_hidden(query_, e, unit)) continue;
        if (offer(search, e, lanes[l], unit)) bounds[l] = floor_of(search, e);
      }
    }
  }

  const Query& query_;
  int64_t blocks_;
  Aligned<float> examples_, scales_;
};

// Call a function with the examples in lanes.
template <class Work>
void with_lanes(const Query& query, Work work) {
  bool is_narrow = query.examples <= kLanes;
  if (query.fuses)
    is_narrow ? work(Lanes<1, true>(query)) : work(Lanes<2, true>(query));
  else
    is_narrow ? work(Lanes<1, false>(query)) : work(Lanes<2, false>(query));
}

}  // namespace

// Put the k best keys of each example first, in descending order; missing ones follow.
WIDENET int64_t choose(const Search* search, int64_t examples) {
  for (int64_t e = 0; e < examples; e++) {
    int64_t* keys = search->keys + e * search->size;
    int64_t kept = std::min(search->counts[e], search->k);
    std::partial_sort(keys, keys + kept, keys + search->counts[e], std::greater<>());
    std::fill(keys + kept, keys + search->k, kMissing);
    search->counts[e] = kept;
  }
  return 0;
}

// `peaks` and `totals` are [num_shards, examples], or null.
WIDENET int64_t rank(const Query* query, const Units* const* shards, int64_t num_shards, float* peaks, double* totals,
                     const Search* const* searches, int64_t num_threads) try {
  int64_t result = 0;
  with_lanes(*query, [&](const auto& lanes) {
    auto rank = [&](const Search* search, int64_t s) {
      int64_t sum = peaks ? s * query->examples : 0;
      lanes.rank(*shards[s], peaks + sum, totals + sum, *search);
    };
    result = share_out(num_shards, num_threads, [&](int64_t thread) { return searches[thread]; }, rank);
  });
  return result;
}
OUT_OF_MEMORY

WIDENET int64_t logits(const Query* query, const Units* units, float* result) try {
  with_lanes(*query, [&](const auto& lanes) {
    constexpr int64_t width = std::decay_t<decltype(lanes)>::kWidth;
    lanes.each_piece(*units, [&](int64_t first, int64_t count, int64_t block, const float* logits) {
      for (int64_t e = block * width; e < std::min((block + 1) * width, query->examples); e++)
        for (int64_t t = 0; t < count; t++)
          result[e * units->count + first + t] = logits[t * width + e % width];
    });
  });
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t softmax_sums(const float* logits, int64_t examples, int64_t count, float* peaks, double* totals) try {
  using Some = Lanes<1, false>;
  constexpr int64_t width = Some::kWidth;
  Aligned<float> lanes(kPiece * width), shares(kPiece / 2 * width);
  for (int64_t first = 0; first < examples; first += width)
    for (int64_t start = 0; start < count; start += kPiece) {
      int64_t num = std::min(width, examples - first), units = std::min(kPiece, count - start);
      for (int64_t l = 0; l < width; l++)
        for (int64_t t = 0; t < units; t++)
          lanes.get()[t * width + l] = l < num ? logits[(first + l) * count + start + t] : 0.f;
      Some::add_sums(lanes.get(), units, shares.get(), num, peaks + first, totals + first);
    }
  return 0;
}
OUT_OF_MEMORY

WIDENET int64_t search(const float* logits, int64_t examples, int64_t count, int64_t first, int64_t step,
                       const Search* search) try {
  for (int64_t e = 0; e < examples; e++) {
    const float* row = logits + e * count;
    float floor = floor_of(*search, e);
    for (int64_t start = 0; start < count; start += kBlock) {
      int64_t stop = std::min(start + kBlock, count);
      int32_t found = 0;
      for (int64_t t = start; t < stop; t++) found |= !(row[t] <= floor);
      for (int64_t t = start; found && t < stop; t++)
        if (!(row[t] <= floor) && offer(*search, e, row[t], first + step * t)) floor = floor_of(*search, e);
    }
    set_floor(*search, e);
  }
  return 0;
}
OUT_OF_MEMORY
