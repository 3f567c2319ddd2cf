"""From files of interactions to a dataset directory: out of core, on DuckDB."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from widenet.data.assemble import SortedEntries, assembled
from widenet.data.formats.table import format_of, name_of
from widenet.data.manifest import Manifest, Part
from widenet.data.merging import Merging
from widenet.data.rules import FieldLayout, check_field_name
from widenet.data.sources import Roles, Sources
from widenet.data.tables import Tables, database
from widenet.data.writer import publication, write_contents
from widenet.errors import OptionError
from widenet.plan.machine import available_threads


def ingest(
    sources: Sequence[Path | str],
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
    heldout: Path | str | None = None,
    sequence: bool = False,
    format: str | None = None,  # noqa: A002
    field: str = "items",
    name: str | None = None,
    memory: str | None = None,
    threads: int | None = None,
    on_progress: Callable[[str], None] | None = None,
) -> Manifest:
    """Publish the dataset of some files of interactions; see docs/architecture.md for its order and form.

    sources: files of one meaning; their rows are put together. A file given twice changes nothing.
    user, item, value, time: columns; user and item are guessed from the obvious names. Ids are kept as text.
    value: a number for each interaction, stored as float32. Without it an interaction is just there.
    time: a number or a timestamp; where a user has an item several times the last one counts, without it the largest value.
    min_value: only interactions of at least this value stay; the value (guessed if not named) is stored only with `keep_values`.
    titles, title_id, title: a CSV or Parquet file that names items, and its columns.
    heldout: interactions of the same columns, for the final evaluation. Those also in the sources are dropped.
    sequence: every row of the sources stays, in the order of `time`, or else of the sources; a value serves `min_value` alone.
    format: "csv", "parquet" or "adjacency" for all sources; by suffix or content by default. on_progress: is told each phase.
    memory: DuckDB's, such as "8GB", or a quarter of what is left; it spills beside `out`. Neither it nor `threads` changes the result.
    Raises DataError naming file, line, column, rule and value; OptionError for an option that is wrong.
    """
    _check_options(value, min_value, time, keep_values, sequence)
    check_field_name(field)
    say = on_progress or _in_silence
    files, heldout, titles = _known_files(sources, format), _known_file(heldout, format), _known_file(titles, None)
    parts: tuple[Part, ...] = ("train", "heldout") if heldout else ("train",)
    has_values = keep_values or (value is not None and min_value is None)
    threads = available_threads() if threads is None else threads
    with publication(Path(out)) as folder, database(scratch := folder / "scratch", memory, threads) as connection:
        tables = Tables(connection, scratch, in_order=sequence)
        read = _read(tables, files, heldout, format, Roles(user, item, value, time, min_value is not None), say)
        say("numbering examples and features")
        merging = Merging(tables, read, scratch, min_value, threads, sequence)
        tables.title(titles, title_id, title)
        say("writing")
        entries = {part: SortedEntries(merging.entries(part)) for part in parts}
        return write_contents(
            folder,
            name=name or files[0].name.split(".")[0],
            layouts=[FieldLayout(field, merging.num_features, "sequence" if sequence else "sparse", parts, has_values)],
            batches=assembled(tables.example_ids(), entries, field, has_values),
            vocabularies={field: tables.vocabulary()},
            has_weights=False,
            source={"sources": [path.name for path in files], "min_value": min_value, **tables.facts},
        )


def _check_options(value: str | None, min_value: float | None, time: str | None, keep_values: bool, sequence: bool) -> None:
    if sequence and (keep_values or (value is not None and min_value is None)):
        raise OptionError("--sequence stores no values: with it, --value serves --min-value alone. Remove --value and --keep-values.")
    if not sequence and (time is not None or keep_values) and value is None and min_value is None:
        raise OptionError("--time and --keep-values need --value: without a value an interaction is just there. Name the value's column.")
    if min_value is not None and not math.isfinite(min_value):
        raise OptionError(f"--min-value must be a finite number; got {min_value}.")


def _known_files(given: Sequence[Path | str], file_format: str | None) -> list[Path]:
    """The files as paths, each there and of a known format."""
    if not given:
        raise OptionError("SOURCE must be at least one file; got none.")
    files = [Path(path) for path in given]
    for path in files:
        format_of(path, file_format)
    return files


def _known_file(given: Path | str | None, file_format: str | None) -> Path | None:
    return None if given is None else _known_files([given], file_format)[0]


def _read(
    tables: Tables, files: Sequence[Path], heldout: Path | None, format_name: str | None, roles: Roles, say: Callable[[str], None]
) -> dict[Part, Sources]:
    """Read the names of both parts, and check every row."""
    say(", ".join(f"reading {path.name} as {name_of(format_of(path, format_name))}" for path in files))
    parts: dict[Part, Sources] = {"train": Sources(files, format_name, roles)}
    tables.read("train", parts["train"])
    if heldout:
        say(f"reading {heldout.name}")
    parts["heldout"] = Sources([heldout] if heldout else [], format_name, roles)
    tables.read("heldout", parts["heldout"])
    return parts


def _in_silence(phase: str) -> None:
    del phase
