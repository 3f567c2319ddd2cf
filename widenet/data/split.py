"""Splits: set aside a random share of every example's entries, the last ones, or whole users."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa

from widenet import randomness
from widenet.arguments import IN_STORES, Argument, check_bounds, typed, with_fields_of
from widenet.data.buckets import Rows, ascending, in_order, owners_of
from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import Moment
from widenet.data.manifest import PARTS, Facts, Field, Part, column, time_column, value_column
from widenet.data.rules import FieldLayout
from widenet.data.selection import Selection, selection_of
from widenet.data.writer import check_free, publication, write_contents
from widenet.errors import DataError, OptionError
from widenet.plan.machine import available_threads

LARGEST_SEED = 2**63 - 1
_ROWS_AT_ONCE = 1024
"""Rows of a piece, few enough for the CPU's caches."""

_MIX_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_MIX_SECOND = np.uint64(0x94D049BB133111EB)


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
        int | None,
        Argument("Set aside each user's last N items. See `keep_times`.", form="N", at_least=1),
    ] = None
    validation_last: Annotated[
        int | None,
        Argument("As `heldout_last`, from the remaining items, for validation.", form="N", at_least=1),
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


@dataclass(frozen=True)
class _Division:
    """How the train entries of a field are divided.

    Attributes:
        field: The field.
        options: The new parts, those that take first before others, each with the option that makes it.
        owners: Gives the part of each entry of a record batch, int64 [Z], from the number of its first row: 0
            for train, 1 for the first of `options`, and so on.
        facts: What the manifest says about it.
        leaves_some: Whether the train part must keep an entry.
    """

    field: Field
    options: Mapping[Part, str]
    owners: Callable[[int, pa.RecordBatch], np.ndarray]
    facts: Facts
    leaves_some: bool = True

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts, by their numbers."""
        return ("train", *self.options)


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
    source, seed = arguments.source, arguments.seed
    shares: dict[Part, float] = {"heldout": arguments.heldout, "validation": arguments.validation}
    selection = selection_of(arguments)
    if not selection.divided:
        _check_shares(shares)
    elif any(shares.values()):
        raise OptionError("is a share, which excludes numbers and times", option="heldout")
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    field = dataset.field(arguments.field)
    if selection.divided:
        division = _by_time(dataset, field, replace(selection, sequence=field.kind == "sequence"), seed)
    else:
        division = _at_random(dataset, field, shares, seed)
    with publication(Path(arguments.out), overwrite=arguments.overwrite) as folder:
        _write(folder, dataset, {"split": division.facts}, division)
    return Dataset.open(arguments.out)


def _check_shares(shares: Mapping[Part, float]) -> None:
    """Raise OptionError for invalid shares."""
    for part, share in shares.items():
        OptionError.require(0 <= share < 1, "must be a share in [0, 1)", option=part, value=share)
    total = sum(shares.values())
    rule = "and `validation` must add up to more than 0 and less than 1"
    OptionError.require(0 < total < 1, rule, option="heldout", value=total)


def _check_new(dataset: Dataset, field: Field, parts: Iterable[Part]) -> None:
    """Raise DataError if a field has one of these parts already."""
    for part in parts:
        rule = f"has a {part} part already"
        DataError.require(part not in field.parts, rule, place=f"{dataset.path}: fields.{field.name}")


def _at_random(dataset: Dataset, field: Field, shares: Mapping[Part, float], seed: int) -> _Division:
    """Divide a sparse field by shares, which are 0 for a part that is not made."""
    place, rule = f"{dataset.path}: fields.{field.name}", "must be sparse to be divided by shares"
    DataError.require(field.kind == "sparse", rule, place=place, value=field.kind)
    made = {part: share for part, share in shares.items() if share}
    _check_new(dataset, field, made)
    facts: Facts = {"field": field.name, "seed": seed}
    facts |= {str(part): share or 0 for part, share in shares.items()}
    owners = partial(_random_owners, field=field, shares=made, seed=seed)
    return _Division(field, {part: part for part in made}, owners, facts)


def _by_time(dataset: Dataset, field: Field, selection: Selection, seed: int) -> _Division:
    """Divide a field by times, or by the order of a sequence; raises what `split` raises."""
    place = f"{dataset.path}: fields.{field.name}"
    DataError.require(field.kind != "dense", "must not be dense to be divided", place=place)
    if selection.needs_time and not field.has_times:
        raise DataError("needs times; the field has none", place=place, option=selection.needs_time[0])
    _check_new(dataset, field, selection.divided)
    if selection.times:
        times = (
            batch.column(time_column(field.name)).flatten().to_numpy() for batch in dataset.record_batches()
        )
        latest = max((float(time.max()) for time in times if len(time)), default=0.0)
        selection.check_seconds(latest, str(dataset.path))
        selection = selection.resolved(latest)
    facts: Facts = {"field": field.name, "seed": seed}
    facts |= {f"{part}_since": at for part, at in selection.from_time.items()}
    facts |= {str(part): number for part, number in selection.last.items()}
    owners = partial(_owners_by_time, field=field, selection=selection)
    options = {part: f"{part}_{'last' if part in selection.last else 'since'}" for part in selection.divided}
    return _Division(field, options, owners, facts)


def _owners_by_time(first_row: int, batch: pa.RecordBatch, field: Field, selection: Selection) -> np.ndarray:
    """See `_Division.owners`."""
    del first_row
    entries = batch.column(field.name).flatten().to_numpy()
    time = batch.column(time_column(field.name)).flatten().to_numpy() if field.has_times else None
    key = _examples_of(batch, field).astype(np.uint64) << np.uint64(32) | entries.astype(np.uint64)
    return owners_of(Rows(key, time=time), selection)


def _random_owners(
    first_row: int, batch: pa.RecordBatch, field: Field, shares: Mapping[Part, float], seed: int
) -> np.ndarray:
    """See `_Division.owners`."""
    examples = _examples_of(batch, field)
    entries = batch.column(field.name).flatten().to_numpy()
    lengths = np.bincount(examples, minlength=batch.num_rows)
    owners, left = np.zeros(len(entries), dtype=np.int64), lengths.copy()
    for number, (part, share) in enumerate(shares.items(), start=1):
        moves = num_moving(lengths, left, share)
        candidates = np.flatnonzero(owners == 0)
        owner = examples[candidates]
        keys = _random_keys(seed, f"split/{part}", first_row + owner, entries[candidates])
        by_key = ascending(keys)
        order = by_key[ascending(owner[by_key].astype(np.uint64))]
        rank = np.arange(len(candidates)) - np.repeat(np.cumsum(left) - left, left)
        owners[candidates[order[rank < np.repeat(moves, left)]]] = number
        left = left - moves
    return owners


def _all_heldout(first_row: int, batch: pa.RecordBatch, field: Field) -> np.ndarray:
    """See `_Division.owners`."""
    del first_row
    return np.ones(len(_examples_of(batch, field)), dtype=np.int64)


def _examples_of(batch: pa.RecordBatch, field: Field) -> np.ndarray:
    """For each entry of the field's train part, its row in the batch, int64 [Z]."""
    return np.repeat(np.arange(batch.num_rows), np.diff(batch.column(field.name).offsets.to_numpy()))


def num_moving(lengths: np.ndarray, left: np.ndarray, share: float) -> np.ndarray:
    """Return the number of entries of each example that a share takes, int64 [N].

    Args:
        lengths: Entries of each example before the split, int64 [N].
        left: Entries that no other share has taken, int64 [N].
        share: The share.
    """
    moves: np.ndarray = np.minimum(np.rint(share * lengths).astype(np.int64), np.maximum(left - 1, 0))
    return moves


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


def _write(
    folder: Path,
    dataset: Dataset,
    facts: Facts,
    division: _Division | None = None,
    chosen: np.ndarray | None = None,
) -> None:
    """Write a dataset's examples into a folder, with counts of what is left in the train parts.

    Args:
        folder: The folder.
        dataset: The dataset.
        facts: Further facts about its origin.
        division: How a field is divided.
        chosen: The examples to write, bool [N]. Default: all.

    Raises:
        DataError: A part would be empty.
    """
    layouts = [FieldLayout.of(field) for field in dataset.fields.values()]
    if division is not None:
        field = division.field
        parts = tuple(part for part in PARTS if part in (*field.parts, *division.options))
        layouts = [replace(each, parts=parts) if each.name == field.name else each for each in layouts]
    named = [name for name, field in dataset.fields.items() if field.vocabulary]
    recounted = named if chosen is not None or division is None else [division.field.name]
    counts = {name: np.zeros(dataset.fields[name].width, dtype=np.int64) for name in recounted}
    write_contents(
        folder,
        name=dataset.manifest.name,
        layouts=layouts,
        batches=_divided(dataset, division, chosen, counts),
        vocabularies={name: dataset.vocabulary(name).record_batches(counts.get(name)) for name in named},
        has_weights=dataset.manifest.has_weights,
        source={**dataset.manifest.source, **facts},
        beside=dataset.beside,
    )


def _divided(
    dataset: Dataset, division: _Division | None, chosen: np.ndarray | None, counts: Mapping[str, np.ndarray]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches to write; counts the entries that stay in the train parts."""
    moved = Counter[int]()

    def work(piece: tuple[int, pa.RecordBatch]) -> tuple[pa.RecordBatch, np.ndarray]:
        first_row, batch = piece
        if division is None:
            return batch, np.zeros(0, dtype=np.int64)
        owners = division.owners(first_row, batch)
        return _divided_batch(batch, owners, division), np.bincount(owners)

    for batch, numbers in in_order(work, _pieces(dataset, chosen), available_threads()):
        for name, count in counts.items():
            np.add.at(count, batch.column(name).flatten().to_numpy(), 1)
        moved.update(dict(enumerate(numbers.tolist())))
        yield batch
    if division is not None:
        rule = "must set something aside, and leave an item of each user; it moves nothing"
        for number, option in enumerate(division.options.values(), start=1):
            DataError.require(moved[number], rule, place=dataset.path, option=option)
        rule = "at least one interaction must be left for training"
        DataError.require(moved[0] or not division.leaves_some, rule, place=dataset.path)


def _pieces(dataset: Dataset, chosen: np.ndarray | None) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield pieces of the chosen examples, each with the number of its first row among them."""
    first, first_row = 0, 0
    for batch in dataset.record_batches():
        kept = batch if chosen is None else batch.filter(pa.array(chosen[first : first + batch.num_rows]))
        first += batch.num_rows
        for start in range(0, kept.num_rows, _ROWS_AT_ONCE):
            piece = kept.slice(start, _ROWS_AT_ONCE)
            yield first_row, piece
            first_row += piece.num_rows


def _divided_batch(batch: pa.RecordBatch, owners: np.ndarray, division: _Division) -> pa.RecordBatch:
    """Split the field's train part in a record batch, given the part of each entry."""
    field = division.field
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    kinds = [column, *([value_column] * field.has_values), *([time_column] * field.has_times)]
    entries = {name_of: columns[name_of(field.name)].flatten().to_numpy() for name_of in kinds}
    examples = _examples_of(batch, field)
    for number, part in enumerate(division.parts):
        is_own = owners == number
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(examples[is_own], minlength=batch.num_rows), out=offsets[1:])
        for name_of, values in entries.items():
            lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[is_own]))
            columns[name_of(field.name, part)] = lists
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


