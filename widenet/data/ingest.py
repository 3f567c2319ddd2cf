"""From sources of interactions to a dataset directory: out of core, on DuckDB."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from widenet.data.assemble import SortedEntries, assembled
from widenet.data.formats.memory import is_table
from widenet.data.formats.source import Reading
from widenet.data.manifest import Manifest, Part
from widenet.data.merging import Merging
from widenet.data.rules import FieldLayout, check_field_name
from widenet.data.sources import Roles, Sources, opened
from widenet.data.tables import Tables, database
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
    titles: Path | str | None = None,
    title_id: str | None = None,
    title: str | None = None,
    heldout: Any = None,
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
) -> Manifest:
    """Publish the dataset of some interactions; docs/data.md says what each option means, docs/architecture.md the order and form.

    sources, heldout: a path, a pattern of paths, "-" for standard input, a pandas, Polars or Arrow table, a SciPy matrix,
        a tuple of arrays (users, items, and perhaps values, times), or a list of such.
    titles: a CSV or Parquet file. on_progress: is told each phase.
    Raises DataError naming place, column, rule and value; OptionError for an option that is wrong.
    """
    _check_options(value, min_value, keep_values, skip_bad_lines)
    check_field_name(field)
    roles = Roles(user, item, value, time, min_value is not None)
    reading = Reading(format, _checked_delimiter(delimiter), header, None if columns is None else tuple(columns), roles.named)
    say, threads = on_progress or _in_silence, available_threads() if threads is None else threads
    given: dict[Part, list[Any]] = {"train": _listed(sources), "heldout": [] if heldout is None else _listed(heldout)}
    parts: tuple[Part, ...] = ("train", "heldout") if given["heldout"] else ("train",)
    has_values = keep_values or (value is not None and min_value is None)
    with publication(Path(out)) as folder, database(scratch := folder / "scratch", memory, threads) as connection:
        tables = Tables(connection, scratch)
        read = _read(tables, given, reading, roles, skip_bad_lines, scratch, say)
        say("numbering examples and features")
        merging = Merging(tables, read, scratch, min_value, threads)
        tables.title(None if titles is None else Path(titles), title_id, title)
        say("writing")
        entries = {part: SortedEntries(merging.entries(part)) for part in parts}
        return write_contents(
            folder,
            name=name or read["train"].short_names[0].split(".")[0],
            layouts=[FieldLayout(field, merging.num_features, parts=parts, has_values=has_values)],
            batches=assembled(tables.example_ids(), entries, field, has_values),
            vocabularies={field: tables.vocabulary()},
            has_weights=False,
            source={"sources": list(read["train"].short_names), "min_value": min_value, **tables.facts},
        )


def _check_options(value: str | None, min_value: float | None, keep_values: bool, skip_bad_lines: int) -> None:
    if keep_values and value is None and min_value is None:
        raise OptionError("--keep-values needs --value: without a value an interaction is just there. Name the value's column.")
    if min_value is not None and not math.isfinite(min_value):
        raise OptionError(f"--min-value must be a finite number; got {min_value}.")
    if skip_bad_lines < 0:
        raise OptionError(f"--skip-bad-lines must be at least 0; got {skip_bad_lines}.")


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


def _read(
    tables: Tables,
    given: Mapping[Part, Sequence[Any]],
    reading: Reading,
    roles: Roles,
    skip_bad_lines: int,
    scratch: Path,
    say: Callable[[str], None],
) -> dict[Part, Sources]:
    """Open the sources of each part, read their names and check every row."""
    read: dict[Part, Sources] = {}
    for part, each in given.items():
        (folder := scratch / f"sources-{part}").mkdir()
        read[part] = Sources(opened(each, reading, folder), roles)
    for part, sources in read.items():
        for line in sources.described():
            say(line)
        try:
            tables.read(part, sources)
        except DataError:
            num_skipped = sources.skip_bad_lines(skip_bad_lines, scratch / f"sources-{part}", say) if skip_bad_lines else 0
            if not num_skipped:
                raise
            tables.read(part, sources)
            tables.facts[f"{part}_lines_skipped"] = num_skipped
    return read


def _in_silence(phase: str) -> None:
    del phase
