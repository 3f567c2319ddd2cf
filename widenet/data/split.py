"""Set aside a random share of every example's entries, or the end of its sequence, for tuning or for the final evaluation."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from widenet import randomness
from widenet.arguments import typed
from widenet.data.buckets import ascending, in_order
from widenet.data.dataset import Dataset
from widenet.data.manifest import PARTS, Field, Part, column, value_column
from widenet.data.rules import FieldLayout
from widenet.data.writer import write_dataset
from widenet.errors import DataError, OptionError
from widenet.plan.machine import available_threads

LARGEST_SEED = 2**63 - 1

_ROWS_AT_ONCE = 1024
"""Few enough for the caches of processors."""

_MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_MIX_SECOND = np.uint64(0x94D049BB133111EB)


@typed
def split(
    source: Dataset | Path | str,
    out: Path | str,
    *,
    heldout: float = 0.0,
    validation: float = 0.0,
    heldout_last: int = 0,
    validation_last: int = 0,
    seed: int = 0,
    field: str = "items",
) -> Dataset:
    """Publish a dataset in which a share of each example's train entries, or the last ones of a sequence, have moved to another part.

    source: a dataset, or its directory. Gives the new one, opened.
    heldout, validation: the shares, in [0, 1), together below 1. Of n entries round(share * n) move, at random; at least
    one stays, so that an example with one entry keeps it. Both shares are of the entries before the split.
    heldout_last, validation_last: of a sequence, how many entries move from its end: the last ones to heldout, those before them to
        validation. Of a short sequence the heldout part gets them first.
    seed: 0 to 2^63 - 1; with the row of the example and the index of the feature it decides alone what moves.
    The vocabulary's counts are those of the entries that stay; the order of features does not change.
    Raises DataError when the part exists already or would be empty, OptionError for a wrong share, number or seed.
    """
    asked: dict[Part, float] = {"heldout": heldout, "validation": validation}
    ends: dict[Part, int] = {"heldout": heldout_last, "validation": validation_last}
    shares = {part: share for part, share in (ends if any(ends.values()) else asked).items() if share}
    _check_asked(asked, ends)
    if not 0 <= seed <= LARGEST_SEED:
        raise OptionError(f"--seed must be 0 to {LARGEST_SEED:,}; got {seed:,}.")
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    known = dataset.field(field)
    check_divisible(dataset.path, known, "sequence" if any(ends.values()) else "sparse", shares)
    check_moves(dataset.path, known, dataset.entry_counts(field, slice(None)), shares)
    parts = tuple(part for part in PARTS if part in known.parts or part in shares)
    layouts = [FieldLayout.of(each) for each in dataset.fields.values()]
    layouts = [replace(layout, parts=parts) if layout.name == field else layout for layout in layouts]
    counts = np.zeros(known.width, dtype=np.int64)
    vocabularies = {
        name: dataset.vocabulary(name).record_batches(counts if name == field else None)
        for name, each in dataset.fields.items()
        if each.vocabulary
    }
    write_dataset(
        Path(out),
        layouts=layouts,
        batches=_divided(dataset, known, shares, seed, counts),
        vocabularies=vocabularies,
        name=dataset.manifest.name,
        has_weights=dataset.manifest.has_weights,
        source={**dataset.manifest.source, "split": {"field": field, "seed": seed, **{part: shares.get(part, 0) for part in asked}}},
    )
    return Dataset.open(out)


def check_divisible(source: Path | str, field: Field, kind: Literal["sparse", "sequence"], parts: Iterable[Part]) -> None:
    """Raise DataError unless a field is of this kind, and has none of the parts that are to be made."""
    if field.kind != kind:
        remedy = "Set its end aside with --heldout-last 1." if field.kind == "sequence" else "Name another --field."
        option = "--heldout-last" if kind == "sequence" else "--heldout and --validation"
        raise DataError(f"{source}: {option} can only divide a {kind} field; {field.name!r} is {field.kind}. {remedy}")
    for part in parts:
        if part in field.parts:
            raise DataError(f"{source}: field {field.name!r} has a {part} part already. Split the dataset that it was made from.")


def check_moves(source: Path | str, field: Field, lengths: np.ndarray, shares: Mapping[Part, float]) -> None:
    """Raise DataError where a part would get none of the entries of examples, lengths int64 [N]. shares: of a sequence, numbers."""
    left = lengths
    for part, share in shares.items():
        moves = _moves(lengths, left, share) if field.kind == "sparse" else np.minimum(int(share), np.maximum(left - 1, 0))
        if not moves.any():
            option, remedy = (f"--{part}", "Give a larger share") if field.kind == "sparse" else (f"--{part}-last", "Give another number")
            none = f"it takes none of {lengths.max(initial=0):,} entries, the most that an example has, of which one stays"
            raise DataError(f"{source}: {option} {share:g} must set something aside; {none}. {remedy}, or leave it out.")
        left = left - moves


def _moves(lengths: np.ndarray, left: np.ndarray, share: float) -> np.ndarray:
    """How many entries of each example a share takes, int64 [N]. left: of `lengths`, what no other share has taken."""
    moves: np.ndarray = np.minimum(np.rint(share * lengths).astype(np.int64), np.maximum(left - 1, 0))
    return moves


def _check_asked(asked: Mapping[Part, float], ends: Mapping[Part, int]) -> None:
    if any(ends.values()):
        if min(ends.values()) < 0:
            raise OptionError(f"--heldout-last and --validation-last must be at least 0; got {min(ends.values())}.")
        if any(asked.values()):
            raise OptionError(
                "--heldout-last and --validation-last are no shares, as --heldout and --validation are. Give one kind of them."
            )
        return
    for part, share in asked.items():
        if not 0 <= share < 1:
            raise OptionError(f"--{part} must be a share in [0, 1); got {share:g}.")
    total = sum(asked.values())
    if not 0 < total < 1:
        raise OptionError(f"--heldout and --validation must add up to more than 0 and less than 1; got {total:g}.")


def _divided(dataset: Dataset, field: Field, shares: Mapping[Part, float], seed: int, counts: np.ndarray) -> Iterator[pa.RecordBatch]:
    """The dataset's record batches with the field's train part divided; adds what stays to `counts`."""

    def divide(task: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
        first_row, batch = task
        return _divided_batch(batch, first_row, field, shares, seed)

    for batch in in_order(divide, _pieces(dataset.record_batches()), available_threads()):
        np.add.at(counts, batch.column(field.name).flatten().to_numpy(), 1)
        yield batch


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of the batches, some at a time, and the number of the first one."""
    first_row = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            piece = batch.slice(start, _ROWS_AT_ONCE)
            yield first_row, piece
            first_row += piece.num_rows


