"""Splits: set aside a random share of every example's entries, the last ones, or whole users."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet import randomness
from widenet.arguments import IN_STORES, Argument, check_bounds, check_local, with_fields_of
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
    heldout_users: Annotated[
        float,
        Argument(
            "Share of the users to set aside into `users_out`, at random. `heldout` then divides only their"
            " items; with 1, it takes all of them."
        ),
    ] = 0.0
    users_out: Annotated[Path | str | None, Argument("The dataset directory to make from these users.")] = (
        None
    )
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
        facts: What the manifest says about it.
        shares: The share of each new part; none if `selection` divides.
        selection: The times or numbers of last entries that move.
        seed: Seed of the random choice.
    """

    field: Field
    options: Mapping[Part, str]
    facts: Facts
    shares: Mapping[Part, float]
    selection: Selection
    seed: int

    @classmethod
    def of(
        cls, dataset: Dataset, name: str, shares: Mapping[Part, float], selection: Selection, seed: int
    ) -> "_Division":
        """Divide a field by times or numbers if there are some, else by shares, 0 for a part that stays.

        Raises:
            DataError: The field cannot be divided so, or has such a part already.
        """
        field = dataset.field(name)
        place = f"{dataset.path}: fields.{name}"
        facts: Facts = {"field": name, "seed": seed}
        if selection.divided:
            DataError.require(field.kind != "dense", "must not be dense to be divided", place=place)
            selection = replace(selection, sequence=field.kind == "sequence")
            for option in selection.needs_time:
                DataError.require(field.has_times, "needs times", place=place, option=option)
            if selection.times:
                columns = (batch.column(time_column(name)) for batch in dataset.record_batches())
                times = [pc.max(column.flatten()).as_py() for column in columns]
                latest = max((time for time in times if time is not None), default=0.0)
                selection.check_seconds(latest, str(dataset.path))
                selection = selection.resolved(latest)
            options = {
                part: f"{part}_{'last' if part in selection.last else 'since'}" for part in selection.divided
            }
            facts |= {f"{part}_since": at for part, at in selection.from_time.items()}
            facts |= {str(part): number for part, number in selection.last.items()}
        else:
            rule = "must be sparse to be divided by shares"
            DataError.require(field.kind == "sparse", rule, place=place, value=field.kind)
            options = {part: str(part) for part, share in shares.items() if share}
            facts |= {str(part): share or 0 for part, share in shares.items()}
        for part in options:
            DataError.require(part not in field.parts, f"has a {part} part already", place=place)
        return cls(field, options, facts, shares, selection, seed)

    def owners(self, first_row: int, batch: pa.RecordBatch) -> np.ndarray:
        """The part of each entry of a record batch, int64 [Z]: 0 for train, 1 for the first of `options`.

        Args:
            first_row: Number of the batch's first row.
            batch: The examples.
        """
        examples = _examples_of(batch, self.field)
        entries = batch.column(self.field.name).flatten().to_numpy()
        if self.selection.divided:
            has_times = self.field.has_times
            time = batch.column(time_column(self.field.name)).flatten().to_numpy() if has_times else None
            key = examples.astype(np.uint64) << np.uint64(32) | entries.astype(np.uint64)
            return owners_of(Rows(key, time=time), self.selection)
        lengths = np.bincount(examples, minlength=batch.num_rows)
        owners, left = np.zeros(len(entries), dtype=np.int64), lengths.copy()
        for number, part in enumerate(self.options, start=1):
            moves = num_moving(lengths, left, self.shares[part])
            candidates = np.flatnonzero(owners == 0)
            owner = examples[candidates]
            keys = _random_keys(self.seed, f"split/{part}", first_row + owner, entries[candidates])
            by_key = ascending(keys)
            order = by_key[ascending(owner[by_key].astype(np.uint64))]
            rank = np.arange(len(candidates)) - np.repeat(np.cumsum(left) - left, left)
            owners[candidates[order[rank < np.repeat(moves, left)]]] = number
            left = left - moves
        return owners


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

    `heldout_users` sets users aside entirely: `users_out` has round(share * n) of the n users with at least
    two train entries, or with one if `heldout` is 1, and `out` the others. An evaluation gives the network
    what `heldout` leaves of their items. 1 leaves nothing: for labels, which the network does not read. Both
    datasets have the same features in the same order, each with its own counts.

    Returns:
        The new dataset, `out`, opened.

    Raises:
        DataError: A part exists already or would be empty, or `out` may not be replaced.
        OptionError: A share, number, time or seed is invalid.
    """
    source, selection = arguments.source, selection_of(arguments)
    _check(arguments, selection)
    dataset = source if isinstance(source, Dataset) else Dataset.open(source)
    if arguments.users_out is not None:
        _split_users(dataset, arguments, Path(arguments.users_out))
        return Dataset.open(arguments.out)
    shares: dict[Part, float] = {"heldout": arguments.heldout, "validation": arguments.validation}
    division = _Division.of(dataset, arguments.field, shares, selection, arguments.seed)
    with publication(Path(arguments.out), overwrite=arguments.overwrite) as folder:
        _write(folder, dataset, {"split": division.facts}, division)
    return Dataset.open(arguments.out)


def _check(arguments: SplitArguments, selection: Selection) -> None:
    """Raise OptionError if the options do not fit together, or a share is wrong."""
    heldout, validation, users = arguments.heldout, arguments.validation, arguments.heldout_users
    is_random = not (users or selection.divided)
    rules: list[tuple[str, object, str]] = [
        ("heldout_users", bool(users) != (arguments.users_out is not None), "and `users_out` go together"),
        ("heldout_users", users and selection.divided, "excludes numbers and times"),
        ("heldout", selection.divided and (heldout or validation), "is a share: no numbers and times beside"),
        ("heldout_users", not 0 <= users < 1, "must be a share below 1"),
        ("validation", not 0 <= validation < 1, "must be a share below 1"),
        ("heldout", not 0 <= heldout <= 1 or (users and not heldout), "must be a share up to 1"),
        ("heldout", is_random and not 0 < heldout + validation < 1, "and `validation` must be in (0, 1)"),
    ]
    for option, is_broken, rule in rules:
        OptionError.require(not is_broken, rule, option=option)


def _examples_of(batch: pa.RecordBatch, field: Field) -> np.ndarray:
    """For each entry of the field's train part, its row in the batch, int64 [Z]."""
    return np.repeat(np.arange(batch.num_rows), np.diff(batch.column(field.name).offsets.to_numpy()))


