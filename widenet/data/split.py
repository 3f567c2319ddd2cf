"""Splits: set aside a random share of every example's entries, or the last ones, for evaluation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa

from widenet import randomness
from widenet.arguments import IN_STORES, Argument, check_bounds, with_fields_of
from widenet.data.buckets import Rows, ascending, in_order, owners_of
from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import Moment
from widenet.data.manifest import PARTS, Facts, Field, Part, column, time_column, value_column
from widenet.data.rules import FieldLayout
from widenet.data.selection import Selection, ago, is_date, moment, set_aside
from widenet.data.writer import write_dataset
from widenet.errors import DataError, OptionError
from widenet.plan.machine import available_threads

LARGEST_SEED = 2**63 - 1


@dataclass(frozen=True)
class SplitArguments:
    """The arguments of `widenet.split`; raises OptionError for a seed out of bounds."""

    source: Annotated["Dataset | Path | str", Argument("The dataset to split.", form="DIR")]
    out: Annotated[Path | str, IN_STORES, Argument("The dataset directory to make.")]
    _: KW_ONLY
    heldout: Annotated[float, Argument("Share of each user's items set aside for the final evaluation.")] = (
        0.0
    )
    validation: Annotated[float, Argument("Share of each user's items set aside for validation.")] = 0.0
    heldout_last: Annotated[
        int | str | None,
        Argument(
            "Set aside each user's last N items, or all items of the last 7d. See `keep_times`.",
            form="N|DURATION",
        ),
    ] = None
    validation_last: Annotated[
        int | str | None,
        Argument("As `heldout_last`, from the remaining items, for validation.", form="N|DURATION"),
    ] = None
    heldout_since: Annotated[
        Moment | None,
        Argument(
            "Set aside items from this time on: a number, a date, or '7 days' before the newest.", form="TIME"
        ),
    ] = None
    validation_since: Annotated[
        Moment | None, Argument("As `heldout_since`, from the remaining items, for validation.", form="TIME")
    ] = None
    seed: Annotated[int, Argument("Seed of the random choice.", at_least=0, at_most=LARGEST_SEED)] = 0
    field: Annotated[str, Argument("The field to split.")] = "items"
    overwrite: Annotated[
        bool, Argument("Replace an earlier dataset at `out`, once the new one is whole.")
    ] = False

    def __post_init__(self) -> None:
        check_bounds(self)


def selection_by_time(
    dataset: Dataset, field: Field, last: Mapping[Part, int], start: Mapping[Part, Moment]
) -> Selection:
    """Select the entries to move by time or by the order of a sequence.

    Raises:
        DataError: The field has neither times nor an order, or has one of the parts already.
    """
    if field.kind == "dense":
        raise DataError(f"{dataset.path}: `heldout_last` cannot divide a dense field; {field.name!r} is one.")
    needs_times = [f"`{part}_since` or a duration as `{part}_last`" for part in start] or (
        [] if field.kind == "sequence" else [f"`{part}_last`" for part in last]
    )
    if needs_times and not field.has_times:
        raise DataError(f"{dataset.path}: {needs_times[0]} needs times; field {field.name!r} has none.")
    relative = {
        f"{part}_since": seconds for part, since in start.items() if (seconds := ago(since)) is not None
    }
    dates = [f"{part}_since" for part, since in start.items() if is_date(since)]
    moments = {part: moment(f"{part}_since", since, 0) for part, since in start.items()}
    is_sequence = field.kind == "sequence"
    selection = Selection(last=last, from_time=moments, sequence=is_sequence, dates=dates, ago=relative)
    check_new(dataset.path, field, selection.divided)
    if dates:
        times = (
            batch.column(time_column(field.name)).flatten().to_numpy() for batch in dataset.record_batches()
        )
        latest = max((float(time.max()) for time in times if len(time)), default=0.0)
        selection.check_seconds(latest, str(dataset.path))
        return selection.resolved(latest)
    return selection


def owners_by_time(batch: pa.RecordBatch, field: Field, selection: Selection) -> np.ndarray:
    """The part of each entry, int64 [Z]: 0 for train, 1 for the first of `selection.divided`, and so on."""
    entries = batch.column(field.name).flatten().to_numpy()
    time = batch.column(time_column(field.name)).flatten().to_numpy() if field.has_times else None
    key = examples_of(batch, field).astype(np.uint64) << np.uint64(32) | entries.astype(np.uint64)
    return owners_of(Rows(key, time=time), selection)


def examples_of(batch: pa.RecordBatch, field: Field) -> np.ndarray:
    """For each entry of the field's train part, its row in the batch, int64 [Z]."""
    return np.repeat(np.arange(batch.num_rows), np.diff(batch.column(field.name).offsets.to_numpy()))


