// Sums of rows of a weight: sparse inputs. widenet/kernels/bags.py says more.
#include <algorithm>

#include "export.h"
#include "lanes.h"
#include "threads.h"

namespace {

constexpr int64_t kAhead = 4, kTogether = 16;  // entries whose rows are fetched ahead, and examples that a thread takes

// Rows of a weight, and which of them are added for each example.
struct Bags {
  const float* const* shards;  // the rows of each; null: of another process
  int64_t num_shards, columns;
  const int64_t* ends;  // of each example's entries, after a 0
  const void* units;    // int32 or int64; unit u is row u / num_shards of shard u % num_shards
  const float* values;  // or null
  int64_t examples, is_short;
  float* sums;  // [num_shards, examples, columns], zeros
};

// Add an example's rows in their order.
template <class Unit>
void add(const Bags& bags, const Unit* units, int64_t e) {
  int64_t columns = bags.columns, end = bags.ends[bags.examples];
  auto num_shards = static_cast<uint32_t>(bags.num_shards);
  for (int64_t z = bags.ends[e]; z < bags.ends[e + 1]; z++) {
    if (z + kAhead < end) {
      auto unit = static_cast<uint32_t>(units[z + kAhead]);
      if (const float* shard = bags.shards[unit % num_shards])
        for (int64_t h = 0; h < columns; h += kLine) __builtin_prefetch(shard + unit / num_shards * columns + h);
    }
    auto unit = static_cast<uint32_t>(units[z]), s = unit % num_shards;
    if (!bags.shards[s]) continue;
    const float* __restrict row = bags.shards[s] + unit / num_shards * columns;
    float* __restrict sum = bags.sums + (s * bags.examples + e) * columns;
    if (bags.values) {
      float value = bags.values[z];
      for (int64_t h = 0; h < columns; h++) sum[h] += value * row[h];
    } else {
      for (int64_t h = 0; h < columns; h++) sum[h] += row[h];
    }
  }
}

}  // namespace

WIDENET int64_t gather(const Bags* bags, int64_t num_threads) {
  auto add_group = [&](int64_t, int64_t group) {
    for (int64_t e = group * kTogether; e < std::min((group + 1) * kTogether, bags->examples); e++)
      bags->is_short ? add(*bags, static_cast<const int32_t*>(bags->units), e)
                     : add(*bags, static_cast<const int64_t*>(bags->units), e);
  };
  return share_out((bags->examples + kTogether - 1) / kTogether, num_threads, [](int64_t thread) { return thread; }, add_group);
}