@typed
def split_users(
    source: Dataset | Path | str,
    out: Path | str,
    users_out: Path | str,
    *,
    users: float,
    heldout: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
    field: str = "items",
    overwrite: bool = False,
) -> tuple[Dataset, Dataset]:
    """Split a dataset by users: one dataset for training, and one of users that are set aside entirely.

    Both datasets have the same features in the same order, each with its own counts.

    Args:
        source: The dataset, or its directory.
        out: The dataset directory to make, without the users that are set aside.
        users_out: The dataset directory to make with these users alone.
        users: Share of the users to set aside, in (0, 1). Of the n users with at least two train entries, or
            with one if `heldout` is 1, round(users * n) are chosen at random.
        heldout: Share of the entries of each user in `users_out` that become the heldout part, as in `split`.
            An evaluation gives the network the rest, which is the train part. 1 leaves no rest: for labels,
            which the network does not read.
        validation: Share of the entries of each user in `out` that become the validation part, as in `split`.
        seed: Seed of the random choice.
        field: The field to split.
        overwrite: Whether to replace earlier datasets at `out` and `users_out`, each once the new one is
            whole.

    Returns:
        Both datasets, opened: `out` and `users_out`.

    Raises:
        DataError: A directory exists already, or a part would be empty.
        OptionError: A share or the seed is invalid.
    """
    out, users_out = Path(out), Path(users_out)
    OptionError.require(0 < users < 1, "must be a share above 0 and below 1", option="users", value=users)
    OptionError.require(0 < heldout <= 1, "must be a share up to 1", option="heldout", value=heldout)
    OptionError.require(0 <= validation < 1, "must be a share below 1", option="validation", value=validation)
    OptionError.require(0 <= seed <= LARGEST_SEED, f"must be 0 to {LARGEST_SEED}", option="seed", value=seed)
    for path, other in ((out, users_out), (users_out, out)):
        is_within = path.resolve().is_relative_to(other.resolve())
        DataError.require(not is_within, "must not be in the other directory", place=path, option="users_out")
        check_free(path, overwrite)
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    known = dataset.field(field)
    aside = _at_random(dataset, known, {"heldout": heldout, "validation": 0.0}, seed)
    if heldout == 1:
        facts: Facts = {"field": field, "heldout": 1, "validation": 0}
        aside = replace(aside, owners=partial(_all_heldout, field=known), facts=facts, leaves_some=False)
    shares: dict[Part, float] = {"heldout": 0.0, "validation": validation}
    kept = _at_random(dataset, known, shares, seed) if validation else None
    lengths = dataset.entry_counts(field, slice(None))
    held = _choose_users(dataset, lengths, 1 if heldout == 1 else 2, users, seed)
    chosen: Facts = {"split_users": {"users": users, "seed": seed}}
    with (
        publication(users_out, overwrite=overwrite) as users_folder,
        publication(out, overwrite=overwrite) as folder,
    ):
        _write(folder, dataset, chosen | ({} if kept is None else {"split": kept.facts}), kept, ~held)
        _write(users_folder, dataset, chosen | {"split": aside.facts}, aside, held)
    return Dataset.open(out), Dataset.open(users_out)


def _choose_users(dataset: Dataset, lengths: np.ndarray, least: int, share: float, seed: int) -> np.ndarray:
    """Choose the users to set aside, bool [N], among those with at least `least` of their `lengths` [N]."""
    eligible = np.flatnonzero(lengths >= least)
    number = round(share * len(eligible))
    rule = f"must set aside some of the {len(eligible):,} users with {least} items or more, not {number:,}"
    DataError.require(
        0 < number < dataset.num_examples, rule, place=dataset.path, option="users", value=share
    )
    held = np.zeros(dataset.num_examples, dtype=bool)
    held[eligible[randomness.shuffled(seed, "split/users", 0, len(eligible), np.arange(number))]] = True
    return held
