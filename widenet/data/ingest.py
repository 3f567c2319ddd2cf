"""Makes a dataset directory from sources of interactions, out of core on DuckDB: options, memory, work."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import duckdb

from widenet.arguments import with_fields_of
from widenet.data.buckets import BYTES_PER_BUCKET
from widenet.data.columns import check_time_format, choose_column, listed
from widenet.data.dataset import Dataset
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.items import check_item_options, known_items, read_items, read_titles
from widenet.data.known import KnownFeatures
from widenet.data.manifest import PARTS, WHOLE_NUMBERS, Manifest, Part
from widenet.data.merging import Merging
from widenet.data.messages import Note, ignore_message
from widenet.data.read import is_in_memory, open_source, open_sources
from widenet.data.rules import FieldLayout, check_field_name
from widenet.data.selection import Selection, selection_of
from widenet.data.source import Reading, Source, Sources, check_same_columns
from widenet.data.tables import Tables
from widenet.data.users import SideTables
from widenet.data.writer import SortedEntries, assembled, publication, write_contents
from widenet.errors import NO_ROOM, DataError, OptionError, reason_of, unwritten
from widenet.plan.machine import available_memory, available_threads
from widenet.plan.numbers import amount, bytes_of
from widenet.stores.folders import readable

_SHARE = 0.25
"""Share of the free memory that an ingest takes by default."""

_RESERVED = 200_000_000
"""Bytes for the rows in flight, and for what DuckDB takes beyond its limit."""

_DATABASE_PER_THREAD = 125_000_000
_PER_THREAD = _DATABASE_PER_THREAD + BYTES_PER_BUCKET
_LEAST = _RESERVED + _PER_THREAD


@dataclass(frozen=True)
class Limits:
    """Limits of an ingest.

    Attributes:
        database: DuckDB's memory limit in bytes; None for no limit.
        threads: Threads of DuckDB, and number of buckets that are merged at a time.
    """

    database: int | None
    threads: int

    @classmethod
    def within(cls, memory: str | None, threads: int) -> "Limits":
        """Compute the limits for some memory and at most this many threads.

        Args:
            memory: Memory of the whole process, such as "8GB", beyond what Python and the libraries take at
                their start; None takes a share of the free memory.
            threads: Largest number of threads, at least 1. Fewer are used if the memory is too small for all.

        Raises:
            OptionError: The memory is too small or invalid, or `threads` is below 1.
        """
        OptionError.require(threads >= 1, f"threads must be at least 1; got {threads}.")
        room = available_memory()
        if memory is None and room is None:
            return cls(None, threads)
        total = bytes_of(memory, "memory") if memory is not None else max(int(_SHARE * (room or 0)), _LEAST)
        OptionError.require(
            total >= _LEAST,
            f"`memory` must be at least {amount(_LEAST)}; got {memory}. Give more; what does not fit goes"
            " to disk.",
        )
        threads = min(threads, (total - _RESERVED) // _PER_THREAD)
        return cls(total - _RESERVED - threads * BYTES_PER_BUCKET, threads)


_INTERRUPTED = "Query interrupted"


@contextmanager
def database(folder: Path, limits: Limits) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB in memory that spills into a temporary folder and reports a full disk or memory."""
    folder.mkdir()
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(folder),
        "threads": limits.threads,
        "preserve_insertion_order": False,
        # Sources have no known length: these optimizers would keep them whole in memory.
        "disabled_optimizers": "build_side_probe_side,join_order",
    }
    try:
        with duckdb.connect(
            ":memory:", config=config | ({"memory_limit": f"{limits.database}B"} if limits.database else {})
        ) as connection:
            yield connection
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise DataError(
            f"{folder.parent}: not enough memory or disk space; {reason_of(error)}. Give more"
            " `memory`, or free some space."
        ) from error
    except RuntimeError as error:  # DuckDB's error for Ctrl-C during a query
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DataError(unwritten(folder.parent, error)) from error
    finally:
        shutil.rmtree(folder)


_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t"}


_NEEDING = {
    "users": ("sparse", "dense", "weight", "users_id"),
    "titles": ("title_id", "title"),
    "items": (
        "items_id",
        "items_title",
        "items_separator",
        "items_sparse",
        "items_dense",
    ),
}
"""The options that need a source, beside those of how it is read."""


