"""From sources of interactions to a dataset directory: out of core, on DuckDB."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, ParamSpec, Protocol

from widenet.arguments import declares
from widenet.data.assemble import SortedEntries, assembled
from widenet.data.dataset import Dataset
from widenet.data.formats.memory import is_table
from widenet.data.formats.source import Source
from widenet.data.manifest import PARTS, Manifest, Part
from widenet.data.merging import Merging
from widenet.data.options import Options, check
from widenet.data.rules import FieldLayout
from widenet.data.side_fields import OpenedUsers, SideTables
from widenet.data.silence import in_silence
from widenet.data.sources import Sources, check_said, check_skipping, opened
from widenet.data.tables import Tables, database
from widenet.data.writer import publication, write_contents
from widenet.errors import DataError, OptionError

_P = ParamSpec("_P")


class _ByKeywords(Protocol[_P]):
    def __call__(self, sources: Any, out: Path | str, *args: _P.args, **options: _P.kwargs) -> Dataset: ...


def _by_keywords(
    make: Callable[_P, Options],
) -> Callable[[Callable[[Any, Path | str, Options], Dataset]], _ByKeywords[_P]]:
    """Let a function take its options as keywords of its own, which type checkers, `help` and notebooks
    see.
    """

    def of(function: Callable[[Any, Path | str, Options], Dataset]) -> _ByKeywords[_P]:
        def called(sources: Any, out: Path | str, *args: _P.args, **options: _P.kwargs) -> Dataset:
            return function(sources, out, make(*args, **options))

        return declares(called, function, make)

    return of


def ingest_with(sources: Any, out: Path | str, options: Options) -> Manifest:
    """What `ingest` does, with its options in one; gives the manifest, and loads no torch."""
    check(options)
    work = _Work(sources, options)
    with publication(Path(out)) as folder, database(folder / "scratch", options.limits) as connection:
        tables = Tables(
            connection, folder / "scratch", options.sequence, options.on_rows, options.known, options.field
        )
        return work.done(folder, tables)


@_by_keywords(Options)
def ingest(sources: Any, out: Path | str, options: Options) -> Dataset:
    """Publish the dataset of some interactions, and open it.

    docs/data.md says what each option means, docs/architecture.md the order and form.
    sources, heldout: a path, a pattern of paths, "-" for standard input, a pandas, Polars or Arrow table, a
        SciPy matrix, a dictionary of columns, a list of tuples (user, item, and perhaps value, time), a tuple
        of such arrays, or a list of sources.
    users, titles: one such source, of the users' own columns, and of names for items. on_progress: is told
    each phase.
    on_rows: is told, within a phase, how many rows or examples are done, and of how many, or None where that
    is not known yet. Raises DataError naming place, column, rule and value; OptionError for an option that is
    wrong.
    """
    ingest_with(sources, out, options)
    return Dataset.open(out)


class _Work:
    """An ingest whose options are known to be right."""

    def __init__(self, sources: Any, options: Options) -> None:
        self._options, self._say = options, options.on_progress or in_silence
        self._given: dict[Part, list[Any]] = {
            "train": _listed(sources),
            "heldout": [] if options.heldout is None else _listed(options.heldout),
        }

    def done(self, folder: Path, tables: Tables) -> Manifest:
        """Fill a folder with the dataset."""
        options, selection, scratch = self._options, self._options.selection, folder / "scratch"
        made = {"train", *selection.divided, *(part for part, given in self._given.items() if given)}
        parts = tuple(part for part in PARTS if part in made)
        titles, users = (
            options.naming.opened(scratch),
            options.side.opened(scratch),
        )  # mistakes in them are told before the work
        read = self._read(tables, scratch, options.side.of_interactions(users, selection), users)
        if titles is not None:
            self._say(titles.described())
        self._say("numbering examples and features")
        merging = Merging(tables, read, scratch, selection, options.limits.threads)
        tables.connection.execute("CREATE TABLE titles (name VARCHAR, title VARCHAR)")
        if titles is not None:
            titles.read(tables)
        side = SideTables(tables, options.side, users, read["train"], selection.known_only)
        self._say("writing")
        entries = {part: SortedEntries(merging.entries(part), options.keep_times) for part in parts}
        kind: Literal["sparse", "sequence"] = "sequence" if options.sequence else "sparse"
        return write_contents(
            folder,
            name=options.name or read["train"].short_names[0].split(".")[0],
            layouts=[
                FieldLayout(
                    options.field, merging.num_features, kind, parts, options.has_values, options.keep_times
                ),
                *side.layouts,
            ],
            batches=tables.followed(
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
            has_weights=options.side.weight is not None,
            source={
                "sources": list(read["train"].short_names),
                "min_value": options.min_value,
                **tables.facts,
            },
        )

    def _read(
        self, tables: Tables, scratch: Path, beside: list[str], users: OpenedUsers | None
    ) -> dict[Part, Sources]:
        """Open the sources of each part, read their names and check every row.

        Args:
            tables: The tables to fill.
            scratch: Folder for copies.
            beside: Columns of the train part that are read later.
            users: The file of users, which lacks these columns.
        """
        options, found = self._options, dict[Part, list[Source]]()
        for part, given in self._given.items():
            (folder := scratch / f"sources-{part}").mkdir()
            found[part] = opened(given, options.reading, folder)
        everything = [source for sources in found.values() for source in sources]
        check_said(options.reading, everything)
        check_skipping(options.skip_bad_lines, everything)
        read = {part: Sources(sources, options.roles) for part, sources in found.items()}
        for column in beside:
            read["train"].check_column(column, None if users is None else users.source)
        for part, sources in read.items():
            for line in sources.described(options.side.sparse.values()):
                self._say(line)
            further = beside if part == "train" else []
            try:
                tables.read(part, sources)
                tables.read_beside(sources, further)
            except DataError:
                folder, most = scratch / f"sources-{part}", options.skip_bad_lines
                num_skipped = most and sources.skip_bad_lines(most, folder, self._say)
                if not num_skipped:
                    raise
                tables.read(part, sources)
                tables.read_beside(sources, further)
                tables.facts[f"{part}_lines_skipped"] = num_skipped
            for line in tables.notes(part):
                self._say(line)
        return read


def _listed(given: Any) -> list[Any]:
    """The sources one by one."""
    several = isinstance(given, Iterable) and not isinstance(given, str | Path) and not is_table(given)
    listed = list(given) if several else [given]
    if is_table(listed):
        return [listed]
    if not listed:
        raise OptionError("SOURCE must be at least one file; got none.")
    return listed
