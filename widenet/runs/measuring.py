"""Measures a training before it starts: a few of its steps, and the beginning of an evaluation."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from widenet.baselines.evaluate import output_name
from widenet.data.dataset import Dataset
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.group import exchange_for, fitted
from widenet.plan.layout import Layout, WeightsIn, steps_per_epoch
from widenet.runs.training import built, device_of, elsewhere, evaluation_of, job_of, stream_of
from widenet.training.loop import steps_ahead
from widenet.training.schedules import rates
from widenet.training.step import train_step

_WARM_UP, _FEWEST, _SECONDS = 2, 3, 10.0
"""Steps that do not count, the fewest that do, and how long steps are measured."""
_RANKING_SECONDS = 4.0


@dataclass(frozen=True)
class Measured:
    """Seconds of a training, from a few steps and the beginning of an evaluation.

    Attributes:
        step_seconds: A training step.
        steps_per_epoch: Steps of an epoch.
        epoch_seconds: The steps of an epoch.
        evaluation_seconds: One evaluation; None without.
        training_seconds: All epochs and evaluations; a training that stops early takes less.
        source: How many steps were measured, and on how many threads.
    """

    step_seconds: float
    steps_per_epoch: int
    epoch_seconds: float
    evaluation_seconds: float | None
    training_seconds: float
    source: str


class _Enough(Exception):  # noqa: N818 # no error: an evaluation has run long enough
    pass


def measure(
    layout: Layout,
    dataset: Dataset,
    device_name: str | None = None,
    weights_in: WeightsIn = "device",
    scratch: Path | None = None,
) -> Measured:
    """Train a new network for a few steps and begin to evaluate it; nothing is kept.

    This process measures alone. Steps, evaluation and the reading of the dataset are those of `train`.

    Args:
        layout: The layout of the two documents, checked against the dataset.
        dataset: The examples.
        device_name: "cpu" or "cuda"; None: CUDA if there is a device.
        weights_in: Where wide weights and their state lie.
        scratch: Folder of the file of weights on a disk; None: the one beside the dataset.

    Returns:
        How long the training takes on this machine.

    Raises:
        CapacityError: The training does not fit.
        OptionError: The folder for weights on a disk takes no file.
        NumericsError: The loss is not finite.
    """
    device = device_of(device_name, layout.training)
    with fixed_arithmetic():
        exchange = exchange_for(layout.num_shards, device)
        job = fitted(job_of(layout, dataset, device, weights_in), device, exchange)
        folder = scratch or dataset.path.parent
        training = layout.training
        rule = Optimizer(layout.network.tuned(training.optimizer), training.l1, training.l2)
        network = built(job, rule, dataset, exchange, device, elsewhere(job, folder, device, exchange))
        steps = list(_step_seconds(network, rule, dataset))
        evaluation = _evaluation_seconds(network, dataset)
    counted = steps[min(_WARM_UP, len(steps) - 1) :]
    threads = f"{job.num_threads} thread{'s' * (job.num_threads != 1)}" if device.type == "cpu" else "1 GPU"
    source = f"{len(counted):,} step{'s' * (len(counted) != 1)} here, {threads}"
    step = sum(counted) / len(counted)
    per_epoch = steps_per_epoch(dataset.num_examples, job.num_examples)
    evaluations = (
        0 if training.evaluation is None else -(-training.epochs // training.evaluation.every_epochs)
    )
    return Measured(
        step_seconds=step,
        steps_per_epoch=per_epoch,
        epoch_seconds=per_epoch * step,
        evaluation_seconds=evaluation,
        training_seconds=training.epochs * per_epoch * step + evaluations * (evaluation or 0.0),
        source=source,
    )


def _step_seconds(network: Network, rule: Optimizer, dataset: Dataset) -> Iterator[float]:
    """Train for some steps; yield the seconds of each."""
    training = network.layout.training
    stream = stream_of(network.layout, dataset, network.exchange)
    numbers = range(stream.steps_per_epoch * training.epochs)
    started = begun = time.monotonic()
    schedule = rates(training, stream.steps_per_epoch)
    with closing(steps_ahead(network, stream, schedule, numbers)) as steps:
        for number, (batch, step, _) in enumerate(steps, start=1):
            train_step(network, rule, batch, step)
            now = time.monotonic()
            yield now - begun
            if number >= _WARM_UP + _FEWEST and now - started > _SECONDS:
                return
            begun = now


def _evaluation_seconds(network: Network, dataset: Dataset) -> float | None:
    """Return the seconds of one evaluation; None without one, or without examples to rank for.

    Only its first seconds are measured, and the first block of examples counts only if it is alone.
    """
    laps, evaluation = [(time.monotonic(), 0)], network.layout.training.evaluation

    def advance(number: int) -> None:
        laps.append((time.monotonic(), number))
        if laps[-1][0] - laps[0][0] > _RANKING_SECONDS:
            raise _Enough

    evaluate = evaluation_of(network.layout.training, dataset, advance)
    if evaluation is None or evaluate is None:
        return None
    with suppress(_Enough):
        evaluate(network)
    counted = laps[1:] if len(laps) > 2 else laps
    done = sum(number for _, number in counted[1:])
    field = network.outputs[output_name(network, evaluation.output)].spec.field
    number = np.count_nonzero(dataset.entry_counts(field, slice(None), evaluation.part))
    return (counted[-1][0] - counted[0][0]) / done * int(number) if done else None
