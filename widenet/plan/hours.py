"""How long a training and its recommendations take, from rates: measured here, or published for a device."""

from dataclasses import dataclass

from widenet.plan.devices import NamedDevice
from widenet.plan.job import Job, steps_per_epoch
from widenet.plan.layout import Weight
from widenet.plan.tiles import RANKED_TOGETHER
from widenet.plan.work import work
from widenet.spec.layers import OutputLayer


@dataclass(frozen=True)
class Rates:
    """Seconds that the parts of a run take.

    Attributes:
        step_seconds: A training step.
        ranking_seconds: Finding the best units for one example; None for networks that rank none.
        evaluation_seconds: Evaluating one example; None without an evaluation.
        checkpoint_seconds: Writing a checkpoint; None: not counted.
        source: Where these numbers come from, for a person.
        at_least: Whether they are lower bounds.
    """

    step_seconds: float
    ranking_seconds: float | None
    evaluation_seconds: float | None
    source: str
    at_least: bool = False
    checkpoint_seconds: float | None = None


@dataclass(frozen=True)
class Hours:
    """Seconds of a run; all but those of a step are None while the number of examples is unknown.

    Attributes:
        step_seconds: A training step.
        steps_per_epoch: Steps of an epoch.
        epoch_seconds: The steps of an epoch.
        evaluation_seconds: One evaluation; None without.
        training_seconds: All epochs, evaluations and checkpoints after epochs; a training that stops early
            takes less.
        recommendation_seconds: Ranking for every example; None for networks that rank none.
        source: Where the rates come from.
        at_least: Whether the seconds are lower bounds.
        checkpoint_seconds: One checkpoint; None: not counted.
    """

    step_seconds: float
    steps_per_epoch: int | None
    epoch_seconds: float | None
    evaluation_seconds: float | None
    training_seconds: float | None
    recommendation_seconds: float | None
    source: str
    at_least: bool
    checkpoint_seconds: float | None = None


def hours(job: Job, rates: Rates, num_examples: int | None, num_evaluated: int | None = None) -> Hours:
    """Return how long a run takes.

    Args:
        job: The job.
        rates: Seconds of its parts.
        num_examples: Examples of the dataset; None if they are unknown.
        num_evaluated: Examples of an evaluation; None: all.
    """
    if num_examples is None:
        return Hours(rates.step_seconds, None, None, None, None, None, rates.source, rates.at_least)
    training, ranking = job.training, rates.ranking_seconds
    steps = steps_per_epoch(num_examples, job.num_examples, job.replicas)
    epoch, evaluation, evaluations = steps * rates.step_seconds, None, 0
    if training.evaluation is not None and rates.evaluation_seconds is not None:
        evaluation = rates.evaluation_seconds * (num_examples if num_evaluated is None else num_evaluated)
        evaluations = -(-training.epochs // training.evaluation.every_epochs)
    checkpoints = -(-training.epochs // training.checkpoints.every_epochs)
    return Hours(
        step_seconds=rates.step_seconds,
        steps_per_epoch=steps,
        epoch_seconds=epoch,
        evaluation_seconds=evaluation,
        training_seconds=training.epochs * epoch
        + evaluations * (evaluation or 0.0)
        + checkpoints * (rates.checkpoint_seconds or 0.0),
        recommendation_seconds=None if ranking is None else ranking * num_examples,
        source=rates.source,
        at_least=rates.at_least,
        checkpoint_seconds=rates.checkpoint_seconds,
    )


def published_rates(job: Job, device: NamedDevice) -> Rates:
    """Return lower bounds of a job's times on devices at their published rates.

    A step takes at least as long as its operations, as the bytes of weights and state that it moves, and as
    the bytes that it sends, and as the copies of weights in the host's memory, which are made one after the
    other; ranking as the products with the output's weights, which are float32 whatever
    the training's precision, or as reading them once for `RANKED_TOGETHER` examples. Evaluations are
    not counted, for the examples that they rank are unknown. The operations of a sampled output are those of
    targets that no two examples share; where they share many, a step may take less.
    """
    needed = work(job)
    rate = device.operations[job.training.precision]
    step = max(needed.operations / rate, moved_bytes(job) / device.memory_rate)
    step = max(step, (needed.read_bytes + needed.written_bytes) / device.host_rate)
    ranking = max(_ranking(job, output, device) for output in job.network.outputs)
    return Rates(
        step_seconds=max(step, needed.sent_bytes / device.link_rate),
        ranking_seconds=ranking,
        evaluation_seconds=None,
        source=device.source,
        at_least=True,
    )


def _ranking(job: Job, output: OutputLayer, device: NamedDevice) -> float:
    weight = job.layout.of_output(output.name)
    numbers = job.rows(weight, 0) * weight.row_length
    return max(2 * numbers / device.operations["float32"], 4 * numbers / device.memory_rate / RANKED_TOGETHER)


def moved_bytes(job: Job) -> int:
    """Return the least bytes of weights and optimizer state that a process reads and writes in a step.

    Weights that take part in products are read twice, forward and backward, and written once, with their
    state; of the weights of sparse inputs and of deferred outputs, the rows that a batch touches.
    """
    factor = 3 + 2 * len(job.training.optimizer.state)
    touched = sum(_touched(job, weight) for weight in job.layout.weights.values())
    return round(4 * touched * factor * job.held_replicas)


def _touched(job: Job, weight: Weight) -> float:
    """Return how many numbers of a weight a step of the first process takes part with, at least.

    All examples may have the same entries, and the targets of a sample may be among its drawn units.
    """
    rows = job.rows(weight, 0)
    outputs = [output for output in job.network.outputs if job.layout.of_output(output.name) is weight]
    touched: float = weight.rows
    if outputs:
        touched = max(_units_touched(job, output, weight) for output in outputs)
    elif weight.rows_are_features:
        touched = max(
            job.entries_of(source)
            for (_, source), link in job.layout.links.items()
            if source and job.layout.weights[link.weight] is weight
        )
    return rows / weight.rows * touched * weight.row_length


def _units_touched(job: Job, output: OutputLayer, weight: Weight) -> float:
    """Return how many units of an output a step takes part with, at least."""
    if job.defers_rows(output):
        return min(weight.rows, job.entries[output.field])
    return weight.rows if output.sample is None else min(weight.rows, output.sample.units)
