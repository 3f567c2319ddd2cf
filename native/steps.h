// An optimizer's step of consecutive numbers, which sweeps over outputs make, too.
#pragma once
#include "export.h"

// The optimizers, by the number that Python passes: widenet/kernels/passes.py.
enum class Kind : int64_t { kSgd, kMomentum, kAdagrad, kRmsprop, kAdadelta, kAdam };

// What a step needs beside its numbers. `penalties` are scale, l2, l1 and keep; `constants` those of the optimizer.
struct Step {
  Kind kind;
  const float* penalties;
  const float* constants;
};

// Make the step of `count` numbers, in place; states that the optimizer lacks may be null.
void make_step(const Step& step, int64_t count, float fade, float* weight, const float* gradient, float* first,
               float* second);
