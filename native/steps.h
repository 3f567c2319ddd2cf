// An optimizer's step of consecutive numbers, which sweeps over outputs make, too.
#pragma once
#include "export.h"

// The optimizers, by the number that Python passes: widenet/kernels/passes.py.
enum class Kind : int64_t { kSgd, kMomentum, kSquares, kAdadelta, kAdam };

// What a step needs beside its numbers. `penalties` are scale, l2, l1 and keep; `constants` those of the optimizer;
// `per` the numbers that share one of the first state: a row under AdaGrad by rows, else 1.
struct Step {
  Kind kind;
  const float* penalties;
  const float* constants;
  int64_t per;
};

// Make the step of `count` numbers, in place; states that the optimizer lacks may be null. May overwrite the gradient.
void make_step(const Step& step, int64_t count, float fade, float* weight, float* gradient, float* first,
               float* second);