@dataclass(frozen=True)
class Options(IngestArguments):
    """The arguments of an ingest with what follows from them; `check` tells whether they fit together."""

    @cached_property
    def selection(self) -> Selection:
        """The interactions to keep and to set aside."""
        return selection_of(
            self,
            duplicates=self.duplicates or ("max" if self.time is None else "last"),
            min_value=self.min_value,
            min_user_items=self.min_user_items,
            min_item_users=self.min_item_users,
            sequence=self.sequence,
            known_only=self.vocabulary is not None and not self.grow,
            keep_times=self.keep_times,
        )

    @cached_property
    def readings(self) -> dict[str, Reading]:
        """How to read the interactions, and by prefix the tables beside them."""
        users = [
            self.weight,
            *(self.sparse or {}).values(),
            *chain.from_iterable((self.dense or {}).values()),
        ]
        items = [*(self.items_sparse or {}).values(), *chain.from_iterable((self.items_dense or {}).values())]
        roles = {
            "users_": {"users_id": self.users_id, **{name: name for name in users if name}},
            "titles_": {"title_id": self.title_id, "title": self.title},
            "items_": {
                "items_id": self.items_id,
                "items_title": self.items_title,
                **{name: name for name in items},
            },
        }
        interactions = Reading(
            format=self.format,
            delimiter=_DELIMITER_WORDS.get(self.delimiter or "", self.delimiter),
            header=self.header,
            columns=self.columns,
            decimal=self.decimal,
            quote=self.quote,
            escape=self.escape,
            comment=self.comment,
            roles={"user": self.user, "item": self.item},
        )
        beside = {
            prefix: Reading(
                prefix=prefix,
                columns=getattr(self, f"{prefix}columns"),
                decimal=self.decimal,
                roles=named,
            )
            for prefix, named in roles.items()
        }
        return {"": interactions, **beside}

    def open_beside(self, name: str, folder: Path) -> Source | None:
        """Open the source of users, items or titles, if there is one, with a folder for standard input.

        Raises:
            DataError: A column that an option names does not exist.
        """
        if getattr(self, name) is None:
            return None
        reading = self.readings[f"{name}_"]
        source = open_source(getattr(self, name), reading, folder)
        for column in filter(None, reading.roles.values()):
            rule = f"must be one of the columns, {listed(source.columns)}"
            DataError.require(column in source.columns, rule, place=source.name, column=column)
        if name == "titles":
            choose_column(source.name, source.columns, "title", self.title)
        return source

    @cached_property
    def known(self) -> KnownFeatures:
        """The vocabularies to keep."""
        return KnownFeatures(None if self.vocabulary is None else readable(self.vocabulary))

    @property
    def has_values(self) -> bool:
        """Whether the dataset stores values."""
        has_numbers = self.value is not None or self.duplicates == "sum"
        return self.keep_values or (has_numbers and self.min_value is None)


def check(options: Options) -> None:
    """Check that the options fit together.

    Raises:
        OptionError: An option is wrong.
        DataError: The name of a field or the vocabulary is wrong.
    """
    selection = options.selection
    has_values = options.keep_values or (options.value is not None and options.min_value is None)
    is_counted = options.duplicates == "sum"
    has_part = options.heldout is not None and "heldout" in selection.divided
    rules: list[tuple[str, object, str]] = [
        ("sequence", options.sequence and has_values, "has no values; with it, `value` is for `min_value`"),
        ("duplicates", options.sequence and options.duplicates, "has no effect on a `sequence`"),
        (
            "keep_values",
            options.keep_values and not (options.numbers or is_counted),
            "needs `value`",
        ),
        ("keep_times", options.keep_times and options.time is None, "needs `time`"),
        ("time_format", options.time_format is not None and options.time is None, "needs `time`"),
        ("heldout", has_part, "names a part that `heldout_last` and `heldout_since` make, too"),
        ("grow", options.grow and options.vocabulary is None, "needs `vocabulary`"),
        ("items_title", options.titles is not None and options.items_title, "does not go with `titles`"),
    ]
    rules += [("time", options.time is None, f"is what `{option}` needs") for option in selection.needs_time]
    has_fields = options.sparse or options.dense or options.weight
    rules.append(
        ("users", options.users is not None and not has_fields, "needs `sparse`, `dense` or `weight`")
    )
    for source, needing in _NEEDING.items():
        given = [name for name in needing if getattr(options, name)]
        given += options.readings[f"{source}_"].given_for_tables
        rules += [(option, getattr(options, source) is None, f"needs `{source}`") for option in given]
    for option, is_broken, rule in rules:
        OptionError.require(not is_broken, rule, option=option)
    if options.time_format is not None:
        check_time_format(options.time_format)
    names = [options.field, *(options.sparse or ()), *(options.dense or ())]
    for name in names:
        check_field_name(name)
        option = "dense" if name in (options.dense or ()) else "sparse"
        OptionError.require(names.count(name) == 1, "must name different fields", option=option, value=name)
    check_item_options(options)
    options.known.check(options.field)


def ingest_with(options: Options) -> Manifest:
    """Ingest with the options in one object; returns the manifest, and does not load torch."""
    check(options)
    threads = available_threads() if options.threads is None else options.threads
    limits = Limits.within(options.memory, threads)
    with (
        publication(Path(options.out), overwrite=options.overwrite) as folder,
        database(folder / "scratch", limits) as connection,
    ):
        tables = Tables(
            connection, folder / "scratch", options.sequence, options.on_rows, options.known, options.field
        )
        return _fill(folder, tables, options, limits.threads)


