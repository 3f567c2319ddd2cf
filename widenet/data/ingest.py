"""Makes a dataset directory from sources of interactions, out of core on DuckDB."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol

from widenet.arguments import Location, declares
from widenet.data.database import database
from widenet.data.dataset import Dataset
from widenet.data.items import ItemRows, Items, Titles, known_items
from widenet.data.manifest import PARTS, WHOLE_NUMBERS, Facts, Manifest, Part
from widenet.data.merging import Merging
from widenet.data.messages import Note, ignore_message
from widenet.data.options import Options, check
from widenet.data.read import is_in_memory, open_sources
from widenet.data.rules import FieldLayout
from widenet.data.source import Source, Sources, check_same_columns
from widenet.data.tables import Tables
from widenet.data.users import SideTables
from widenet.data.writer import SortedEntries, assembled, publication, write_contents
from widenet.errors import OptionError

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
        titles, fields = options.open_titles(scratch), options.open_users(scratch)
        items = options.open_items(scratch)
        read = self._read(tables, scratch)
        self._report("numbering users and items")
        merging = Merging(tables, read, scratch, selection, options.limits.threads)
        self._read_titles(tables, titles)
        beside, described = self._attributes(tables, items, scratch)
        side = SideTables(tables, fields, selection.known_only)
        self._report("writing")
        entries = {part: SortedEntries(merging.entries(part), options.keep_times) for part in parts}
        kind: Literal["sparse", "sequence"] = "sequence" if options.sequence else "sparse"
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
                **_types(options, read),
                **tables.facts,
            },
        )

    def _read_titles(self, tables: Tables, titles: Titles | None) -> None:
        """Make the table `titles`."""
        tables.connection.execute("CREATE TABLE titles (name VARCHAR, title VARCHAR)")
        if titles is not None:
            self._report(titles.read(tables))

    def _attributes(
        self, tables: Tables, items: Items | None, scratch: Path
    ) -> tuple[list[Path], dict[str, int]]:
        """Write the attributes of the items, or those of the earlier dataset, into files.

        Returns:
            The files, and the number of attributes of each description.
        """
        options = self._options
        if items is not None:
            rows: ItemRows | None
            rows, line = items.read(tables, options.selection.known_only)
            self._report(line)
        else:
            rows = known_items(tables, options.known, options.field)
        if rows is None:
            return [], {}
        paths = rows.written(scratch, options.field)
        found = rows.described(scratch, options.field)
        if found is None:
            return paths, {}
        return [*paths, found.path], found.widths

    def _read(self, tables: Tables, scratch: Path) -> dict[Part, Sources]:
        """Open the sources of each part, read their names and check every row.

        Args:
            tables: The tables to fill.
            scratch: Folder for copies.
        """
        options, sources_of = self._options, dict[Part, list[Source]]()
        for part, inputs in self._inputs.items():
            (folder := scratch / f"sources-{part}").mkdir()
            sources_of[part] = open_sources(inputs, options.reading, folder) if inputs else []
        most = options.skip_bad_lines
        if most and not any(source.text_file for sources in sources_of.values() for source in sources):
            raise OptionError("is for lines of text, and no source has lines", option="skip_bad_lines")
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


def _types(options: Options, read: dict[Part, Sources]) -> Facts:
    """The fact that names the field of items if their ids are whole numbers in all sources.

    An earlier vocabulary may hold texts, so that there is no such fact beside one.
    """
    if options.known.folder is not None or not all(sources.has_whole_items for sources in read.values()):
        return {}
    return {WHOLE_NUMBERS: [options.field]}


def _listed(sources: Any) -> list[Any]:
    """List the sources."""
    several = (
        isinstance(sources, Iterable) and not isinstance(sources, str | Path) and not is_in_memory(sources)
    )
    listed = list(sources) if several else [sources]
    if not listed:
        raise OptionError("there must be at least one source of interactions; got none.")
    return listed
