// Weighted means of similarities to the features of examples. widenet/kernels/neighbour_means.py says more.
#include <algorithm>
#include <vector>

#include "export.h"

// Write the cells of a tile whose mean is not zero, and the means. Returns their number.
WIDENET int64_t neighbour_means(const int64_t* indptr, int64_t num, const int64_t* features, const float* weights,
                                const double* weight_of_example, const int64_t* keys, const float* similarities,
                                int64_t num_keys, int64_t size, int64_t start, int64_t units, double scale,
                                int64_t* cells, double* means) try {
  std::vector<int64_t> sums(units, 0);
  int64_t number = 0;
  for (int64_t e = 0; e < num; e++) {
    int64_t first_cell = e * units, before = number;
    for (int64_t z = indptr[e]; z < indptr[e + 1]; z++) {
      int64_t first = features[z] * size + start;
      double weight = weights[z];
      for (int64_t at = std::lower_bound(keys, keys + num_keys, first) - keys; at < num_keys && keys[at] < first + units;
           at++) {
        int64_t unit = keys[at] - first, term = static_cast<int64_t>(similarities[at] * weight * scale);
        if (term <= 0) continue;
        if (sums[unit] == 0) cells[number++] = first_cell + unit;
        sums[unit] += term;
      }
    }
    for (int64_t n = before; n < number; n++) {
      int64_t unit = cells[n] - first_cell;
      means[n] = sums[unit] / scale / weight_of_example[e];
      sums[unit] = 0;
    }
  }
  return number;
}
OUT_OF_MEMORY
