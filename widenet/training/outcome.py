"""What a training came to, from the lines of its log."""

from collections.abc import Mapping, Sequence
from typing import Any

from widenet.spec.training import TrainingSpec

_FAR = 2.0


def best_line(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The line whose metric is best, the first of equal ones; None where no line has it."""
    name = "" if training.evaluation is None else training.evaluation.metric
    measured = [record for record in records if isinstance(record.get(name), int | float)]
    return max(measured, key=lambda record: float(record[name]), default=None)


def kept_line(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The line of the epoch whose weights the run has: the best where its document says so, else the last;
    empty before the first.
    """
    last = records[-1] if records else {}
    return best_line(training, records) or last if training.keep == "best" else last


def diverged(training: TrainingSpec, records: Sequence[Mapping[str, Any]]) -> str | None:
    """A sentence where the loss of the weights that a run has lies far above the one it began with; None
    where it does not.
    """
    kept = kept_line(training, records)
    start, loss = records[0].get("start_loss") if records else None, kept.get("loss")
    if (
        not isinstance(start, int | float)
        or not isinstance(loss, int | float)
        or loss - start <= (_FAR - 1) * abs(start)
    ):
        return None
    remedy = "Lower the learning rate, or set gradient_norm_limit."
    return (
        f"The loss of epoch {kept['epoch']}, {loss:.4g}, is far above the {start:.4g} that it began with:"
        f" this went wrong. {remedy}"
    )
