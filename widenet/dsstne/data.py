"""Import of DSSTNE's NetCDF data into a dataset directory."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from widenet.data.manifest import PARTS, Facts, Manifest, Part, column, value_column
from widenet.data.messages import ignore_message
from widenet.data.rules import FieldLayout
from widenet.data.writer import ROWS_PER_BATCH, publication, vocabulary_rows, write_contents
from widenet.dsstne.data_set import Attribute, DataSet
from widenet.dsstne.netcdf import NetcdfFile, read_names, reading
from widenet.errors import CapacityError, DataError, OptionError, nearest
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount

FACTS = "dsstne"
"""Key in the `source` of a dataset's manifest that holds the facts of each DSSTNE data set, by field."""
NUMBERS_PER_BATCH = 2**24
_MAX_DENSE_WIDTH = 2**31 - 1
"""Maximum of numbers per example of a dense field: Arrow's limit for lists of fixed size."""
_COUNT_BYTES, _NAME_BYTES = 8, 32
"""Bytes per feature: its count in memory, and its name on disk at least."""


def import_data(
    sources: Sequence[Path | str],
    out: Path | str,
    *,
    features: Mapping[str, Path | str] | Path | str | None = None,
    samples: Path | str | None = None,
    targets: Sequence[str] = (),
    only: Sequence[str] | None = None,
    name: str | None = None,
    overwrite: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Import all data sets of some NetCDF files as a dataset; each becomes a field of the same name.

    Sparse data sets become sparse fields. Dense Boolean data sets do too, with one feature per example.
    Other dense data sets become dense fields. If FIELD exists, FIELD.validation and FIELD.heldout become its
    parts.

    Numbers become float32. The indices of an example are sorted, and the values of repeated indices are
    added up. Memory holds about 2^24 numbers of each data set, and the names.

    Args:
        sources: The NetCDF files.
        out: The dataset directory to make.
        features: Index file of every sparse field, or index files by field. If an index file names fewer
            features than the data set is wide, the padding is dropped.
        samples: Index file of the examples.
        targets: Data sets that outputs predict. Their dense 8-bit numbers v become v / 256 or v / 128, and
            RGB16 becomes v / 65536. In other data sets, the inputs, unsigned ones become v / 256 - 0.5.
        only: Data sets to import, each with its parts; others are left out. Default: all.
        name: Name of the dataset; the name of the first file if not given.
        overwrite: Whether to replace an earlier dataset at `out`, once the new one is whole.
        on_progress: Receives a line for each phase.

    Returns:
        The manifest of the new dataset.

    Raises:
        DataError: A file breaks a rule; the message names file, data set, rule and value.
        CapacityError: The features do not fit in memory or on disk.
    """
    OptionError.require(sources, "must be at least one NetCDF file", option="sources")
    paths = [Path(source) for source in sources]
    say = on_progress or ignore_message
    with publication(Path(out), overwrite=overwrite) as folder, ExitStack() as stack:
        files = [stack.enter_context(reading(path)) for path in paths]
        say(f"reading {', '.join(path.name for path in paths)} as netcdf")
        sets = [
            DataSet.of(file, number) for file in files for number in range(file.whole("datasets", minimum=1))
        ]
        by_name = {each.name: each for each in sets}
        wanted = by_name if only is None else only
        sets = [each for each in sets if _base(each.name, by_name)[0] in wanted]
        DataError.require(sets, f"must hold one of the data sets {', '.join(wanted)}", place=paths[0])
        _check_sets(sets)
        fields = _fields(sets, features, targets)
        _check_room(fields, folder)
        facts: Facts = {
            "sources": [path.name for path in paths],
            FACTS: {each.layout.name: each.facts() for each in fields},
        }
        names = _example_names(sets[0], None if samples is None else Path(samples))
        say("writing")
        dense = sum(each.layout.width for each in fields if each.layout.kind == "dense")
        return write_contents(
            folder,
            name=name or paths[0].name.split(".")[0],
            layouts=[each.layout for each in fields],
            batches=_batches(fields, sets, names, facts),
            vocabularies={
                each.layout.name: each.vocabulary() for each in fields if each.layout.kind == "sparse"
            },
            has_weights=any(each.attributes & Attribute.WEIGHTED for each in sets),
            source=facts,
            rows_per_batch=max(1, min(ROWS_PER_BATCH, NUMBERS_PER_BATCH // max(1, dense))),
        )


def is_listed_only(manifest: Manifest, name: str) -> bool:
    """Return whether a field's data set had the attribute SparseIgnoreZero.

    DSSTNE then counts only the listed features in the loss.
    """
    facts = manifest.source.get(FACTS)
    known = facts.get(name) if isinstance(facts, dict) else None
    attributes = known.get("attributes") if isinstance(known, dict) else None
    return isinstance(attributes, list) and Attribute.SPARSE_IGNORE_ZERO.name in attributes


@dataclass
class _Field:
    """A field of the new dataset, and the data set of each of its parts.

    Attributes:
        layout: Name, width and kind of the field.
        sets: The data set of each part.
        names: Names of the features, if an index file or the file itself has them.
        is_target: Whether an output predicts the field.
    """

    layout: FieldLayout
    sets: Mapping[Part, DataSet]
    names: Sequence[str] | None
    is_target: bool

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of examples with each feature, among those read so far."""
        return np.zeros(self.layout.width, dtype=np.int64)

    def facts(self) -> Facts:
        """Return the facts of the data set that a dataset does not store otherwise."""
        train = self.sets["train"]
        return {
            "kind": train.kind,
            "data_type": train.data_type,
            "attributes": [each.name for each in Attribute if each & train.attributes],
            "dimensions": list(train.dimensions),
            "is_target": self.is_target,
        }

    def columns(self, start: int, stop: int, facts: Facts) -> Iterator[tuple[str, pa.Array]]:
        """Yield the columns of some examples, and count repeated indices in the facts."""
        if self.layout.kind == "dense":
            numbers = self.sets["train"].dense_rows(start, stop, self.is_target)
            yield self.layout.name, pa.FixedSizeListArray.from_arrays(pa.array(numbers), self.layout.width)
            return
        for part, data_set in self.sets.items():
            rows = data_set.rows(start, stop, self.layout.width)
            offsets = pa.array(np.r_[0, np.cumsum(rows.counts)].astype(np.int32))
            yield column(self.layout.name, part), pa.ListArray.from_arrays(offsets, pa.array(rows.indices))
            if rows.values is not None:
                yield (
                    value_column(self.layout.name, part),
                    pa.ListArray.from_arrays(offsets, pa.array(rows.values)),
                )
            if part == "train":
                np.add.at(self.counts, rows.indices, 1)
            merged = facts.get("repeated_indices_merged", 0)
            assert isinstance(merged, int)
            facts["repeated_indices_merged"] = merged + rows.merged

    def vocabulary(self) -> Iterator[pa.RecordBatch]:
        """Return the names and counts of the features; a feature without a name is called by its index.

        Call it after all examples have been read.
        """
        return vocabulary_rows(self.layout.width, self.names, counts=self.counts)


def _check_sets(sets: Sequence[DataSet]) -> None:
    """Raise DataError unless the sets have different names and equally many examples."""
    first, names = sets[0], [each.name for each in sets]
    for each in sets:
        DataError.require(
            names.count(each.name) <= 1,
            f"the names of data sets must differ; {each.name!r} appears twice",
            place=each.place,
        )
        rule = f"must have as many examples as {first.name!r}, {first.num_examples:,}"
        DataError.require(
            each.num_examples == first.num_examples, rule, place=each.place, value=each.num_examples
        )


def _fields(
    sets: Sequence[DataSet], features: Mapping[str, Path | str] | Path | str | None, targets: Sequence[str]
) -> list[_Field]:
    """Group the data sets into fields of one or more parts."""
    by_name = {each.name: each for each in sets}
    parts_of: dict[str, dict[Part, DataSet]] = {}
    for each in sets:
        base, part = _base(each.name, by_name)
        parts_of.setdefault(base, {})[part] = each
    named = features if isinstance(features, Mapping) else dict.fromkeys(parts_of, features)
    for option, names in (("targets", targets), ("features", named)):
        for name in names:
            if name not in parts_of:
                rule = f'must name data sets; got "{name}".{nearest(name, parts_of)}'
                raise OptionError(rule, option=option)
    return [
        _field(name, _checked_parts(parts), named.get(name), name in targets)
        for name, parts in parts_of.items()
    ]


def _check_room(fields: Sequence[_Field], folder: Path) -> None:
    """Raise CapacityError if a field has more features than memory or disk can hold.

    A damaged file can claim any number of features.
    """
    memory, disk = available_memory(), shutil.disk_usage(folder).free
    for each in (each for each in fields if each.layout.kind == "sparse"):
        width = each.layout.width
        for kind, needed, free in (
            ("memory", _COUNT_BYTES * width, memory),
            ("disk", _NAME_BYTES * width, disk),
        ):
            if free is not None and needed > free:
                rule = f"a width of {width:,} takes {amount(needed)} of {kind}; {amount(free)} are free"
                raise CapacityError(rule, place=each.sets["train"].place)


def _base(name: str, by_name: Mapping[str, DataSet]) -> tuple[str, Part]:
    """Return the field and the part that a data set belongs to."""
    for part in PARTS[1:]:
        base = name.removesuffix(f".{part}")
        if base != name and base in by_name:
            return base, part
    return name, "train"


def _checked_parts(parts: dict[Part, DataSet]) -> dict[Part, DataSet]:
    """Return the parts in their order; raises DataError unless all have the same form."""
    train = parts["train"]
    for each in parts.values():
        forms = [(part.is_sparse, part.has_values, part.dimensions) for part in (train, each)]
        if forms[0] != forms[1] or (len(parts) > 1 and not train.is_sparse):
            raise DataError(
                f"must be sparse as a part of {train.name!r}, and must have the same dimensions and values",
                place=each.place,
            )
    return {part: parts[part] for part in PARTS if part in parts}


def _field(name: str, parts: dict[Part, DataSet], index: Path | str | None, is_target: bool) -> _Field:
    train = parts["train"]
    DataError.require(
        train.is_sparse or train.width <= _MAX_DENSE_WIDTH,
        f"must have at most {_MAX_DENSE_WIDTH:,} numbers per example; got {train.width:,}",
        place=train.place,
    )
    if not train.is_sparse:
        return _Field(FieldLayout(name, train.width, kind="dense"), parts, None, is_target)
    names = _names(train.file, f"indToFeature{train.number}", index)
    width = train.width if names is None else len(names)
    DataError.require(
        width <= train.width,
        f"must name at most the {train.width:,} features of {train.place}",
        place=index,
        value=width,
    )
    return _Field(
        FieldLayout(name, width, parts=tuple(parts), has_values=train.has_values), parts, names, is_target
    )


def _names(file: NetcdfFile, variable: str, index: Path | str | None) -> list[str] | None:
    """Return the names in an index file, or else in a variable of a NetCDF file, if it has it."""
    if index is not None:
        return read_names(Path(index))
    return file.column(variable).texts() if file.has_column(variable) else None


def _example_names(data_set: DataSet, index: Path | None) -> list[str] | None:
    """Return the names of examples from the index file, or from the file's variable samples."""
    names, place = _names(data_set.file, "samples", index), index or data_set.file.path
    if names is not None and len(names) != data_set.num_examples:
        rule = f"must name the {data_set.num_examples:,} examples of {data_set.place}"
        raise DataError(f"{rule}; got {len(names):,} names", place=place)
    return names


def _batches(
    fields: Sequence[_Field], sets: Sequence[DataSet], names: Sequence[str] | None, facts: Facts
) -> Iterator[pa.RecordBatch]:
    """Yield the example columns in record batches that fit in memory."""
    start, num_examples = 0, sets[0].num_examples
    while start < num_examples:
        stop = min(start + ROWS_PER_BATCH, num_examples)
        stop = min(each.fitting(start, stop) for each in sets)
        ids = [str(row) for row in range(start, stop)] if names is None else names[start:stop]
        columns: dict[str, pa.Array] = {"id": pa.array(ids, pa.string())}
        weights = _weights(sets, start, stop)
        if weights is not None:
            columns["weight"] = pa.array(weights)
        for each in fields:
            columns |= each.columns(start, stop, facts)
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
        start = stop


def _weights(sets: Sequence[DataSet], start: int, stop: int) -> NDArray[np.float32] | None:
    """Return the weight of each example; raises DataError if data sets have different weights."""
    weighted = [(each, each.weights(start, stop)) for each in sets if each.attributes & Attribute.WEIGHTED]
    if not weighted:
        return None
    first, weights = weighted[0]
    for each, others in weighted[1:]:
        if not np.array_equal(weights, others):  # type: ignore[arg-type]
            row = int(np.argmax(weights != others))
            rule = f"must weigh every example as {first.name!r} does, since a dataset has one weight for each"
            raise DataError(f"{rule}; example {start + row:,} differs", place=each.place)
    return weights
