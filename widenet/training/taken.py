"""Decides with which weights of an earlier run a network begins: those of the same names and sizes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from widenet.errors import CheckpointError
from widenet.plan.layout import Layout


@dataclass(frozen=True)
class Taken:
    """The weights with which a network begins, and the others.

    Attributes:
        path: The earlier run.
        names: Names of the weights that it has in the same sizes.
        left: Why the others of the network are not among them, by name.
        unused: Names of its weights that the network does not have.
    """

    path: Path
    names: Sequence[str]
    left: Mapping[str, str]
    unused: Sequence[str]

    @classmethod
    def of(cls, path: Path, before: Layout, layout: Layout) -> "Taken":
        """Compare the weights of an earlier run with those of a network; their features may differ.

        Raises:
            CheckpointError: None is equal but biases, or some follow the attributes of features.
        """
        described = next((own for own in layout.weights.values() if own.describes is not None), None)
        if described is not None:
            raise CheckpointError(
                f'{path}: `start_from` does not go with "described_by" of layer "{described.layer}":'
                " attributes of the two datasets are not matched. Train without one of them."
            )
        # Rows that vectors of attributes describe are finished sums, so nothing lacks these vectors.
        own = {name: weight for name, weight in before.weights.items() if weight.describes is None}
        old, new = dict(_sizes(replace(before, weights=own))), dict(_sizes(layout))
        left = {
            name: "not there" if name not in old else f"{_times(old[name])} there, {_times(sizes)} here"
            for name, sizes in new.items()
            if old.get(name) != sizes
        }
        if left and all(name in left for name, weight in layout.weights.items() if weight.columns):
            raise CheckpointError(
                f"{path}: no weight here has the name and the sizes of one of its: {_reasons(left)}. Name a"
                f" run with layers of the same names and sizes, or train {path / 'network.json'}."
            )
        names = [name for name in new if name not in left]
        return cls(path, names, left, [name for name in old if name not in new])

    @property
    def sentence(self) -> str:
        """Which weights begin with those of the run, and which do not."""
        if not self.left and not self.unused:
            return f"{self.path}: all {len(self.names)} weights begin with its."
        count, whole = len(self.names), len(self.names) + len(self.left)
        parts = [f"{self.path}: {count} of {whole} weights begin with its: {_quoted(self.names)}."]
        parts += [f"As initialized: {_reasons(self.left)}."] if self.left else []
        parts += [f"Not used: {_quoted(self.unused)}."] if self.unused else []
        return " ".join(parts)


def _sizes(layout: Layout) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield every weight of a layout with the sizes that must be equal."""
    for name, weight in layout.weights.items():
        has_field = weight.wide and not weight.split
        rows = f"units of {layout.rows_field(weight)}" if has_field else weight.rows
        columns = f"features of {layout.input_field(weight)}" if weight.by_columns else weight.columns
        yield name, (rows,) if weight.columns is None else (rows, columns)


def _reasons(left: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" ({reason})' for name, reason in left.items())


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _times(sizes: Sequence[object]) -> str:
    return " x ".join(map(str, sizes))
