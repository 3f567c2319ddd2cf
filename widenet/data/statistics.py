"""Statistics of a dataset: counts, density, and how evenly interactions are spread; does not load torch."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from widenet.arguments import Location, typed
from widenet.data.attributes import Attributes, attributes_file
from widenet.data.described import Described, described_file
from widenet.data.manifest import Field, Manifest, Part, column
from widenet.data.mapped import MappedFile, batches_with, damaged
from widenet.data.vocabulary import Vocabulary
from widenet.errors import OptionError
from widenet.late_imports import optional
from widenet.stores.fetch import readable

QUANTILES = {"min": 0.0, "25%": 0.25, "median": 0.5, "75%": 0.75, "90%": 0.9, "99%": 0.99, "max": 1.0}
PLOTS = (".png", ".svg")


@dataclass(frozen=True)
class Spread:
    """The distribution of a total over examples or features.

    Attributes:
        number: How many there are.
        total: Sum of their counts.
        mean: Mean count.
        quantiles: Quantiles of the counts, by name.
        top_1_percent: Share of the total that the largest 1 % have.
        top_10_percent: Share of the total that the largest 10 % have.
        gini: Gini coefficient; 0 if all have the same count.
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
        """Compute the distribution of counts, int64 [N].

        The quantile of a share is the smallest count c such that at least this share of all counts are at
        most c.
        """
        ascending = np.sort(counts)
        number, total = len(counts), int(counts.sum())

        def top(share: float) -> float:
            return int(ascending[number - math.ceil(share * number) :].sum()) / max(total, 1)

        ranked = int((np.arange(1, number + 1) * ascending).sum())
        positions = {name: max(math.ceil(share * number) - 1, 0) for name, share in QUANTILES.items()}
        return cls(
            number=number,
            total=total,
            mean=total / max(number, 1),
            quantiles={name: int(ascending[at]) if number else 0 for name, at in positions.items()},
            top_1_percent=top(0.01),
            top_10_percent=top(0.1),
            gini=(2 * ranked - (number + 1) * total) / (number * total) if total else 0.0,
        )


@dataclass(frozen=True)
class Counts:
    """Entry counts of a part of a field: of each example, int64 [N], and of each feature, int64 [width]."""

    field: str
    part: Part
    examples: np.ndarray
    features: np.ndarray


def counts(folder: Path, manifest: Manifest) -> Iterator[Counts]:
    """Yield the counts of every part of every field that is not dense.

    Memory holds a number for each example and feature.
    """
    files = [MappedFile(folder / name, manifest.files[name]) for name in manifest.example_files]
    for field in manifest.fields.values():
        for part in field.parts if field.kind != "dense" else ():
            features = np.zeros(field.width, dtype=np.int64)
            lengths = []
            name = column(field.name, part)
            list_type = pa.list_(pa.uint32())
            for file in files:
                for batch in batches_with(file, name, list_type):
                    rows = file.check_batch(batch).column(name)
                    try:
                        rows.validate(full=True)
                        np.add.at(features, rows.flatten().to_numpy(), 1)
                    except (pa.ArrowInvalid, IndexError) as error:
                        raise damaged(folder, str(error)) from error
                    lengths.append(np.diff(rows.offsets.to_numpy()).astype(np.int64))
            yield Counts(field.name, part, np.concatenate([np.zeros(0, dtype=np.int64), *lengths]), features)


@typed
def describe(folder: Location, plot: Path | str | None = None) -> dict[str, Any]:
    """Describe a dataset as JSON values; docs/data.md explains each number.

    Args:
        folder: The dataset directory.
        plot: A .png or .svg file to draw the distributions of the train parts into; needs matplotlib.

    Raises:
        DataError: The directory is not a dataset, or is damaged.
        OptionError: `plot` has another extension, or matplotlib is missing.
    """
    folder, plot = readable(folder, "dataset"), None if plot is None else Path(plot)
    if plot is not None and plot.suffix not in PLOTS:
        raise OptionError(f"`plot` must end in {' or '.join(PLOTS)}; got {plot.name}.")
    manifest = Manifest.read(folder)
    fields: dict[str, Any] = {
        name: _field(folder, manifest, field) for name, field in manifest.fields.items()
    }
    to_draw = []
    for part in counts(folder, manifest):
        cells = manifest.num_examples * manifest.fields[part.field].width
        num_entries = int(part.features.sum())
        fields[part.field]["parts"][part.part] = {
            "entries": num_entries,
            "density": num_entries / max(cells, 1),
            "examples_with_entries": int(np.count_nonzero(part.examples)),
            "features_with_entries": int(np.count_nonzero(part.features)),
            "activity": asdict(Spread.of(part.examples)),
            "popularity": asdict(Spread.of(part.features)),
        }
        if part.part == "train" and plot is not None:
            to_draw.append(part)
    if plot is not None:
        _draw(to_draw, manifest, plot)
    return {
        "name": manifest.name,
        "num_examples": manifest.num_examples,
        "has_weights": manifest.has_weights,
        "fields": fields,
        "source": manifest.source,
    }


def _field(folder: Path, manifest: Manifest, field: Field) -> dict[str, Any]:
    known: dict[str, Any] = {"kind": field.kind, "width": field.width, "has_values": field.has_values}
    known |= {"min_value": field.min_value, "max_value": field.max_value, "parts": {}}
    if field.vocabulary is not None:
        known["titles"] = Vocabulary.open(folder / field.vocabulary).num_titles
    if (file := attributes_file(field.name)) in manifest.files:
        known["attributes"] = dict(Attributes.open(folder / file, field.width).kinds)
    if field.described:
        known["descriptions"] = Described.open(folder / described_file(field.name), field.width).facts
    return known


def _draw(fields: list[Counts], manifest: Manifest, path: Path) -> None:
    """Draw the counts of each field's examples and features in falling order, on logarithmic axes."""
    with optional("matplotlib", "plot"):
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context({"svg.hashsalt": "widenet"}):
        words = manifest.words
        names = words.example, words.feature(*(field.field for field in fields))
        figure = Figure(figsize=(9, 4), layout="constrained")
        panels = figure.subplots(1, 2)
        for panel, axis, said in zip(panels, ("examples", "features"), names, strict=True):
            for field in fields:
                ranked = np.sort(getattr(field, axis))[::-1]
                ranked = ranked[ranked > 0]
                panel.plot(np.arange(1, len(ranked) + 1), ranked, label=field.field)
            panel.set(
                xscale="log",
                yscale="log",
                xlabel=f"{said}s, from the most entries to the fewest",
                ylabel="entries",
                title=f"{manifest.name}: entries of each {said}",
            )
            panel.legend()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else {})