def check_new(source: Path | str, field: Field, parts: Iterable[Part]) -> None:
    """Raise DataError if a field has one of these parts already."""
    for part in parts:
        if part in field.parts:
            raise DataError(f"{source}: field {field.name!r} has a {part} part already.")


Divide = Callable[[int, pa.RecordBatch], np.ndarray]
"""Gives the part of each entry of a record batch, from the number of its first row and the batch."""

_ROWS_AT_ONCE = 1024
"""Rows of a piece, few enough for the CPU's caches."""

_MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_MIX_SECOND = np.uint64(0x94D049BB133111EB)


@with_fields_of(SplitArguments, Dataset)
def split(arguments: SplitArguments) -> Dataset:
    """Make a dataset of another in which some of each example's train entries have moved to other parts.

    Either shares of the entries move, at random, or the last entries. At least one entry of every example
    stays in the train part. The vocabulary then counts the entries that stay; the order of features does not
    change.

    Shares are in [0, 1), and together below 1. Of n entries, round(share * n) move. The seed, the row of the
    example and the index of the feature decide which ones.

    The last entries are those at the end of a sequence, or the newest by the times that
    `ingest(keep_times=True)` stored. A duration such as "7d" counts back from the newest entry of all. The
    validation part comes before the heldout part.

    Returns:
        The new dataset, opened.

    Raises:
        DataError: A part exists already or would be empty, or `out` may not be replaced.
        OptionError: A share, number, time or seed is invalid.
    """
    source, field = arguments.source, arguments.field
    requested: dict[Part, float] = {"heldout": arguments.heldout, "validation": arguments.validation}
    shares = {part: share for part, share in requested.items() if share}
    last, start = set_aside(
        arguments.heldout_last,
        arguments.validation_last,
        arguments.heldout_since,
        arguments.validation_since,
    )
    by_time = bool(start or last)
    _check_shares(requested, by_time)
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    known = dataset.field(field)
    if by_time:
        moved, facts, divide = _by_time(dataset, known, last, start)
    else:
        check_divisible(dataset.path, known, shares)
        check_moves(dataset.path, dataset.entry_counts(field, slice(None)), shares)
        moved, facts = tuple(shares), {part: shares.get(part, 0) for part in requested}
        divide = partial(_random_owners, field=known, shares=shares, seed=arguments.seed)
    facts = {"field": field, "seed": arguments.seed, **facts}
    return _published(dataset, known, moved, divide, facts, arguments.out, arguments.overwrite)


def set_all_aside(dataset: Dataset, field: str, out: Path | str, overwrite: bool) -> Dataset:
    """Publish a dataset in which all train entries of a field have moved to its heldout part."""

    def divide(first_row: int, batch: pa.RecordBatch) -> np.ndarray:  # noqa: ARG001
        return np.ones(len(examples_of(batch, known)), dtype=np.int64)

    known = dataset.field(field)
    facts: Facts = {"field": field, "heldout": 1, "validation": 0}
    return _published(dataset, known, ("heldout",), divide, facts, out, overwrite)


def _published(
    dataset: Dataset,
    field: Field,
    moved: Sequence[Part],
    divide: Divide,
    facts: Facts,
    out: Path | str,
    overwrite: bool,
) -> Dataset:
    """Write and open a dataset whose train entries of a field are divided; `facts` go into its manifest."""
    counts = np.zeros(field.width, dtype=np.int64)
    write_dataset(
        Path(out),
        layouts=_layouts(dataset, field, moved),
        batches=_divided(dataset, field, moved, divide, counts),
        vocabularies=_vocabularies(dataset, field.name, counts),
        name=dataset.manifest.name,
        has_weights=dataset.manifest.has_weights,
        source={**dataset.manifest.source, "split": facts},
        overwrite=overwrite,
        beside=dataset.beside,
    )
    return Dataset.open(out)


