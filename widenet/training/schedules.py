"""Learning-rate schedules: the rate of every step of a training, known before it begins."""

import math

import numpy as np

from widenet.spec.optimizers import CosineSchedule, ExponentialSchedule, InverseSchedule, Schedule, StepSchedule
from widenet.spec.training import TrainingSpec


def rates(spec: TrainingSpec, steps_per_epoch: int) -> np.ndarray:
    """float64 [epochs * steps_per_epoch + 1]: the learning rate of step n at place n; place 0 is unused."""
    total = spec.epochs * steps_per_epoch
    factors = [0.0] + [_factor(spec.schedule, step, steps_per_epoch, total) for step in range(total)]
    if spec.warmup_steps:
        for number in range(1, min(spec.warmup_steps, total) + 1):
            factors[number] *= number / spec.warmup_steps
    rate: float = spec.optimizer.learning_rate
    return np.array(factors) * rate


def _factor(schedule: Schedule, step: int, steps_per_epoch: int, total: int) -> float:
    """The share of the full rate after `step` finished steps."""
    match schedule:
        case StepSchedule(every_epochs=every, factor=factor):
            return float(factor ** (step // steps_per_epoch // every))
        case ExponentialSchedule(factor=factor):
            return float(factor ** (step / steps_per_epoch))
        case InverseSchedule(decay=decay):
            return 1 / (1 + decay * step)
        case CosineSchedule(floor=floor):
            return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * step / total))
        case _:
            return 1.0