def _divided_batch(batch: pa.RecordBatch, first_row: int, field: Field, shares: Mapping[Part, float], seed: int) -> pa.RecordBatch:
    rows = batch.column(field.name)
    offsets, entries = rows.offsets.to_numpy(), rows.flatten().to_numpy()
    lengths = np.diff(offsets)
    examples = np.repeat(np.arange(batch.num_rows), lengths)
    if field.kind == "sequence":
        owners = _owners_from_end(examples, lengths, shares)
    else:
        owners = _owners(examples, lengths, first_row + examples, entries, shares, seed)
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    values = columns[value_column(field.name)].flatten().to_numpy() if field.has_values else None
    for number, part in enumerate(("train", *shares)):
        chosen = owners == number
        moved_to = np.zeros(batch.num_rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(examples[chosen], minlength=batch.num_rows), out=moved_to[1:])
        columns[column(field.name, part)] = pa.ListArray.from_arrays(pa.array(moved_to), pa.array(entries[chosen]))
        if values is not None:
            columns[value_column(field.name, part)] = pa.ListArray.from_arrays(pa.array(moved_to), pa.array(values[chosen]))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _owners(
    examples: np.ndarray, lengths: np.ndarray, rows: np.ndarray, entries: np.ndarray, shares: Mapping[Part, float], seed: int
) -> np.ndarray:
    """Which part each entry goes to: 0 for train, 1 for the first of `shares`, and so on; int64 [Z]."""
    owners = np.zeros(len(entries), dtype=np.int64)
    left = lengths.copy()
    for number, (part, share) in enumerate(shares.items(), start=1):
        moves = _moves(lengths, left, share)
        candidates = np.flatnonzero(owners == 0)
        keys = _random_keys(seed, f"split/{part}", rows[candidates], entries[candidates])
        by_key = ascending(keys)
        order = by_key[ascending(examples[candidates[by_key]].astype(np.uint64))]
        rank = np.arange(len(candidates)) - np.repeat(np.cumsum(left) - left, left)
        owners[candidates[order[rank < np.repeat(moves, left)]]] = number
        left = left - moves
    return owners


def _owners_from_end(examples: np.ndarray, lengths: np.ndarray, ends: Mapping[Part, float]) -> np.ndarray:
    """As `_owners`, of sequences: `ends` are numbers of entries, taken one part after the other from the end. One entry stays."""
    owners = np.zeros(len(examples), dtype=np.int64)
    from_end = np.repeat(np.cumsum(lengths), lengths) - 1 - np.arange(len(examples))
    may_move = np.repeat(lengths, lengths) - 1 > from_end
    taken = 0
    for number, most in enumerate(ends.values(), start=1):
        owners[may_move & (from_end >= taken) & (from_end < taken + most)] = number
        taken += int(most)
    return owners


def _random_keys(seed: int, purpose: str, rows: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """A random number for each (example, feature), uint64 [Z], the same in any company.

    The finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014),
    once over the row and once over row and feature.
    """
    first, second = randomness.stream(seed, purpose).integers(0, 2**64, size=2, dtype=np.uint64)
    return _mixed(_mixed(rows.astype(np.uint64) ^ first) + entries.astype(np.uint64) ^ second)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX_FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIX_SECOND
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