def _layouts(dataset: Dataset, field: Field, moved: Sequence[Part]) -> list[FieldLayout]:
    """The layouts of all fields; that of the split field has the new parts too."""
    parts = tuple(part for part in PARTS if part in field.parts or part in moved)
    layouts = [FieldLayout.of(existing) for existing in dataset.fields.values()]
    return [replace(layout, parts=parts) if layout.name == field.name else layout for layout in layouts]


def _vocabularies(dataset: Dataset, field: str, counts: np.ndarray) -> dict[str, Iterator[pa.RecordBatch]]:
    """The vocabularies of all fields; that of the split field with `counts`, read after they are filled."""
    named = [name for name, other in dataset.fields.items() if other.vocabulary]
    return {
        name: dataset.vocabulary(name).record_batches(counts if name == field else None) for name in named
    }


def check_divisible(source: Path | str, field: Field, parts: Iterable[Part]) -> None:
    """Raise DataError unless a field is sparse and has none of the new parts."""
    if field.kind != "sparse":
        rule = f"`heldout` and `validation` can only divide a sparse field; {field.name!r} is {field.kind}"
        raise DataError(f"{source}: {rule}.")
    check_new(source, field, parts)


def check_moves(source: Path | str, lengths: np.ndarray, shares: Mapping[Part, float]) -> None:
    """Raise DataError if a part would get no entry; `lengths` are the examples' entry counts, int64 [N]."""
    left = lengths
    for part, share in shares.items():
        moving = num_moving(lengths, left, share)
        if not moving.any():
            raise _nothing_moves(source, f"`{part}={share:g}`", lengths)
        left = left - moving


def _nothing_moves(source: Path | str, option: str, lengths: np.ndarray) -> DataError:
    reason = f"no user has enough items: the most is {lengths.max(initial=0):,}, and one must stay"
    return DataError(f"{source}: {option} must set something aside; {reason}.")


def _by_time(
    dataset: Dataset, field: Field, last: Mapping[Part, int], start: Mapping[Part, Moment]
) -> tuple[tuple[Part, ...], Facts, Divide]:
    """The new parts of a split by time, its facts for the manifest, and the function that divides a batch.

    Raises what `split` raises.
    """
    selection = selection_by_time(dataset, field, last, start)
    facts: Facts = {f"{part}_since": at for part, at in selection.from_time.items()}
    facts |= {str(part): number for part, number in selection.last.items()}

    def divide(first_row: int, batch: pa.RecordBatch) -> np.ndarray:  # noqa: ARG001
        return owners_by_time(batch, field, selection)

    _check_moves_by_time(dataset, field, selection, start, divide)
    return selection.divided, facts, divide


def _check_moves_by_time(
    dataset: Dataset, field: Field, selection: Selection, start: Mapping[Part, Moment], divide: "Divide"
) -> None:
    """Raise DataError if a part would get no entry, or training would keep none."""
    counts = np.zeros(len(selection.divided) + 1, dtype=np.int64)
    for first_row, piece in _pieces(dataset.record_batches()):
        counts += np.bincount(divide(first_row, piece), minlength=len(counts))
    for part, count in zip(selection.divided, counts[1:], strict=True):
        if not count and part in selection.last:
            lengths = dataset.entry_counts(field.name, slice(None))
            raise _nothing_moves(dataset.path, f"`{part}_last={selection.last[part]}`", lengths)
        if not count:
            rule = f"`{part}_since={start[part]!r}` must set something aside"
            raise DataError(f"{dataset.path}: {rule}; no remaining interaction is that late.")
    if not counts[0]:
        raise DataError(f"{dataset.path}: at least one interaction must be left for training.")


def num_moving(lengths: np.ndarray, left: np.ndarray, share: float) -> np.ndarray:
    """Return the number of entries of each example that a share takes, int64 [N].

    Args:
        lengths: Entries of each example before the split, int64 [N].
        left: Entries that no other share has taken, int64 [N].
        share: The share.
    """
    moves: np.ndarray = np.minimum(np.rint(share * lengths).astype(np.int64), np.maximum(left - 1, 0))
    return moves


