"""From sources of interactions to a dataset directory: out of core, on DuckDB."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from widenet.data.assemble import SortedEntries, assembled
from widenet.data.formats.memory import is_table
from widenet.data.formats.source import Reading
from widenet.data.known import KnownFeatures
from widenet.data.manifest import PARTS, Manifest, Part
from widenet.data.merging import Merging
from widenet.data.rules import FieldLayout, check_field_name
from widenet.data.selection import Duplicates, Moment, Selection, is_date, moment
from widenet.data.side_fields import SideFields, SideTables
from widenet.data.sources import Roles, Sources, opened
from widenet.data.tables import OnRows, Tables, database
from widenet.data.writer import publication, write_contents
from widenet.errors import DataError, OptionError
from widenet.plan.machine import available_threads

_DELIMITER_WORDS = {"tab": "\t", "\\t": "\t", "space": " "}


def ingest(
    sources: Any,
    out: Path | str,
    *,
    user: str | None = None,
    item: str | None = None,
    value: str | None = None,
    time: str | None = None,
    min_value: float | None = None,
    keep_values: bool = False,
    users: Any = None,
    users_id: str | None = None,
    sparse: Mapping[str, str] | None = None,
    dense: Mapping[str, Sequence[str]] | None = None,
    weight: str | None = None,
    titles: Path | str | None = None,
    title_id: str | None = None,
    title: str | None = None,
    vocabulary: Path | str | None = None,
    grow: bool = False,
    heldout: Any = None,
    sequence: bool = False,
    heldout_last: int | None = None,
    heldout_since: Moment | None = None,
    validation_last: int | None = None,
    validation_since: Moment | None = None,
    duplicates: Duplicates | None = None,
    since: Moment | None = None,
    until: Moment | None = None,
    min_user_items: int = 0,
    min_item_users: int = 0,
    format: str | None = None,  # noqa: A002
    delimiter: str | None = None,
    header: bool | None = None,
    columns: Sequence[str] | None = None,
    skip_bad_lines: int = 0,
    field: str = "items",
    name: str | None = None,
    memory: str | None = None,
    threads: int | None = None,
    on_progress: Callable[[str], None] | None = None,
    on_rows: OnRows | None = None,
) -> Manifest:
    """Publish the dataset of some interactions; docs/data.md says what each option means, docs/architecture.md the order and form.

    sources, heldout: a path, a pattern of paths, "-" for standard input, a pandas, Polars or Arrow table, a SciPy matrix,
        a tuple of arrays (users, items, and perhaps values, times), or a list of such.
    users: a source of the users' own columns. titles: a file that names items. on_progress: is told each phase.
    on_rows: is told, within a phase, how many rows or examples are done, and of how many, or None where that is not known yet.
    Raises DataError naming place, column, rule and value; OptionError for an option that is wrong.
    """
    asked = SimpleNamespace(**locals())
    asked.say, asked.threads = on_progress or _in_silence, available_threads() if threads is None else threads
    check_field_name(field)
    work = _Work(asked, _selection(asked))
    with publication(Path(out)) as folder, database(folder / "scratch", memory, asked.threads) as connection:
        return work.done(folder, Tables(connection, folder / "scratch", asked.sequence, on_rows, work.known, field))


def _selection(asked: SimpleNamespace) -> Selection:
    """Which interactions are kept and set aside."""
    parts: tuple[Part, ...] = ("heldout", "validation")
    last = {part: getattr(asked, f"{part}_last") for part in parts}
    start = {part: getattr(asked, f"{part}_since") for part in parts}
    moments = {"--since": asked.since, "--until": asked.until, **{f"--{part}-since": given for part, given in start.items()}}
    return Selection(
        asked.duplicates or ("max" if asked.time is None else "last"),
        asked.min_value,
        moment("--since", asked.since, -math.inf),
        moment("--until", asked.until, math.inf),
        asked.min_user_items,
        asked.min_item_users,
        {part: number for part, number in last.items() if number is not None},
        {part: moment(f"--{part}-since", given, 0) for part, given in start.items() if given is not None},
        asked.sequence,
        asked.vocabulary is not None and not asked.grow,
        [option for option, given in moments.items() if is_date(given)],
    )


class _Work:
    """An ingest whose options are known to be right."""

    def __init__(self, asked: SimpleNamespace, selection: Selection) -> None:
        self._asked, self._selection = asked, selection
        counts_rows = asked.value is None and selection.duplicates == "sum"
        self._side = SideFields(asked.users, asked.users_id, asked.sparse or {}, asked.dense or {}, asked.weight)
        self._roles = Roles(asked.user, asked.item, asked.value, asked.time, asked.min_value is not None and not counts_rows)
        _check_options(selection, self._roles, asked)
        self.known = KnownFeatures(None if asked.vocabulary is None else Path(asked.vocabulary))
        self.known.check(asked.field)
        self._has_values = asked.keep_values or ((asked.value is not None or counts_rows) and asked.min_value is None)
        columns, delimiter = None if asked.columns is None else tuple(asked.columns), _checked_delimiter(asked.delimiter)
        self._reading = Reading(asked.format, delimiter, asked.header, columns, self._roles.named)
        self._given: dict[Part, list[Any]] = {
            "train": _listed(asked.sources),
            "heldout": [] if asked.heldout is None else _listed(asked.heldout),
        }

    def done(self, folder: Path, tables: Tables) -> Manifest:
        """Fill a folder with the dataset."""
        asked, scratch = self._asked, folder / "scratch"
        made = {"train", *self._selection.divided, *(part for part, given in self._given.items() if given)}
        parts = tuple(part for part in PARTS if part in made)
        read = self._read(tables, scratch)
        asked.say("numbering examples and features")
        merging = Merging(tables, read, scratch, self._selection, asked.threads)
        tables.title(None if asked.titles is None else Path(asked.titles), asked.title_id, asked.title)
        side = SideTables(tables, self._side, read["train"], self._selection, scratch)
        asked.say("writing")
        entries = {part: SortedEntries(merging.entries(part)) for part in parts}
        kind: Literal["sparse", "sequence"] = "sequence" if asked.sequence else "sparse"
        return write_contents(
            folder,
            name=asked.name or read["train"].short_names[0].split(".")[0],
            layouts=[FieldLayout(asked.field, merging.num_features, kind, parts, self._has_values), *side.layouts],
            batches=tables.followed(
                assembled(side.examples(), entries, asked.field, self._has_values, side.entries()), merging.num_examples
            ),
            vocabularies={asked.field: tables.vocabulary(), **side.vocabularies()},
            has_weights=self._side.weight is not None,
            source={"sources": list(read["train"].short_names), "min_value": asked.min_value, **tables.facts},
        )

    def _read(self, tables: Tables, scratch: Path) -> dict[Part, Sources]:
        """Open the sources of each part, read their names and check every row."""
        asked, read = self._asked, {}
        for part, given in self._given.items():
            (folder := scratch / f"sources-{part}").mkdir()
            read[part] = Sources(opened(given, self._reading, folder), self._roles)
        for part, sources in read.items():
            for line in sources.described():
                asked.say(line)
            try:
                tables.read(part, sources)
            except DataError:
                num_skipped = asked.skip_bad_lines and sources.skip_bad_lines(asked.skip_bad_lines, scratch / f"sources-{part}", asked.say)
                if not num_skipped:
                    raise
                tables.read(part, sources)
                tables.facts[f"{part}_lines_skipped"] = num_skipped
        return read


def _check_options(selection: Selection, roles: Roles, asked: SimpleNamespace) -> None:
    if asked.sequence and (asked.keep_values or (asked.value is not None and asked.min_value is None)):
        raise OptionError("--sequence stores no values: with it, --value serves --min-value alone. Remove --value and --keep-values.")
    if asked.sequence and asked.duplicates is not None:
        raise OptionError("--sequence keeps every row, so that --duplicates has nothing to decide. Remove one.")
    if asked.keep_values and not roles.numbers and selection.duplicates != "sum":
        raise OptionError("--keep-values needs --value: without a value an interaction is just there. Name the value's column.")
    if selection.needs_time and roles.time is None:
        raise OptionError(f"{selection.needs_time[0]} needs --time. Name the time's column.")
    if asked.heldout is not None and "heldout" in selection.divided:
        raise OptionError("--heldout names a test part; --heldout-last and --heldout-since make another. Give one of them.")
    if asked.titles is None and (asked.title_id is not None or asked.title is not None):
        raise OptionError(f"--{'title' if asked.title_id is None else 'title-id'} needs --titles. Name the file of titles.")
    if asked.grow and asked.vocabulary is None:
        raise OptionError("--grow needs --vocabulary: without one every feature is new. Name a run or a dataset.")
    if asked.skip_bad_lines < 0:
        raise OptionError(f"--skip-bad-lines must be at least 0; got {asked.skip_bad_lines}.")


def _checked_delimiter(delimiter: str | None) -> str | None:
    if delimiter is None:
        return None
    delimiter = _DELIMITER_WORDS.get(delimiter, delimiter)
    if not 1 <= len(delimiter.encode()) <= 4 or set(delimiter) & set('"\r\n'):
        raise OptionError(f"--delimiter must be 1 to 4 bytes without quotes and ends of lines, or tab or space; got {delimiter!r}.")
    return delimiter


def _listed(given: Any) -> list[Any]:
    """The sources one by one."""
    listed = [given] if isinstance(given, str | Path) or is_table(given) else list(given)
    if not listed:
        raise OptionError("SOURCE must be at least one file; got none.")
    return listed


def _in_silence(phase: str) -> None:
    del phase
