"""The hours of a plan: measured here, or from the published rates of a device."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from widenet.errors import OptionError
from widenet.plan.hours import Hours, hours, published_rates
from widenet.plan.numbers import duration

if TYPE_CHECKING:
    from widenet.plan.devices import NamedDevice
    from widenet.plan.job import Job, WeightsIn
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec


def check_measurable(data: Path | None, processes: int, planned_elsewhere: str | None) -> None:
    """Raise OptionError if a training cannot be measured.

    Args:
        data: The dataset directory.
        processes: Number of processes.
        planned_elsewhere: The option that names another machine than this one, if any.
    """
    if data is None:
        raise OptionError("--measure needs a dataset to train on. Add --data DIR.")
    if processes != 1:
        raise OptionError(
            f"--measure measures one process; got --processes {processes}. Leave one of the two out."
        )
    if planned_elsewhere is not None:
        raise OptionError(
            f"--measure measures this machine, and {planned_elsewhere} names another. Leave one of them out."
        )


def check_scratch(scratch: Path | None, measure: bool, weights_in: str) -> None:
    """Raise OptionError for a folder of weights on a disk where no such training is measured."""
    if scratch is not None and not (measure and weights_in == "disk"):
        raise OptionError(
            "--scratch is the folder for weights on a disk while they are measured. Add --measure and"
            " --weights-in disk, or leave it out."
        )


def hours_here(
    network: "NetworkSpec",
    training: "TrainingSpec",
    data: Path,
    device: str | None,
    weights_in: "WeightsIn",
    scratch: Path | None,
) -> dict[str, Any]:
    """Measure a training on this machine; return its hours as plain values."""
    from widenet.data.dataset import Dataset
    from widenet.runs.measuring import measured_hours
    from widenet.training.check import check_training

    dataset = Dataset.open(data)
    layout = check_training(network, training, dataset)
    return asdict(measured_hours(layout, dataset, device, weights_in, scratch))


def published_hours(job: "Job", device: "NamedDevice", num_examples: int | None) -> dict[str, Any]:
    """Return the hours of a job at the published rates of a device, as plain values."""
    return asdict(hours(job, published_rates(job, device), num_examples))


def hours_lines(found: Hours, training: "TrainingSpec") -> list[str]:
    """Return sentences about the hours of a training."""
    epochs, evaluation = training.epochs, training.evaluation
    stops_early = evaluation is not None and evaluation.stop_after is not None
    at_least = "at least " * found.at_least
    source = f"by {found.source}" if found.at_least else f"measured: {found.source}"
    lines = [f"A step takes {at_least}{duration(found.step_seconds)} ({source})."]
    if found.training_seconds is None or found.epoch_seconds is None:
        return [*lines, "With --data DIR or --examples N, plan also tells the hours."]
    lines.append(
        f"An epoch of {_count(found.steps_per_epoch or 0, 'step')}:"
        f" {at_least}{duration(found.epoch_seconds)}. Training, {_count(epochs, 'epoch')}:"
        f" {at_least}{duration(found.training_seconds)}"
        f"{', if it does not stop early' if stops_early else ''}{_beside_steps(found)}."
    )
    if found.recommendation_seconds is not None:
        lines.append(f"Recommendations for all: {at_least}{duration(found.recommendation_seconds)}.")
    return lines


def _beside_steps(found: Hours) -> str:
    """Return the part of a sentence about evaluations and checkpoints."""
    parts = {"evaluations": found.evaluation_seconds, "checkpoints": found.checkpoint_seconds}
    said = [f"{name} of {duration(seconds)}" for name, seconds in parts.items() if seconds is not None]
    return f", with {' and '.join(said)} each" if said else ""


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