def num_moving(lengths: np.ndarray, left: np.ndarray, share: float) -> np.ndarray:
    """Return the number of entries of each example that a share takes, int64 [N].

    Args:
        lengths: Entries of each example before the split, int64 [N].
        left: Entries that no other share has taken, int64 [N].
        share: The share; less than 1 leaves an entry.
    """
    moves: np.ndarray = np.minimum(
        np.rint(share * lengths).astype(np.int64), np.maximum(left - (share < 1), 0)
    )
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
        DataError.require(moved[0] or 1 in division.shares.values(), rule, place=dataset.path)


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
    for number, part in enumerate(("train", *division.options)):
        is_own = owners == number
        offsets = np.zeros(batch.num_rows + 1, dtype=np.int32)
        np.cumsum(np.bincount(examples[is_own], minlength=batch.num_rows), out=offsets[1:])
        for name_of, values in entries.items():
            lists = pa.ListArray.from_arrays(pa.array(offsets), pa.array(values[is_own]))
            columns[name_of(field.name, part)] = lists
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _split_users(dataset: Dataset, arguments: SplitArguments, users_out: Path) -> None:
    """Make one dataset for training, and one of users who are set aside entirely."""
    check_local("out", arguments.out)
    out, name, seed = Path(arguments.out), arguments.field, arguments.seed
    for path, other in ((out, users_out), (users_out, out)):
        is_within = path.resolve().is_relative_to(other.resolve())
        DataError.require(not is_within, "must not be in the other directory", place=path, option="users_out")
        check_free(path, arguments.overwrite)
    shares: dict[Part, float] = {"heldout": arguments.heldout, "validation": 0.0}
    aside = _Division.of(dataset, name, shares, Selection(), seed)
    if arguments.heldout == 1:
        aside = replace(aside, facts={"field": name, "heldout": 1, "validation": 0})
    shares = {"heldout": 0.0, "validation": arguments.validation}
    kept = _Division.of(dataset, name, shares, Selection(), seed) if arguments.validation else None
    held = _choose_users(dataset, arguments)
    facts: Facts = {"split_users": {"users": arguments.heldout_users, "seed": seed}}
    with (
        publication(users_out, overwrite=arguments.overwrite) as users_folder,
        publication(out, overwrite=arguments.overwrite) as folder,
    ):
        _write(folder, dataset, facts | ({} if kept is None else {"split": kept.facts}), kept, ~held)
        _write(users_folder, dataset, facts | {"split": aside.facts}, aside, held)


def _choose_users(dataset: Dataset, arguments: SplitArguments) -> np.ndarray:
    """Choose the users to set aside among those with enough entries, bool [N]."""
    share, least = arguments.heldout_users, 1 if arguments.heldout == 1 else 2
    eligible = np.flatnonzero(dataset.entry_counts(arguments.field, slice(None)) >= least)
    number = round(share * len(eligible))
    rule = f"must set aside some of the {len(eligible):,} users with {least} items or more, not {number:,}"
    is_some = 0 < number < dataset.num_examples
    DataError.require(is_some, rule, place=dataset.path, option="heldout_users", value=share)
    drawn = randomness.shuffled(arguments.seed, "split/users", 0, len(eligible), np.arange(number))
    held = np.zeros(dataset.num_examples, dtype=bool)
    held[eligible[drawn]] = True
    return held
