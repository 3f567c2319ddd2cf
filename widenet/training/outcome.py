"""The outcome of a training, read from the lines of its log."""

from collections.abc import Mapping, Sequence
from typing import Any

from widenet.spec.training import TrainingSpec

_FAR = 2.0
"""A loss above this many times its start means that the training went wrong."""


def best_line(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the first line with the best metric; None if no line has the metric."""
    name = "" if training.evaluation is None else training.evaluation.metric
    measured = [record for record in records if isinstance(record.get(name), int | float)]
    return max(measured, key=lambda record: float(record[name]), default=None)


def kept_line(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the line of the epoch whose weights the run keeps; empty before the first epoch has ended.

    That is the best epoch if the document says so, else the last.
    """
    last = records[-1] if records else {}
    return best_line(training, records) or last if training.keep == "best" else last


def diverged(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> str | None:
    """Return a warning if the loss of the kept weights is far above its start, else None."""
    kept = kept_line(training, records)
    start, loss = records[0].get("start_loss") if records else None, kept.get("loss")
    if (
        not isinstance(start, int | float)
        or not isinstance(loss, int | float)
        or loss - start <= (_FAR - 1) * abs(start)
    ):
        return None
    return (
        f"the loss of epoch {kept['epoch']}, {loss:.4g}, is far above its start, {start:.4g}: training went"
        " wrong. Lower the learning rate, or set gradient_norm_limit."
    )
