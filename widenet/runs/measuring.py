"""Measures a training before it starts: a few of its steps, evaluations and recommendations."""

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from widenet.baselines.evaluate import output_name
from widenet.data.dataset import Dataset
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import fixed_arithmetic
from widenet.parallel.group import exchange_for, fitted
from widenet.plan.layout import Layout, WeightsIn, steps_per_epoch
from widenet.plan.memory import checkpoint_bytes
from widenet.predict.restrictions import Histories, rows_a_block
from widenet.runs.training import built, device_of, elsewhere, evaluation_of, job_of, stream_of
from widenet.stores.durable import force_to_disk
from widenet.training.checkpoint import own_files, write
from widenet.training.loop import steps_ahead
from widenet.training.schedules import rates
from widenet.training.step import train_step

_WARM_UP, _FEWEST, _SECONDS = 2, 3, 10.0
"""Steps that do not count, the fewest that do, and how long steps are measured."""
_RANKING_SECONDS = 4.0
_WRITTEN_BYTES = 2**28
"""Bytes of a checkpoint that are written to measure its time."""
_RANKED = 100
"""Recommendations of an example."""


@dataclass(frozen=True)
class Measured:
    """Seconds of a run, from a few steps, evaluations and recommendations.

    Attributes:
        step_seconds: A training step.
        steps_per_epoch: Steps of an epoch.
        epoch_seconds: The steps of an epoch.
        evaluation_seconds: One evaluation; None without.
        checkpoint_seconds: One checkpoint; None: not counted.
        training_seconds: All epochs, evaluations and checkpoints after epochs; a training that stops early
            takes less.
        recommendation_seconds: Ranking for every example; None for networks that rank none.
        source: How many steps were measured, and on how many threads.
    """

    step_seconds: float
    steps_per_epoch: int
    epoch_seconds: float
    evaluation_seconds: float | None
    checkpoint_seconds: float | None
    training_seconds: float
    recommendation_seconds: float | None
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
    """Train a new network for a few steps and rank for some examples; nothing is kept.

    This process measures alone. Steps, evaluation and recommendations are those of `train`, `evaluate` and
    `predict`, and so is the reading of the dataset. Files of a checkpoint are written beside the dataset, and
    removed; if that is refused, checkpoints are not counted.

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
        ranking = _ranking_seconds(network, dataset)
        evaluation = _evaluation_seconds(network, dataset)
        writing = _writing_seconds(network, dataset.path.parent)
    counted = steps[min(_WARM_UP, len(steps) - 1) :]
    threads = f"{job.num_threads} thread{'s' * (job.num_threads != 1)}" if device.type == "cpu" else "1 GPU"
    source = f"{len(counted):,} step{'s' * (len(counted) != 1)} here, {threads}"
    checkpoint = None if writing is None else writing * checkpoint_bytes(job)
    step = sum(counted) / len(counted)
    per_epoch = steps_per_epoch(dataset.num_examples, job.num_examples)
    evaluations = (
        0 if training.evaluation is None else -(-training.epochs // training.evaluation.every_epochs)
    )
    checkpoints = -(-training.epochs // training.checkpoints.every_epochs)
    return Measured(
        step_seconds=step,
        steps_per_epoch=per_epoch,
        epoch_seconds=per_epoch * step,
        evaluation_seconds=evaluation,
        checkpoint_seconds=checkpoint,
        training_seconds=training.epochs * per_epoch * step
        + evaluations * (evaluation or 0.0)
        + checkpoints * (checkpoint or 0.0),
        recommendation_seconds=None if ranking is None else ranking * dataset.num_examples,
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


def _ranking_seconds(network: Network, dataset: Dataset) -> float | None:
    """Return the seconds of ranking for an example; None if no output is over a sparse field."""
    ranked = [
        name for name, output in network.outputs.items() if dataset.field(output.spec.field).kind != "dense"
    ]
    if not ranked:
        return None
    histories = Histories(network, dataset)
    size = rows_a_block(_RANKED)
    blocks = (
        np.arange(start, min(start + size, dataset.num_examples))
        for start in range(0, dataset.num_examples, size)
    )

    def rank(rows: np.ndarray) -> None:
        histories.best(ranked[0], rows, min(_RANKED, network.outputs[ranked[0]].width))

    rank(np.arange(1))  # what a first call takes, such as compiling, belongs to the start of the program
    clock = _Clock()
    with suppress(_Enough):
        for rows in blocks:
            rank(rows)
            clock.advance(len(rows))
    return clock.seconds_of_one()


def _evaluation_seconds(network: Network, dataset: Dataset) -> float | None:
    """Return the seconds of one evaluation; None without one, or without examples to rank for."""
    clock, evaluation = _Clock(), network.layout.training.evaluation
    evaluate = evaluation_of(network.layout.training, dataset, clock.advance)
    if evaluation is None or evaluate is None:
        return None
    with suppress(_Enough):
        evaluate(network)
    name, seconds = output_name(network, evaluation.output), clock.seconds_of_one()
    field = network.outputs[name].spec.field
    number = np.count_nonzero(dataset.entry_counts(field, slice(None), evaluation.part))
    return None if seconds is None else seconds * int(number)


def _writing_seconds(network: Network, folder: Path) -> float | None:
    """Return the seconds of a byte of a checkpoint, from its first files; None if the folder takes none."""
    size, started = 0, time.monotonic()
    try:
        with TemporaryDirectory(dir=folder, prefix=".widenet-plan-") as place:
            for name, tensors in own_files(network, with_state=True):
                path = Path(place) / name
                write(path, tensors)
                force_to_disk(path)
                size += sum(tensor.nbytes for tensor in tensors.values())
                if size > _WRITTEN_BYTES:
                    break
            return (time.monotonic() - started) / size
    except OSError:
        return None


class _Clock:
    """Counts examples until they have taken long enough; the first block counts only if it is alone."""

    def __init__(self) -> None:
        self.laps = [(time.monotonic(), 0)]

    def advance(self, number: int) -> None:
        """Count some finished examples; raises _Enough when they are enough."""
        self.laps.append((time.monotonic(), number))
        if self.laps[-1][0] - self.laps[0][0] > _RANKING_SECONDS:
            raise _Enough

    def seconds_of_one(self) -> float | None:
        """Return the mean seconds of an example; None if there was none."""
        laps = self.laps[1:] if len(self.laps) > 2 else self.laps
        done = sum(number for _, number in laps[1:])
        return (laps[-1][0] - laps[0][0]) / done if done else None
