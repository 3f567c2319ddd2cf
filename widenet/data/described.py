"""Descriptions of items for networks: categories with a vocabulary of their own, and numbers.

A single Arrow file has a column for each description and a row for each feature: a list of categories, by
index, or numbers of a fixed count. Its schema's metadata names the categories, and how numbers were
normalized.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from widenet.data.attributes import Attributes
from widenet.data.vocabulary import open_table
from widenet.errors import DataError, damage_of
from widenet.plan.numbers import decimal

if TYPE_CHECKING:  # a split reads no batch, and torch takes seconds to load
    from widenet.sparse import SparseBatch

_FACTS = b"descriptions"


def described_file(field: str) -> str:
    """File name of the descriptions of a field's features."""
    return f"{field}.described.arrow"


class Described:
    """The descriptions of a field's features, by index.

    Attributes:
        path: The file.
        widths: Number of attributes of each description, by name: its categories, or its numbers.
        categories: The categories of each description that has some, by name, in order.
        facts: By name, for people and JSON: the number of categories, or the columns of numbers with their
            mean and deviation if they were normalized.
    """

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path, self._table = path, table
        facts = json.loads(table.schema.metadata[_FACTS])
        self.categories: dict[str, list[str]] = {
            name: own["categories"] for name, own in facts.items() if "categories" in own
        }
        self.facts: dict[str, dict[str, Any]] = {
            name: own | {"categories": len(own["categories"])} if "categories" in own else own
            for name, own in facts.items()
        }
        self.widths = {
            name: len(self.categories[name])
            if name in self.categories
            else int(table.schema.field(name).type.list_size)
            for name in table.schema.names
        }

    @classmethod
    def open(cls, path: Path, num_features: int, sha256: str | None = None) -> "Described":
        """Open and check the descriptions in a file.

        Args:
            path: The file.
            num_features: Number of features.
            sha256: The file's SHA-256, if it is known.

        Raises:
            DataError: The file is missing, damaged, or does not describe so many features.
        """
        table = open_table(path, "file of descriptions", sha256)
        try:
            described = cls(path, table)
            for name in table.schema.names:
                described._check(name)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            rule = "must hold descriptions of features; it is damaged"
            raise DataError(f"{path}: {rule}: {damage_of(error)}.") from None
        if table.num_rows != num_features:
            raise DataError(f"{path}: must describe {num_features:,} features; got {table.num_rows:,}.")
        return described

    def _check(self, name: str) -> None:
        """Raise ValueError if the entries of a description are not those of its kind."""
        width, facts, column = self.widths[name], self.facts[name], self._table.column(name)
        entries = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
        if name in self.categories:
            kind, is_sound = pa.list_(pa.uint32()), entries.max(initial=0) < width
        else:
            kind = pa.list_(pa.float32(), width)
            lists = [facts["columns"], *(facts[each] for each in ("mean", "deviation") if "mean" in facts)]
            is_sound = all(isinstance(each, list) and len(each) == width for each in lists)
        if column.type != kind or column.null_count or not is_sound or not np.isfinite(entries).all():
            raise ValueError(name)

    def rows(self, names: Sequence[str]) -> "SparseBatch":
        """The attributes of every feature, over those of some descriptions one after the other.

        A category has the value 1; numbers that are zero are left out.
        """
        owners, indices, values, first = [], [], [], 0
        for name in names:
            column = self._table.column(name).combine_chunks()
            entries = column.flatten().to_numpy(zero_copy_only=False)
            if name in self.categories:
                owners.append(pc.list_parent_indices(column).to_numpy())
                indices.append(entries.astype(np.int64) + first)
                values.append(np.ones(len(entries), dtype=np.float32))
            else:
                numbers = entries.reshape(self._table.num_rows, -1)
                rows, places = np.nonzero(numbers)
                owners.append(rows)
                indices.append(places + first)
                values.append(numbers[rows, places])
            first += self.widths[name]
        order = np.argsort(np.concatenate(owners), kind="stable")
        counts = np.bincount(np.concatenate(owners), minlength=self._table.num_rows)
        return _batch(counts, np.concatenate(indices)[order], np.concatenate(values)[order])