@with_fields_of(Options, Dataset)
def ingest(options: Options) -> Dataset:
    """Make a dataset directory from interactions, and open it.

    docs/data.md explains the options; docs/dataset-directories.md describes the directory.

    A source is a path, a pattern of paths, "-" for standard input, an open file, a pandas, Polars or Arrow
    table, a SciPy matrix, or a dictionary of columns. `sources` and `heldout` take one source or a list of
    them; `users`, `items` and `titles` take one.

    `on_progress` is called with a sentence at each phase. `on_rows` is called within a phase with the number
    of rows or examples that are done, and their total, or None if it is unknown yet.

    Returns:
        The dataset, opened.

    Raises:
        DataError: A source breaks a rule; the message names place, column, rule and value.
        OptionError: An option is wrong.
    """
    ingest_with(options)
    return Dataset.open(options.out)


def _fill(folder: Path, tables: Tables, options: Options, threads: int) -> Manifest:
    """Fill a folder with the dataset."""
    selection, scratch, report = options.selection, folder / "scratch", options.on_progress or ignore_message
    # Opened first, so that mistakes in these files are found before the long work.
    titles, users, items = (options.open_beside(each, scratch) for each in ("titles", "users", "items"))
    read = _read(options, tables, scratch, report)
    report("numbering users and items")
    merging = Merging(tables, read, scratch, selection, threads)
    tables.connection.execute("CREATE TABLE titles (name VARCHAR, title VARCHAR)")
    if titles is not None:
        report(read_titles(tables, titles, options))
    if items is None:
        rows = known_items(tables, options.known, options.field)
    else:
        rows, line = read_items(tables, items, options, selection.known_only)
        report(line)
    beside = [] if rows is None else rows.written(scratch, options.field)
    described = None if rows is None else rows.described(scratch, options.field)
    if described is not None:
        beside.append(described.path)
    side = SideTables(tables, users, options, selection.known_only)
    report("writing")
    made = {"train", *selection.divided, *(["heldout"] if options.heldout is not None else [])}
    parts = tuple(part for part in PARTS if part in made)
    # An earlier vocabulary may hold texts.
    has_whole_items = options.vocabulary is None and all(each.has_whole_items for each in read.values())
    layout = FieldLayout(
        options.field,
        tables.count("SELECT count(*) FROM features"),
        "sequence" if options.sequence else "sparse",
        parts,
        options.has_values,
        options.keep_times,
        {} if described is None else described.widths,
    )
    batches = assembled(
        side.examples(),
        {part: SortedEntries(merging.entries(part), options.keep_times) for part in parts},
        options.field,
        options.has_values,
        side.entries(),
        options.keep_times,
    )
    return write_contents(
        folder,
        name=options.name or read["train"].short_names[0].split(".")[0],
        layouts=[layout, *side.layouts],
        batches=tables.with_progress(batches, merging.num_examples),
        vocabularies={options.field: tables.vocabulary(), **side.vocabularies()},
        has_weights=options.weight is not None,
        beside=beside,
        source={
            "sources": list(read["train"].short_names),
            "min_value": options.min_value,
            **({WHOLE_NUMBERS: [options.field]} if has_whole_items else {}),
            **tables.facts,
        },
    )


_PARTS_READ: dict[Part, str] = {"train": "sources", "heldout": "heldout"}
"""The parts that sources may hold, each with its option."""


def _read(
    options: Options, tables: Tables, scratch: Path, report: Callable[[str], None]
) -> dict[Part, Sources]:
    """Open the sources of each part, with a folder for copies, and read their rows into the tables."""
    opened, most = dict[Part, list[Source]](), options.skip_bad_lines
    for part, option in _PARTS_READ.items():
        (folder := scratch / f"sources-{part}").mkdir()
        given = _listed(option, getattr(options, option))
        opened[part] = open_sources(given, options.readings[""], folder) if given else []
    OptionError.require(
        not most or any(source.text_file for sources in opened.values() for source in sources),
        "is for lines of text, and no source has lines",
        option="skip_bad_lines",
    )
    read = {part: Sources(each, options) for part, each in opened.items()}
    check_same_columns(read.values())
    for part, sources in read.items():
        for line in sources.described():
            report(line)
        num_wrong = tables.read(part, sources)
        if num_wrong:
            first = sources.mistake("a row breaks a rule")
            if num_wrong > most:
                first.rule += f"; {num_wrong:,} lines are wrong, and `skip_bad_lines` allows {most:,}"
                raise first
            report(Note(f"skipped {num_wrong:,} bad line{'s' * (num_wrong > 1)}; the first: {first}"))
            tables.facts[f"{part}_lines_skipped"] = num_wrong
    return read


def _listed(option: str, sources: Any) -> list[Any]:
    """List the sources of an option; none if it was not given."""
    if sources is None or isinstance(sources, str | Path) or is_in_memory(sources):
        return [] if sources is None else [sources]
    several = list(sources) if isinstance(sources, Iterable) else [sources]
    OptionError.require(several, "must be at least one source", option=option)
    return several
