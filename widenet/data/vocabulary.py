"""Vocabularies: the ids, titles and counts of a field's features, memory-mapped."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import checked_positions
from widenet.data.manifest import sha256_of
from widenet.data.writer import VOCABULARY_SCHEMA
from widenet.errors import DataError, reason_of


def open_table(path: Path, what: str, sha256: str | None) -> pa.Table:
    """Open and check the table in a file, memory-mapped.

    Args:
        path: The file.
        what: Word for such a file in messages.
        sha256: The file's SHA-256, if it is known.

    Raises:
        DataError: The file is missing, damaged, or not an Arrow IPC file.
    """
    DataError.require(path.is_file(), f"must be a {what}; it does not exist", place=path)
    try:
        # Compared before Arrow reads anything.
        if sha256 is not None and sha256_of(path) != sha256:
            raise DataError(f"{path}: the {what} is damaged: its SHA-256 is not the recorded one.")
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
        # Checks offsets and UTF-8, which Arrow's functions trust.
        table.validate(full=True)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise DataError(f"{path}: a {what} must be an Arrow IPC file; {reason_of(error)}.") from error
    return table


def texts_array(texts: Sequence[str]) -> pa.Array:
    """Make an Arrow array of texts; `pa.array` would first import pandas if installed.

    What is no Unicode, as the arguments of a command can be, is escaped: no file holds such a text.
    """
    written = [text.encode(errors="backslashreplace") for text in texts]
    ends = np.cumsum([0, *map(len, written)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(written)))


if TYPE_CHECKING:
    import duckdb

NUM_SUGGESTIONS = 5

_LIKE_ENOUGH = 0.7
"""Least Jaro-Winkler similarity of a suggestion."""
_ID, _TITLE, _PART, _BEGINNING = range(4)
_PLAIN_TITLE, _PLAIN_TEXT = (f"strip_accents(lower({text}))" for text in ("title", "$text"))
_FOUND = f"""
    SELECT index, CASE
        WHEN id = $text THEN {_ID} WHEN lower(title) = lower($text) THEN {_TITLE}
        WHEN contains({_PLAIN_TITLE}, {_PLAIN_TEXT}) THEN {_PART}
        WHEN starts_with(id, $text) THEN {_BEGINNING}
    END AS rank FROM features WHERE rank IS NOT NULL ORDER BY rank, count DESC, index
"""
_NEAREST = f"""
    SELECT index FROM (
        SELECT index, count, greatest(
            jaro_winkler_similarity(coalesce({_PLAIN_TITLE}, ''), {_PLAIN_TEXT}),
            jaro_winkler_similarity(id, $text)
        ) AS likeness FROM features
    ) WHERE likeness >= {_LIKE_ENOUGH} ORDER BY likeness DESC, count DESC, index LIMIT {NUM_SUGGESTIONS}