def lines_of(facts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line about each description, from `Described.facts`."""

    def text(value: Any) -> str:
        return f"{value:.6g}" if isinstance(value, float) else str(value)

    def line(own: Mapping[str, Any]) -> str:
        return "; ".join(
            f"{what} {', '.join(map(text, value)) if isinstance(value, list) else text(value)}"
            for what, value in own.items()
        )

    return [f"{name}: {line(own)}" for name, own in facts.items()]


def _batch(counts: np.ndarray, indices: np.ndarray, values: np.ndarray) -> "SparseBatch":
    import torch

    from widenet.sparse import SparseBatch

    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return SparseBatch(indptr, torch.from_numpy(indices), torch.from_numpy(values.astype(np.float32)))


def write_descriptions(
    path: Path,
    attributes: Attributes,
    sparse: Mapping[str, str],
    dense: Mapping[str, Sequence[str]],
    counts: np.ndarray | None,
    place: str,
) -> Described:
    """Write descriptions made of attributes.

    Args:
        path: The file to write.
        attributes: The attributes of all features.
        sparse: Names of descriptions by categories, each with its attribute.
        dense: Names of descriptions by numbers, each with its attributes.
        counts: Training interactions of each feature, to normalize numbers over the features that have some;
            None leaves numbers as they are.
        place: Name of the source of items, for messages.

    Returns:
        The descriptions.

    Raises:
        DataError: An attribute has no categories or no numbers, or those beyond float32.
    """
    columns, facts = {}, {}
    for name, attribute in sparse.items():
        columns[name], facts[name] = _categories(attributes, attribute, place)
    for name, named in dense.items():
        numbers = np.stack([_numbers(attributes, attribute, place) for attribute in named], axis=1)
        _check_range(numbers, named, place, "")
        facts[name] = {"columns": list(named)}
        if counts is not None:
            mean, deviation = normalization(numbers[counts > 0])
            numbers = (numbers - np.array(mean)) / np.array(deviation)
            _check_range(numbers, named, place, " once normalized")
            facts[name] |= {"mean": mean, "deviation": deviation}
        flat = pa.array(np.nan_to_num(numbers).astype(np.float32).ravel())
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, len(named))
    table = pa.table(columns).replace_schema_metadata({_FACTS: json.dumps(facts)})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return Described(path, table)


def normalization(numbers: NDArray[np.float64]) -> tuple[list[float], list[float]]:
    """Return mean and standard deviation of each column of rows [N, C] in the range of float32.

    NaN are left out, and the deviation of a constant column is 1. Sums are exact and rounded once, so the
    order of the rows does not count.
    """
    mean, deviation = [], []
    for column in numbers.T:
        known = column[~np.isnan(column)].tolist()
        center = math.fsum(known) / max(1, len(known))
        center = min(max(center, min(known, default=0.0)), max(known, default=0.0))  # although rounded
        spread = math.sqrt(math.fsum((each - center) ** 2 for each in known) / max(1, len(known)))
        mean.append(center)
        deviation.append(spread or 1.0)
    return mean, deviation


def _categories(attributes: Attributes, name: str, place: str) -> tuple[pa.Array, dict[str, Any]]:
    """The categories of each feature by index, and their names: those of most features first."""
    attributes.check(name)
    owners, values = attributes.entries(name)
    entries = pa.table({"owner": owners, "text": values.cast(pa.string())})
    pairs = entries.filter(pc.field("text") != "").group_by(["owner", "text"]).aggregate([])
    if not len(pairs):
        rule = "must hold a category for at least one item; it is empty"
        raise DataError(rule, place=place, column=name)
    counts = pairs.group_by("text").aggregate([("owner", "count")])
    names = counts.sort_by([("owner_count", "descending"), ("text", "ascending")])["text"]
    pairs = pairs.append_column("index", pc.index_in(pairs["text"], value_set=names).cast(pa.uint32()))
    pairs = pairs.sort_by([("owner", "ascending"), ("index", "ascending")]).combine_chunks()
    lengths = np.bincount(pairs["owner"].to_numpy(), minlength=len(attributes))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    listed = pa.ListArray.from_arrays(pa.array(offsets), pa.array(pairs["index"].to_numpy()))
    return listed, {"categories": names.to_pylist()}


def _numbers(attributes: Attributes, name: str, place: str) -> np.ndarray:
    """The numbers of an attribute, float64, NaN where there is none."""
    column = attributes.table.column(name).combine_chunks()
    if attributes.kinds[name] not in ("number", "boolean"):
        texts = [str(each) for each in column.drop_null().to_pylist()]
        wrong = next((text for text in texts if decimal(text) is None), "nothing")
        raise DataError("must hold numbers", place=place, column=name, value=wrong)
    numbers: np.ndarray = pc.fill_null(column.cast(pa.float64()), float("nan")).to_numpy()
    return numbers


def _check_range(numbers: np.ndarray, names: Sequence[str], place: str, when: str) -> None:
    """Raise DataError if one of the numbers [N, C] of columns is none in float32."""
    with np.errstate(over="ignore"):
        beyond = np.argwhere(np.isinf(numbers.astype(np.float32)))
    if len(beyond):
        row, column = beyond[0]
        rule = f"must hold numbers between -3.4e+38 and 3.4e+38{when}"
        raise DataError(rule, place=place, column=names[column], value=float(numbers[row, column]))
