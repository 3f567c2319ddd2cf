"""Makes a dataset directory from sources of interactions, out of core on DuckDB: options, memory, work."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol

import duckdb

from widenet.arguments import Location, declares
from widenet.data.buckets import BYTES_PER_BUCKET
from widenet.data.columns import check_time_format, listed
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


@dataclass(frozen=True, kw_only=True)
class Options(IngestArguments):
    """The options of an ingest as they were given; `check` tells whether they fit together."""

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
            columns=self.columns,
            decimal=self.decimal,
            quote=self.quote,
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
        return source

    @cached_property
    def known(self) -> KnownFeatures:
        """The vocabularies to keep."""
        return KnownFeatures(None if self.vocabulary is None else readable(self.vocabulary))

    @property
    def has_values(self) -> bool:
        """Whether the dataset stores values."""
        return self.keep_values or ((self.value is not None or self._counts_rows) and self.min_value is None)

    @cached_property
    def limits(self) -> Limits:
        """Limits of memory and threads."""
        return Limits.within(self.memory, available_threads() if self.threads is None else self.threads)

    @property
    def _counts_rows(self) -> bool:
        return self.value is None and self.duplicates == "sum"


def check(options: Options) -> None:
    """Check every option, and that the given ones fit together.

    Raises:
        OptionError: An option is wrong.
        DataError: The name of the field or its vocabulary is wrong.
    """
    check_field_name(options.field)
    selection = options.selection
    OptionError.require(
        not (
            options.sequence
            and (options.keep_values or (options.value is not None and options.min_value is None))
        ),
        "`sequence` stores no values; with it, `value` is for `min_value` alone.",
    )
    OptionError.require(
        not options.sequence or options.duplicates is None,
        "`sequence` keeps every row, so `duplicates` has no effect.",
    )
    OptionError.require(
        not options.keep_values or options.numbers or selection.duplicates == "sum",
        "`keep_values` needs `value`.",
    )
    if options.time_format is not None:
        check_time_format(options.time_format)
        OptionError.require(options.time is not None, "needs `time`", option="time_format")
    OptionError.require(not options.keep_times or options.time is not None, "`keep_times` needs `time`.")
    if selection.needs_time and options.time is None:
        raise OptionError(f"`{selection.needs_time[0]}` needs `time`.")
    OptionError.require(
        options.heldout is None or "heldout" not in selection.divided,
        "`heldout` names a test part; `heldout_last` and `heldout_since` make another.",
    )
    OptionError.require(not options.grow or options.vocabulary is not None, "`grow` needs `vocabulary`.")
    options.known.check(options.field)
    _check_sources(options)


def _check_sources(options: Options) -> None:
    """Check the options of users, titles and items, and the names of the further fields."""
    _ = options.limits  # checks itself when it is made
    check_item_options(options)
    for source, needing in _NEEDING.items():
        given = [name for name in needing if getattr(options, name)] + options.readings[
            f"{source}_"
        ].given_for_tables
        if given and getattr(options, source) is None:
            raise OptionError(f"needs `{source}`", option=given[0])
    OptionError.require(
        options.titles is None or options.items_title is None,
        "does not go with `titles`, which has them",
        option="items_title",
    )
    taken = {options.field: "the interactions (`field`)"}
    for option in ("sparse", "dense"):
        for name in getattr(options, option) or ():
            check_field_name(name)
            if name in taken:
                rule = f'must make a field of another name; "{name}" is the name of {taken[name]}'
                raise OptionError(rule, option=option)
            taken[name] = f"`{option}`"


_P = ParamSpec("_P")


class _ByKeywords(Protocol[_P]):
    def __call__(self, sources: Any, out: Path | str, *args: _P.args, **options: _P.kwargs) -> Dataset: ...


def _by_keywords(
    make: Callable[_P, Options],
) -> Callable[[Callable[[Any, Path | str, Options], Dataset]], _ByKeywords[_P]]:
    """Let a function take its options as keyword arguments.

    Type checkers, `help` and notebooks see these keywords.
    """

    def of(function: Callable[[Any, Path | str, Options], Dataset]) -> _ByKeywords[_P]:
        def called(sources: Any, out: Path | str, *args: _P.args, **options: _P.kwargs) -> Dataset:
            return function(sources, out, make(*args, **options))

        return declares(called, function, make)

    return of


def ingest_with(sources: Any, out: Path | str, options: Options) -> Manifest:
    """Ingest with the options in one object; returns the manifest, and does not load torch."""
    check(options)
    work = _Work(sources, options)
    with (
        publication(Path(out), overwrite=options.overwrite) as folder,
        database(folder / "scratch", options.limits) as connection,
    ):
        tables = Tables(
            connection, folder / "scratch", options.sequence, options.on_rows, options.known, options.field
        )
        return work.run(folder, tables)


@_by_keywords(Options)
def ingest(sources: Any, out: Location, options: Options) -> Dataset:
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
    ingest_with(sources, out, options)
    return Dataset.open(out)


class _Work:
    """An ingest with options that have been checked."""

    def __init__(self, sources: Any, options: Options) -> None:
        self._options, self._report = options, options.on_progress or ignore_message
        self._inputs: dict[Part, list[Any]] = {
            "train": _listed(sources),
            "heldout": [] if options.heldout is None else _listed(options.heldout),
        }

    def run(self, folder: Path, tables: Tables) -> Manifest:
        """Fill a folder with the dataset."""
        options, selection, scratch = self._options, self._options.selection, folder / "scratch"
        names = {"train", *selection.divided, *(part for part, inputs in self._inputs.items() if inputs)}
        parts = tuple(part for part in PARTS if part in names)
        # Opened first, so that mistakes in these files are found before the long work.
        titles, users, items = (options.open_beside(each, scratch) for each in ("titles", "users", "items"))
        read = self._read(tables, scratch)
        self._report("numbering users and items")
        merging = Merging(tables, read, scratch, selection, options.limits.threads)
        tables.connection.execute("CREATE TABLE titles (name VARCHAR, title VARCHAR)")
        if titles is not None:
            self._report(read_titles(tables, titles, options))
        beside, described = self._attributes(tables, items, scratch)
        side = SideTables(tables, users, options, selection.known_only)
        self._report("writing")
        entries = {part: SortedEntries(merging.entries(part), options.keep_times) for part in parts}
        kind: Literal["sparse", "sequence"] = "sequence" if options.sequence else "sparse"
        # An earlier vocabulary may hold texts.
        has_whole_items = options.vocabulary is None and all(each.has_whole_items for each in read.values())
        return write_contents(
            folder,
            name=options.name or read["train"].short_names[0].split(".")[0],
            layouts=[
                FieldLayout(
                    options.field,
                    tables.count("SELECT count(*) FROM features"),
                    kind,
                    parts,
                    options.has_values,
                    options.keep_times,
                    described,
                ),
                *side.layouts,
            ],
            batches=tables.with_progress(
                assembled(
                    side.examples(),
                    entries,
                    options.field,
                    options.has_values,
                    side.entries(),
                    options.keep_times,
                ),
                merging.num_examples,
            ),
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

    def _attributes(
        self, tables: Tables, items: Source | None, scratch: Path
    ) -> tuple[list[Path], dict[str, int]]:
        """Write the attributes of the items, or those of the earlier dataset, into files.

        Returns:
            The files, and the number of attributes of each description.
        """
        options = self._options
        if items is None:
            rows = known_items(tables, options.known, options.field)
        else:
            rows, line = read_items(tables, items, options, options.selection.known_only)
            self._report(line)
        if rows is None:
            return [], {}
        paths, found = rows.written(scratch, options.field), rows.described(scratch, options.field)
        return (paths, {}) if found is None else ([*paths, found.path], found.widths)

    def _read(self, tables: Tables, scratch: Path) -> dict[Part, Sources]:
        """Open the sources of each part, read their names and check every row.

        Args:
            tables: The tables to fill.
            scratch: Folder for copies.
        """
        options, sources_of = self._options, dict[Part, list[Source]]()
        for part, inputs in self._inputs.items():
            (folder := scratch / f"sources-{part}").mkdir()
            sources_of[part] = open_sources(inputs, options.readings[""], folder) if inputs else []
        most = options.skip_bad_lines
        OptionError.require(
            not most or any(source.text_file for sources in sources_of.values() for source in sources),
            "is for lines of text, and no source has lines",
            option="skip_bad_lines",
        )
        read = {part: Sources(each, options) for part, each in sources_of.items()}
        check_same_columns(read.values())
        for part, sources in read.items():
            for line in sources.described():
                self._report(line)
            num_wrong = tables.read(part, sources)
            if num_wrong:
                first = sources.mistake("a row breaks a rule")
                if num_wrong > most:
                    first.rule += f"; {num_wrong:,} lines are wrong, and `skip_bad_lines` allows {most:,}"
                    raise first
                self._report(
                    Note(f"skipped {num_wrong:,} bad line{'s' * (num_wrong > 1)}; the first: {first}")
                )
                tables.facts[f"{part}_lines_skipped"] = num_wrong
        return read


def _listed(sources: Any) -> list[Any]:
    """List the sources."""
    several = (
        isinstance(sources, Iterable) and not isinstance(sources, str | Path) and not is_in_memory(sources)
    )
    listed = list(sources) if several else [sources]
    OptionError.require(listed, "there must be at least one source of interactions; got none.")
    return listed
