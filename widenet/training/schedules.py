"""Learning-rate schedules: compute the rates of all steps before a training begins."""

import math
from collections.abc import Callable

import numpy as np

from widenet.spec.optimizers import (
    CosineSchedule,
    ExponentialSchedule,
    InverseSchedule,
    Schedule,
    StepSchedule,
)
from widenet.spec.training import TrainingSpec


def rates(spec: TrainingSpec, steps_per_epoch: int) -> np.ndarray:
    """Return the learning rate of every step, float64 [epochs * steps_per_epoch + 1]; index 0 is unused."""
    total = spec.epochs * steps_per_epoch
    by_step = np.zeros(total + 1)
    by_step[1:] = _factors(spec.schedule, np.arange(total, dtype=np.float64), steps_per_epoch, total)
    warm = min(spec.warmup_steps, total)
    if warm:
        by_step[1 : warm + 1] *= np.arange(1, warm + 1) / spec.warmup_steps
    by_step *= spec.optimizer.learning_rate
    return by_step


def _factors(schedule: Schedule, steps: np.ndarray, steps_per_epoch: int, total: int) -> np.ndarray:
    """Return the factor on the learning rate after each number of finished steps."""
    factors = np.ones_like(steps)
    match schedule:
        case StepSchedule(every_epochs=every, factor=factor):
            factors *= _each(lambda power: factor**power, steps // steps_per_epoch // every)
        case ExponentialSchedule(factor=factor):
            factors *= _each(lambda power: factor**power, steps / steps_per_epoch)
        case InverseSchedule(decay=decay):
            factors /= 1 + decay * steps
        case CosineSchedule(floor=floor):
            factors *= floor + (1 - floor) * 0.5 * (1 + _each(math.cos, np.pi * steps / total))
    return factors


def _each(function: Callable[[float], float], numbers: np.ndarray) -> np.ndarray:
    """Return a function of each number, by the C library: NumPy's functions depend on the processor."""
    return np.fromiter((function(float(number)) for number in numbers), np.float64, len(numbers))