def _check_shares(shares: Mapping[Part, float], by_time: bool) -> None:
    """Raise OptionError for invalid shares, or for shares and times together."""
    if by_time:
        if any(shares.values()):
            raise OptionError("`heldout` and `validation` are shares, which exclude numbers and times.")
        return
    for part, share in shares.items():
        if not 0 <= share < 1:
            raise OptionError("must be a share in [0, 1)", option=part, value=share)
    total = sum(shares.values())
    if not 0 < total < 1:
        raise OptionError(
            f"`heldout` and `validation` must add up to more than 0 and less than 1; got {total:g}."
        )


def _divided(
    dataset: Dataset, field: Field, parts: Sequence[Part], divide: Divide, counts: np.ndarray
) -> Iterator[pa.RecordBatch]:
    """Yield the dataset's batches with the field's train part split; counts the entries that stay."""

    def work(piece: tuple[int, pa.RecordBatch]) -> pa.RecordBatch:
        return _divided_batch(piece[1], divide(*piece), field, parts)

    for batch in in_order(work, _pieces(dataset.record_batches()), available_threads()):
        np.add.at(counts, batch.column(field.name).flatten().to_numpy(), 1)
        yield batch


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield pieces of the batches, each with the number of its first row."""
    first_row = 0
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            piece = batch.slice(start, _ROWS_AT_ONCE)
            yield first_row, piece
            first_row += piece.num_rows


def _divided_batch(
    batch: pa.RecordBatch, owners: np.ndarray, field: Field, parts: Sequence[Part]
) -> pa.RecordBatch:
    """Split the field's train part in a record batch.

    Args:
        batch: The batch.
        owners: The part of each entry, int64 [Z]: 0 for train, 1 for the first of `parts`, and so on.
        field: The field.
        parts: The new parts.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    column_names = [column]
    column_names += [value_column] if field.has_values else []
    column_names += [time_column] if field.has_times else []
    entries = {name_of: columns[name_of(field.name)].flatten().to_numpy() for name_of in column_names}
    examples = examples_of(batch, field)
    for number, part in enumerate(("train", *parts)):
        chosen = owners == number
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(examples[chosen], minlength=batch.num_rows), out=offsets[1:])
        for name_of, values in entries.items():
            lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[chosen]))
            columns[name_of(field.name, part)] = lists
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _random_owners(
    first_row: int, batch: pa.RecordBatch, field: Field, shares: Mapping[Part, float], seed: int
) -> np.ndarray:
    """As `owners_by_time`, at random."""
    examples = examples_of(batch, field)
    lengths = np.bincount(examples, minlength=batch.num_rows)
    entries = batch.column(field.name).flatten().to_numpy()
    return _owners(examples, lengths, first_row + examples, entries, shares, seed)


def _owners(
    examples: np.ndarray,
    lengths: np.ndarray,
    rows: np.ndarray,
    entries: np.ndarray,
    shares: Mapping[Part, float],
    seed: int,
) -> np.ndarray:
    """The part of each entry, int64 [Z]: 0 for train, 1 for the first of `shares`, and so on."""
    owners = np.zeros(len(entries), dtype=np.int64)
    left = lengths.copy()
    for number, (part, share) in enumerate(shares.items(), start=1):
        moves = num_moving(lengths, left, share)
        candidates = np.flatnonzero(owners == 0)
        keys = _random_keys(seed, f"split/{part}", rows[candidates], entries[candidates])
        by_key = ascending(keys)
        order = by_key[ascending(examples[candidates[by_key]].astype(np.uint64))]
        rank = np.arange(len(candidates)) - np.repeat(np.cumsum(left) - left, left)
        owners[candidates[order[rank < np.repeat(moves, left)]]] = number
        left = left - moves
    return owners


def _random_keys(seed: int, purpose: str, rows: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """A random number for each (example, feature), uint64 [Z], which depends on no other pair.

    It applies the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014) to the row, and then to row and feature.
    """
    first, second = randomness.stream(seed, purpose).integers(0, 2**64, size=2, dtype=np.uint64)
    return _mixed(_mixed(rows.astype(np.uint64) ^ first) + entries.astype(np.uint64) ^ second)


def _mixed(numbers: np.ndarray) -> np.ndarray:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * _MIX_FIRST
    numbers = (numbers ^ (numbers >> np.uint64(27))) * _MIX_SECOND
    mixed: np.ndarray = numbers ^ (numbers >> np.uint64(31))
    return mixed
