// Stable sorting and grouping of integers, and of a batch's entries by shard. widenet/kernels/bags.py says more.
#include <utility>
#include <vector>

#include "export.h"

namespace {

constexpr int kDigitBits = 12;

template <class Unit>
int64_t cut(const int64_t* indptr, int64_t num, const Unit* indices, int64_t num_shards, int64_t* bounds, Unit* units,
            int64_t* order) {
  int64_t last = num_shards * num;
  for (int64_t n = 0; n <= last; n++) bounds[n] = 0;
  for (int64_t e = 0; e < num; e++)
    for (int64_t z = indptr[e]; z < indptr[e + 1]; z++) bounds[indices[z] % num_shards * num + e + 1]++;
  for (int64_t n = 0; n < last; n++) bounds[n + 1] += bounds[n];
  std::vector<int64_t> place(bounds, bounds + last);
  for (int64_t e = 0; e < num; e++)
    for (int64_t z = indptr[e]; z < indptr[e + 1]; z++) {
      int64_t row = indices[z] / num_shards, to = place[(indices[z] - row * num_shards) * num + e]++;
      units[to] = static_cast<Unit>(row);
      order[to] = z;
    }
  return 0;
}

}  // namespace

// Sort keys of at least 0 by their digits. `keys` and `order` have two arrays each, of which the first keys are given.
// Returns which of the two has the result.
WIDENET int64_t sort(int64_t* const* keys, int64_t* const* order, int64_t num) try {
  int64_t *from = keys[0], *to = keys[1], *from_order = order[0], *to_order = order[1], most = 0;
  for (int64_t z = 0; z < num; z++) {
    from_order[z] = z;
    most = from[z] > most ? from[z] : most;
  }
  int bits = 1;
  while (most >> bits > 0) bits++;
  int passes = (bits + kDigitBits - 1) / kDigitBits, digit_bits = (bits + passes - 1) / passes;
  int64_t digit = (int64_t{1} << digit_bits) - 1;
  std::vector<int64_t> place(digit + 1);
  for (int pass = 0; pass < passes; pass++) {
    int shift = pass * digit_bits;
    place.assign(digit + 1, 0);
    for (int64_t z = 0; z < num; z++) place[from[z] >> shift & digit]++;
    int64_t before = 0;
    for (int64_t& of_digit : place) before += std::exchange(of_digit, before);
    for (int64_t z = 0; z < num; z++) {
      int64_t at = place[from[z] >> shift & digit]++;
      to[at] = from[z];
      to_order[at] = from_order[z];
    }
    std::swap(from, to);
    std::swap(from_order, to_order);
  }
  return passes % 2;
}
OUT_OF_MEMORY

// Write the distinct keys of a sorted array, the first entry of each, and the number of entries. Returns their number.
WIDENET int64_t group(const int64_t* sorted, int64_t num, int64_t* keys, int64_t* indptr) try {
  int64_t count = 0;
  for (int64_t z = 0; z < num; z++)
    if (z == 0 || sorted[z] != sorted[z - 1]) {
      keys[count] = sorted[z];
      indptr[count++] = z;
    }
  indptr[count] = num;
  return count;
}
OUT_OF_MEMORY

WIDENET int64_t cut_int32(const int64_t* indptr, int64_t num, const int32_t* indices, int64_t num_shards, int64_t* bounds,
                       int32_t* units, int64_t* order) try {
  return cut(indptr, num, indices, num_shards, bounds, units, order);
}
OUT_OF_MEMORY

WIDENET int64_t cut_int64(const int64_t* indptr, int64_t num, const int64_t* indices, int64_t num_shards, int64_t* bounds,
                       int64_t* units, int64_t* order) try {
  return cut(indptr, num, indices, num_shards, bounds, units, order);
}
OUT_OF_MEMORY
