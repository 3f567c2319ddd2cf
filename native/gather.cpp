// Sums of rows of a weight: sparse inputs. widenet/kernels/bags.py says more.
#include <algorithm>
#include <atomic>

#include "export.h"
#include "lanes.h"
#include "threads.h"

namespace {

constexpr int64_t kAhead = 4;  // entries whose rows are fetched while others are added

// Rows of a shard, and which of them are added for each example.
struct Bag {
  const float* weight;
  int64_t columns;
  const int64_t* ends;  // of each example's entries, after a 0
  const void* rows;     // int32 or int64
  const float* values;  // or null
  int64_t examples, is_short;
  float* sums;  // [examples, columns]
};

// Add an example's rows in their order.
template <class Row>
void add(const Bag& bag, const Row* rows, int64_t e) {
  float* __restrict sum = bag.sums + e * bag.columns;
  std::fill_n(sum, bag.columns, 0.f);
  int64_t end = bag.ends[bag.examples];
  for (int64_t z = bag.ends[e]; z < bag.ends[e + 1]; z++) {
    if (z + kAhead < end)
      for (int64_t h = 0; h < bag.columns; h += kLine) __builtin_prefetch(bag.weight + rows[z + kAhead] * bag.columns + h);
    const float* __restrict row = bag.weight + rows[z] * bag.columns;
    if (bag.values) {
      float value = bag.values[z];
      for (int64_t h = 0; h < bag.columns; h++) sum[h] += value * row[h];
    } else {
      for (int64_t h = 0; h < bag.columns; h++) sum[h] += row[h];
    }
  }
}

}  // namespace

WIDENET int64_t gather(const Bag* const* bags, int64_t count, int64_t num_threads) {
  std::atomic<int64_t> next{0};
  in_threads(std::min(num_threads, count), [&](int64_t) {
    for (int64_t n; (n = next++) < count;)
      for (int64_t e = 0; e < bags[n]->examples; e++) {
        if (bags[n]->is_short)
          add(*bags[n], static_cast<const int32_t*>(bags[n]->rows), e);
        else
          add(*bags[n], static_cast<const int64_t*>(bags[n]->rows), e);
      }
  });
  return 0;
}
