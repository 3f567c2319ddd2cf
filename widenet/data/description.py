"""What a dataset is like: how many, how wide, how dense, and how unevenly interactions are spread; loads
no torch.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from widenet.arguments import typed
from widenet.data.manifest import Field, Manifest, Part, column
from widenet.data.mapped import MappedFile, batches_with, damaged
from widenet.errors import OptionError
from widenet.optional import optional

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}
PLOTS = (".png", ".svg")


@dataclass(frozen=True)
class Spread:
    """How some things share a total: `quantiles` of what one has; the share of the top 1 % and 10 %; Gini,
    0 if all have the same.
    """

    number: int
    total: int
    mean: float
    quantiles: dict[str, int]
    top_1_percent: float
    top_10_percent: float
    gini: float

    @classmethod
    def of(cls, counts: np.ndarray) -> "Spread":
        """That of counts, int64 [N]; a quantile is the smallest count that so large a share does not
        exceed.
        """
        ascending = np.sort(counts)
        number, total = len(counts), int(counts.sum())

        def top(share: float) -> float:
            return int(ascending[number - math.ceil(share * number) :].sum()) / max(total, 1)

        ranked = int((np.arange(1, number + 1) * ascending).sum())
        return cls(
            number=number,
            total=total,
            mean=total / max(number, 1),
            quantiles={
                name: int(ascending[max(math.ceil(share * number) - 1, 0)]) if number else 0
                for name, share in QUANTILES.items()
            },
            top_1_percent=top(0.01),
            top_10_percent=top(0.1),
            gini=(2 * ranked - (number + 1) * total) / (number * total) if total else 0.0,
        )


@dataclass(frozen=True)
class Counts:
    """One part of a field: how many entries each example has, int64 [N], and each feature, int64 [width]."""

    field: str
    part: Part
    examples: np.ndarray
    features: np.ndarray


def counts(folder: Path, manifest: Manifest) -> Iterator[Counts]:
    """The counts of every part of every field but dense ones; memory holds a number for each example and
    feature.
    """
    files = [MappedFile(folder / name, manifest.files[name]) for name in manifest.example_files]
    for field in manifest.fields.values():
        for part in field.parts if field.kind != "dense" else ():
            features = np.zeros(field.width, dtype=np.int64)
            lengths = []
            name = column(field.name, part)
            for owner, batch in (
                (file, batch) for file in files for batch in batches_with(file, name, pa.list_(pa.uint32()))
            ):
                rows = owner.check_batch(batch).column(name)
                try:
                    rows.validate(full=True)
                    np.add.at(features, rows.flatten().to_numpy(), 1)
                except (pa.ArrowInvalid, IndexError) as error:
                    raise damaged(folder, str(error)) from error
                lengths.append(np.diff(rows.offsets.to_numpy()).astype(np.int64))
            yield Counts(field.name, part, np.concatenate([np.zeros(0, dtype=np.int64), *lengths]), features)


@typed
def describe(folder: Path | str, plot: Path | str | None = None) -> dict[str, Any]:
    """What a dataset directory holds, as JSON has it; docs/data.md says what each number is.

    plot: a .png or .svg file for the distributions of the train parts; needs matplotlib. Raises DataError
    when the directory is no dataset, OptionError for another kind of plot or where matplotlib is missing.
    """
    folder, plot = Path(folder), None if plot is None else Path(plot)
    if plot is not None and plot.suffix not in PLOTS:
        raise OptionError(f"`plot` must end in {' or '.join(PLOTS)}; got {plot.name}.")
    manifest = Manifest.read(folder)
    fields: dict[str, Any] = {name: _field(field) for name, field in manifest.fields.items()}
    drawn = []
    for found in counts(folder, manifest):
        cells = manifest.num_examples * manifest.fields[found.field].width
        fields[found.field]["parts"][found.part] = {
            "entries": int(found.features.sum()),
            "density": int(found.features.sum()) / max(cells, 1),
            "examples_with_entries": int(np.count_nonzero(found.examples)),
            "features_with_entries": int(np.count_nonzero(found.features)),
            "activity": asdict(Spread.of(found.examples)),
            "popularity": asdict(Spread.of(found.features)),
        }
        drawn += [found] if found.part == "train" and plot is not None else []
    if plot is not None:
        _draw(drawn, manifest.name, plot)
    known = {
        "name": manifest.name,
        "num_examples": manifest.num_examples,
        "has_weights": manifest.has_weights,
    }
    return {**known, "fields": fields, "source": manifest.source}


def _field(field: Field) -> dict[str, Any]:
    known = {"kind": field.kind, "width": field.width, "has_values": field.has_values}
    return {**known, "min_value": field.min_value, "max_value": field.max_value, "parts": {}}


def _draw(drawn: list[Counts], name: str, path: Path) -> None:
    """Two curves for each field: what an example has, and a feature, from the most to the least; both axes
    logarithmic.
    """
    with optional("matplotlib", "plot"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context({"svg.hashsalt": "widenet"}):
        figure = Figure(figsize=(9, 4), layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, what in zip(panels, ("examples", "features"), strict=True):
            for found in drawn:
                ranked = np.sort(getattr(found, what))[::-1]
                ranked = ranked[ranked > 0]
                panel.plot(np.arange(1, len(ranked) + 1), ranked, label=found.field)
            panel.set(
                xscale="log",
                yscale="log",
                xlabel=f"{what}, from the most entries to the fewest",
                ylabel="entries",
                title=name,
            )
            panel.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
