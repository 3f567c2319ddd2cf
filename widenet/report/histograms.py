"""The section of a report about norms and histograms of layers, epoch by epoch."""

from collections.abc import Mapping, Sequence
from itertools import accumulate

from widenet.pictures.curves import Drawing, curves
from widenet.pictures.html import Html, brief, table, tag
from widenet.pictures.strips import strips
from widenet.report.sections import note, section
from widenet.report.subject import Subject
from widenet.training.histogram_log import GROUPS, Histogram
from widenet.training.log_curves import grid

OfEpochs = Sequence[tuple[int, Histogram]]
"""Histograms of a weight or layer with their epochs, ascending."""

_MOST_COLUMNS, _MOST_POWERS, _MOST_FIGURES, _LABELLED_POWERS = 24, 12, 24, 4

_SAID = {
    "weights": "All trained weights at the end of each epoch.",
    "gradients": "Gradients of the loss in the last step of each epoch; of inputs, in the rows that its batch"
    " touches. Gradients of outputs are known only tile by tile and are not recorded.",
    "activations": "Values of the hidden layers in the last step of each epoch.",
}


def histograms_section(subject: Subject, draw: Drawing = curves) -> Html:
    """Norms as curves, histograms as strips, and both as tables; empty if the run has none."""
    groups = {group: _of_names(subject, group) for group in GROUPS}
    parts = [_group(group, names) for group, names in groups.items() if names]
    if not parts:
        return Html()
    norms = [draw(f"norms of {group}", _norms(names)) for group, names in groups.items() if names]
    said = (
        "A cell counts the numbers between two powers of two: the stronger its colour, the more there are."
        " The row in the middle has zeros and the smallest numbers. All counts are in histograms.jsonl."
    )
    return section("Layers", grid(norms), *parts, note(said))


def _of_names(subject: Subject, group: str) -> Mapping[str, OfEpochs]:
    """Return the histograms of a group by name, in the order of the first line."""
    names: dict[str, list[tuple[int, Histogram]]] = {}
    for epoch, of_groups in sorted(subject.histograms.items()):
        for name, histogram in of_groups.get(group, {}).items():
            names.setdefault(name, []).append((epoch, histogram))
    return names


def _group(group: str, names: Mapping[str, OfEpochs]) -> Html:
    drawn = list(names.items())[:_MOST_FIGURES]
    figures = grid([strip(name, of_epochs) for name, of_epochs in drawn])
    rest = len(names) - len(drawn)
    more = f" The first {len(drawn):,} are drawn, {rest:,} more are in the table." if rest else ""
    summary = tag("summary", group.capitalize())
    return tag(
        "details", summary, tag("p", _SAID[group] + more), figures, _table(names), open=group == GROUPS[0]
    )


def _norms(names: Mapping[str, OfEpochs]) -> dict[str, list[tuple[float, float]]]:
    return {
        name: [(epoch, histogram.norm) for epoch, histogram in of_epochs if histogram.norm is not None]
        for name, of_epochs in list(names.items())[:_MOST_FIGURES]
    }


def strip(name: str, of_epochs: OfEpochs) -> Html:
    """Draw the histograms of at most 24 epochs: positive numbers above, negative ones below."""
    step = -(-len(of_epochs) // _MOST_COLUMNS)
    shown = of_epochs[(len(of_epochs) - 1) % step :: step]
    used = [histogram for _, histogram in shown if histogram.positive]
    top = max((histogram.lowest + len(histogram.positive) for histogram in used), default=0)
    bottom = max(min((histogram.lowest for histogram in used), default=0), top - _MOST_POWERS)
    powers = range(bottom, top)
    above = powers if any(any(histogram.positive) for histogram in used) else range(0)
    below = powers if any(any(histogram.negative) for histogram in used) else range(0)
    labelled = range(top, bottom + 1, -_LABELLED_POWERS)
    edges = {len(above) + 0.5: "0"}
    edges |= {top - power: f"2^{power}" for power in labelled if above}
    edges |= {len(above) + 1 + power - bottom: f"-2^{power}" for power in labelled if below}
    shares = [_shares(histogram, above, below) for _, histogram in shown]
    hints = [f"{name}, epoch {epoch:,}: {_told(histogram)}" for epoch, histogram in shown]
    return strips(name, [epoch for epoch, _ in shown], shares, edges, hints)


def _shares(histogram: Histogram, above: range, below: range) -> list[float]:
    """Return the shares of a column: positive numbers from the largest, small ones, then negative ones."""
    positive = [_at(histogram.positive, power - histogram.lowest) for power in reversed(above)]
    negative = [_at(histogram.negative, power - histogram.lowest) for power in below]
    small = histogram.numbers - sum(positive) - sum(negative)
    return [count / max(histogram.numbers, 1) for count in (*positive, small, *negative)]


def _at(side: Sequence[int], place: int) -> int:
    return side[place] if 0 <= place < len(side) else 0


def _told(histogram: Histogram) -> str:
    return (
        f"norm {_norm(histogram)}, {_share_of_zeros(histogram)} zeros, median magnitude {_median(histogram)}"
    )


def _norm(histogram: Histogram) -> str:
    return "not finite" if histogram.norm is None else brief(histogram.norm)


def _share_of_zeros(histogram: Histogram) -> str:
    return f"{histogram.zeros / max(histogram.numbers, 1):.1%}"


def _median(histogram: Histogram) -> str:
    """Return the powers of two that enclose the median of the magnitudes."""
    bins = [histogram.zeros, *map(sum, zip(histogram.negative, histogram.positive, strict=True))]
    place = next(place for place, count in enumerate(accumulate(bins)) if 2 * count >= histogram.numbers)
    power = histogram.lowest + place
    return f"2^{power - 1} to 2^{power}" if place else "0"


def _table(names: Mapping[str, OfEpochs]) -> Html:
    rows = []
    for name, of_epochs in names.items():
        (_, first), (epoch, last) = of_epochs[0], of_epochs[-1]
        rows.append(
            [
                name,
                f"{last.numbers:,}",
                _norm(first),
                _norm(last),
                f"{epoch:,}",
                _share_of_zeros(last),
                _median(last),
            ]
        )
    header = ["name", "numbers", "first norm", "last norm", "last epoch", "zeros", "median magnitude"]
    return table(header, rows)
