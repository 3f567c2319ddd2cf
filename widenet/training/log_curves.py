"""The curves of a training, from the lines of its log."""

from collections.abc import Mapping, Sequence
from typing import Any

from widenet.pictures.curves import curves
from widenet.pictures.html import Html, tag

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
    "arithmetic",
)
"""What a line of the log holds besides metrics."""


def log_curves(records: Sequence[Mapping[str, Any]]) -> Html:
    """Figures side by side: the loss, then each metric, a line a k; one that has a single k is called by
    it.
    """
    lines: dict[str, list[str]] = {"loss": ["loss"]}
    for name in metric_names(records):
        lines.setdefault(name.partition("@")[0], []).append(name)
    titles = {title if len(names) > 1 else names[0]: names for title, names in lines.items()}
    return grid(
        [curves(title, {name: points(records, name) for name in names}) for title, names in titles.items()]
    )


def metric_names(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The metrics that some line has, in the order of their first mention."""
    return list(dict.fromkeys(name for record in records for name in record if name not in BESIDE_METRICS))


def points(records: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    """(epoch, value) of the lines that have a number of that name."""
    return [
        (record["epoch"], record[name]) for record in records if isinstance(record.get(name), int | float)
    ]


def grid(figures: Sequence[Html]) -> Html:
    """Figures side by side, as many as there is room for."""
    look = "display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));gap:1em"
    return tag("div", *figures, class_="grid", style=look)
