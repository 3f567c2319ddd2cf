"""The sections of a report about several runs."""

from collections.abc import Sequence
from typing import Any

from widenet.pictures.curves import Points, curves, legend
from widenet.pictures.html import Html, brief, table, tag
from widenet.plan.numbers import duration
from widenet.report.listing import as_text, differing, documents_of
from widenet.report.sections import note, section
from widenet.report.subject import Subject
from widenet.runs.run_log import grid, metric_names, points
from widenet.spec.metric_names import LARGER_IS_BETTER

_ABSENT = "\u2013"
_LOSS = {"field", "activation", "loss", "loss_weight", "predict", "values", "others", "sample"}
"""What of an output decides whether its loss compares."""


def curves_over_each_other(subjects: Sequence[Subject]) -> Html:
    """A figure for the loss and for each metric, with a line for each run."""
    figures = [curves(name, lines, named=False) for name, lines in lines_of(subjects).items()]
    return section("Loss and metrics", legend([subject.name for subject in subjects]), grid(figures))


def lines_of(subjects: Sequence[Subject]) -> dict[str, dict[str, Points]]:
    """Return the points of the loss and of each metric, by run; different losses stand apart."""
    by_loss: dict[str, list[str]] = {}
    for subject in subjects:
        losses = [layer.model_dump(mode="json", include=_LOSS) for layer in subject.run.network.outputs]
        by_loss.setdefault(as_text(losses), []).append(subject.name)
    lines: dict[str, dict[str, Points]] = {}
    for names in by_loss.values():
        title = "loss" if len(by_loss) == 1 else f"loss of {', '.join(names)}"
        lines[title] = {
            each.name: points(each.records, "loss") if each.name in names else [] for each in subjects
        }
    for name in metric_names([record for subject in subjects for record in subject.records]):
        lines[name] = {subject.name: points(subject.records, name) for subject in subjects}
    return lines


def final_numbers(subjects: Sequence[Subject]) -> Html:
    """A table with a column for each run: final metrics, time and size; the best metrics are marked."""
    measured = [subject.measured for subject in subjects]
    names = ["loss", *metric_names(measured)]
    rows: list[list[object]] = [
        ["epoch", *_marked("epoch", [subject.kept.get("epoch") for subject in subjects])]
    ]
    rows += [[name, *_marked(name, [numbers.get(name) for numbers in measured])] for name in names]
    spent = [subject.seconds for subject in subjects]
    rows.append(["training", *(_ABSENT if seconds is None else duration(seconds) for seconds in spent)])
    rows.append(["parameters", *(f"{sum(subject.parameters.values()):,}" for subject in subjects)])
    remark = note(
        "The epoch whose weights each run has. Marked: the best of a metric."
        " Losses compare only where both documents ask for the same one."
    )
    listed = table(["", *(subject.name for subject in subjects)], rows, numbers=True)
    changed = [note(_origin(subject)) for subject in subjects if subject.is_changed]
    return section("Final metrics", listed, remark, *changed)


def _origin(subject: Subject) -> str:
    """A sentence about the training of a model that was changed since."""
    of_training = f"its epoch, time and curves are those of {subject.final.made_of}"
    return f"{subject.name} is {subject.final.form}: {of_training}. No loss or metric of it is in the log."


def differences(subjects: Sequence[Subject]) -> Html:
    """A table of differing values in documents and machines, with a column for each run."""
    documents = [{**documents_of(subject), "machine": subject.run.machine} for subject in subjects]
    chosen = differing(documents)
    rows: list[list[object]] = []
    for place in dict.fromkeys(place for values in chosen for place in values):
        texts = [as_text(values[place]) if place in values else _ABSENT for values in chosen]
        rows.append([place, *(tag("mark", text) if text != texts[0] else text for text in texts)])
    listed = table(["", *(subject.name for subject in subjects)], rows) if rows else note("No difference.")
    return section("Differences", listed)


def _marked(name: str, values: Sequence[Any]) -> list[object]:
    known = [value for value in values if isinstance(value, int | float)]
    best = max(known) if name.partition("@")[0] in LARGER_IS_BETTER and len(set(known)) > 1 else None
    shown = [_ABSENT if value is None else brief(value) for value in values]
    return [
        tag("mark", text) if best is not None and value == best else text
        for text, value in zip(shown, values, strict=True)
    ]
