"""The lines of a run's log: what they say of the training, and its curves."""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from widenet.pictures.curves import curves
from widenet.pictures.html import Html, tag
from widenet.spec.training import TrainingSpec
from widenet.training.state import NORMS

SECONDS = ("seconds", "reading_seconds", "evaluation_seconds", "checkpoint_seconds")
BESIDE_METRICS = (
    "epoch",
    "loss",
    "start_loss",
    *SECONDS,
    "examples_per_second",
    "learning_rate",
    "regularization",
    "num_examples",
)
"""The entries of a log line that are neither metrics nor norms."""


def log_curves(records: Sequence[Mapping[str, Any]], kept: int | None = None) -> Html:
    """Draw the loss, then each metric with one line per k; a metric with a single k has it in its title.

    Args:
        records: The lines of the log.
        kept: The epoch to mark, whose weights the run keeps.
    """
    mark = None if kept is None else (float(kept), f"kept: epoch {kept:,}")
    lines: dict[str, list[str]] = {"loss": ["loss"]}
    for name in metric_names(records):
        lines.setdefault(name.partition("@")[0], []).append(name)
    titles = {title if len(names) > 1 else names[0]: names for title, names in lines.items()}
    return grid(
        [
            curves(title, {name: points(records, name) for name in names}, mark=mark)
            for title, names in titles.items()
        ]
    )


def metric_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the metrics of all lines, in the order of their first occurrence."""
    names = dict.fromkeys(chain.from_iterable(records))
    return [name for name in names if name not in BESIDE_METRICS and not name.startswith(NORMS)]


def points(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """Return (epoch, value) of the lines that have a number under this name."""
    return [
        (record["epoch"], record[name]) for record in records if isinstance(record.get(name), int | float)
    ]


def grid(figures: Sequence[Html]) -> Html:
    """Arrange figures side by side, as many in a row as there is room for."""
    look = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));gap:1em"
    return tag("div", *figures, class_="grid", style=look)


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
