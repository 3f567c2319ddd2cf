// An optimizer's step of consecutive numbers, which sweeps over outputs make, too.
#pragma once
#include "export.h"

// The optimizers, by the number that Python passes: widenet/kernels/steps.py.
enum class Kind : int64_t { kSgd, kMomentum, kSquares, kAdadelta, kAdam };

// A step of a weight or of biases. States that the optimizer lacks are null.
struct Step {
  float* weight;
  float* first;
  float* second;
  Kind kind;
  const float* penalties;  // scale, l2, l1 and keep
  const float* constants;
  int64_t per;  // numbers that share one of the first state: a row under AdaGrad by rows, else 1

  // Make the step of `count` numbers from a place on, whose states fade before. May overwrite the gradient.
  void make(int64_t start, int64_t count, float fade, float* gradient) const;
};

// Gradients of rows that sparse inputs touch: each is the sum over its entries of an example's vector times the entry's
// value, if there are values.
struct Touched {
  const int64_t* rows;  // ascending
  int64_t count;
  const int64_t* ends;  // of each row's entries, after a 0
  const int64_t* examples;
  const float* values;
  const float* vectors;
};