"""


class Vocabulary:
    """The names of a field's features, by index; a single Arrow file, which may be copied."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path, self._table = path, table

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None) -> "Vocabulary":
        """Open and check the vocabulary in a file.

        Args:
            path: The file.
            sha256: The file's SHA-256, if it is known.

        Raises:
            DataError: The file is missing, damaged, or not a vocabulary.
        """
        path = Path(path)
        table = open_table(path, "vocabulary", sha256)
        is_one = table.schema.equals(VOCABULARY_SCHEMA)
        DataError.require(is_one, "must have the columns id, title and count", place=path)
        is_whole = not (table.column("id").null_count or table.column("count").null_count)
        DataError.require(is_whole, "must name and count every feature", place=path)
        return cls(path, table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"Vocabulary({str(self.path)!r}, {len(self):,} features)"

    @property
    def counts(self) -> np.ndarray:
        """Interactions of each feature in the train part, int64 [width]."""
        return np.from_dlpack(self._table.column("count").combine_chunks())

    @cached_property
    def has_titles(self) -> bool:
        """Whether any feature has a title."""
        return self.num_titles > 0

    def record_batches(self, counts: np.ndarray | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the stored rows, with other counts (int64 [width]) if there are any.

        The counts are read batch by batch, so they may be filled after this was called.
        """
        first = 0
        for batch in self._table.to_batches():
            stop = first + batch.num_rows
            yield batch if counts is None else batch.set_column(2, "count", pa.array(counts[first:stop]))
            first = stop

    def ids(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """The ids of some features."""
        return [str(name) for name in self._take("id", indices)]

    def all_ids(self) -> pa.Array:
        """The ids of all features."""
        return self._table.column("id").combine_chunks()

    def titles(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """The titles of some features; the id of a feature without a title."""
        return [title for _, title in self.named(indices)]

    def named(self, indices: Sequence[int] | np.ndarray) -> list[tuple[str, str]]:
        """The ids and `titles` of some features."""
        names = self.ids(indices)
        titles = self._take("title", indices) if self.has_titles else names
        return [
            (name, name if title is None else str(title)) for name, title in zip(names, titles, strict=True)
        ]

    def shown(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """Some features for people: their titles, each with its id, or their ids."""
        return [name if title == name else f"{title} ({name})" for name, title in self.named(indices)]

    def index_of(self, ids: Sequence[str]) -> np.ndarray:
        """The indices of some ids, int64 [len(ids)]; raises DataError that names the first unknown id."""
        indices = self.places_of(ids)
        unknown = [ids[place] for place in np.flatnonzero(indices < 0)[:1]]
        DataError.require(not unknown, "must be ids of the vocabulary", place=self.path, value=unknown)
        return indices

    def places_of(self, ids: Sequence[str]) -> np.ndarray:
        """As `index_of`, with -1 for an unknown id."""
        distinct = texts_array(list(dict.fromkeys(ids)))
        index_of: dict[str, int] = {}
        for start, names in self._chunks("id"):
            rows = pc.indices_nonzero(pc.index_in(names, value_set=distinct).is_valid())
            for row, name in zip(rows.to_pylist(), names.take(rows).to_pylist(), strict=True):
                index_of[str(name)] = start + row
        return np.array([index_of.get(name, -1) for name in ids], dtype=np.int64)

    def indices_of(self, other: "Vocabulary") -> np.ndarray:
        """The index in this vocabulary of each feature of another, int64 [features]; -1 for unknown ids."""
        indices = pc.index_in(other._table.column("id"), value_set=self._table.column("id"))
        return np.asarray(pc.fill_null(indices, -1).to_numpy(), dtype=np.int64)

    def find(self, text: str | int) -> list[int]:
        """Find features by id or title, most popular first; a number is an id.

        Returns the feature with this id; otherwise those with this title, in any case; otherwise those whose
        title contains the text, with or without its accents. A text of digits is an id or a whole title: part
        of a title would hide a wrong id.

        Raises:
            DataError: There is no such feature, or the text is a part of more than NUM_SUGGESTIONS titles;
                the message has the nearest titles, or the most popular ones.
        """
        return self.find_each([text])[0]

    def _found(self, database: "duckdb.DuckDBPyConnection", text: str | int) -> list[int]:
        """As `find`, for a text that is no id."""
        ranked = _rows(database, _FOUND, text) if isinstance(text, str) else []
        worst = _TITLE if str(text).isdecimal() else _PART
        found = [index for index, rank in ranked if rank == ranked[0][1] <= worst]
        place = f'field "{self.path.name.partition(".")[0]}"'
        if len(found) > NUM_SUGGESTIONS and ranked[0][1] == _PART:
            first = "; ".join(self.shown(found[:NUM_SUGGESTIONS]))
            raise DataError(f"{len(found):,} titles have this part: {first}", place=place, value=text)
        if found:
            return found
        near = self.shown([index for (index,) in _rows(database, _NEAREST, str(text))])
        nearest = f"; the nearest are {'; '.join(near)}" if near else ""
        raise DataError(f"must be the id or the title of a feature{nearest}", place=place, value=text)

    def find_each(self, texts: Sequence[str | int]) -> list[list[int]]:
        """As `find` for each of some texts, in their order; looks ids up all at once."""
        distinct = list(dict.fromkeys(texts))
        places = self.places_of([str(text) for text in distinct]).tolist()
        found = dict(zip(distinct, ([place] for place in places), strict=True))
        if unknown := [text for text in distinct if found[text] == [-1]]:
            with self._database() as database:
                found |= {text: self._found(database, text) for text in unknown}
        return [found[text] for text in texts]

    def search(self, text: str, most: int) -> list[int]:
        """Return features for a text that somebody types, which may be a part of an id or title.

        First comes the feature with this id. Then come those with this title, those whose title contains the
        text, and last ids that begin with it. Within each of these, the most popular is first.
        """
        with self._database() as database:
            return [index for index, _ in _rows(database, _FOUND, text)[:most]]

    @contextmanager
    def _database(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """Give a database with the table `features`; one that stayed open would end a forked process."""
        import duckdb  # only a search needs it

        features = self._table.append_column("index", _arrow(np.arange(len(self))))
        with duckdb.connect(config={"threads": 1}) as database:
            yield database.register("features", features)

    @property
    def num_titles(self) -> int:
        """Number of features that have a title."""
        titles = self._table.column("title")
        return len(titles) - int(titles.null_count)

    def _take(self, column: str, indices: Sequence[int] | np.ndarray) -> list[object]:
        """The values of a column for some features; None for null, OptionError for an unknown feature."""
        rows = checked_positions(str(self.path), "indices", indices, len(self))
        chunks = self._table.column(column).chunks
        if len(chunks) == 1:
            return list(chunks[0].take(_arrow(rows)).to_pylist())
        # Arrow would first make one array of the chunks.
        starts = np.cumsum([0, *map(len, chunks)])
        owners = np.searchsorted(starts, rows, side="right") - 1
        taken: list[object] = [None] * len(rows)
        for owner in np.unique(owners):
            places = np.flatnonzero(owners == owner)
            values = chunks[owner].take(_arrow(rows[places] - starts[owner])).to_pylist()
            for place, value in zip(places.tolist(), values, strict=True):
                taken[place] = value
        return taken

    def _chunks(self, column: str) -> list[tuple[int, pa.Array]]:
        """The chunks of a column, each with the index of its first row."""
        chunks = self._table.column(column).chunks
        starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
        return [(int(start), chunk) for start, chunk in zip(starts, chunks, strict=False)]


def _arrow(indices: np.ndarray) -> pa.Array:
    """Make an Arrow array of int64 without a copy; `pa.array` would first import pandas if installed."""
    return pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices)])


def _rows(database: "duckdb.DuckDBPyConnection", query: str, text: str) -> list[tuple[int, ...]]:
    """The rows of a query about a text; none for an empty one."""
    sought = text.encode(errors="backslashreplace").decode()
    return database.execute(query, {"text": sought}).fetchall() if text.strip() else []
