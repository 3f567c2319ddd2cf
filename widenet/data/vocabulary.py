"""Vocabularies: the ids, titles and counts of a field's features, memory-mapped."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.arguments import checked_positions
from widenet.data.manifest import sha256_of
from widenet.data.writer import VOCABULARY_SCHEMA
from widenet.errors import DataError, alike, reason_of


def open_table(path: Path, what: str, sha256: str | None) -> pa.Table:
    """Open and check the table in a file, memory-mapped.

    Args:
        path: The file.
        what: Word for such a file in messages.
        sha256: The file's SHA-256, if it is known.

    Raises:
        DataError: The file is missing, damaged, or not an Arrow IPC file.
    """
    if not path.is_file():
        raise DataError(f"{path}: the {what} does not exist.")
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


NUM_SUGGESTIONS = 5
NUM_COMPARED = 5_000
"""Largest number of titles with which an unknown title is compared; one comparison takes microseconds."""

_LOOKED_AT = 100
"""How many ids tell whether ids are numbers."""


class Vocabulary:
    """The names of a field's features, by index; a single Arrow file, which may be copied."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path = path
        self._table = table

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
        if not table.schema.equals(VOCABULARY_SCHEMA):
            names = ", ".join(table.schema.names)
            raise DataError(f"{path}: a vocabulary must have the columns id, title, count; got {names}.")
        if table.column("id").null_count or table.column("count").null_count:
            raise DataError(f"{path}: a vocabulary must name and count every feature.")
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
        return bool(self._table.column("title").null_count < len(self))

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
        unknown = np.flatnonzero(indices < 0)
        if len(unknown):
            rule = f"is not among the {len(self):,} of the vocabulary"
            raise DataError(f"{self.path}: the id {ids[unknown[0]]!r} {rule}.")
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
        title contains the text. Where ids are numbers, a number is an id or a whole title: part of a title
        would hide a wrong id.

        Raises:
            DataError: There is no such feature, or the text is a part of more than NUM_SUGGESTIONS titles;
                the message has the nearest titles, or the most popular ones.
        """
        field = self.path.name.partition(".")[0]
        if found := self.matching(text) if isinstance(text, str) else self._with_id(str(text)):
            if len(found) > NUM_SUGGESTIONS and found != self._with_title(str(text)):
                first = "; ".join(self.shown(found[:NUM_SUGGESTIONS]))
                what = f'{text!r} is a part of {len(found):,} titles in the field "{field}"'
                raise DataError(f"{what}: {first} and {len(found) - NUM_SUGGESTIONS:,} more.")
            return found
        near = self._nearest(text) if isinstance(text, str) else []
        remedy = f" Nearest: {'; '.join(near)}." if near else ""
        what = "the id or the title" if isinstance(text, str) and self.num_titles else "the id"
        rule = f"{what} {str(text)!r}{'' if self.num_titles else ', and it has no titles'}"
        raise DataError(f'nothing in the field "{field}" has {rule}.{remedy}')

    def find_each(self, texts: Sequence[str | int]) -> list[list[int]]:
        """As `find` for each of some texts, in their order; looks ids up all at once."""
        distinct = list(dict.fromkeys(texts))
        places = self.places_of([str(text) for text in distinct]).tolist()
        found = {
            text: self.find(text) if place < 0 else [place]
            for text, place in zip(distinct, places, strict=True)
        }
        return [found[text] for text in texts]

    def matching(self, text: str) -> list[int]:
        """As `find`; returns an empty list if there is no such feature."""
        if matches := self._with_id(text) or self._with_title(text):
            return matches
        return [] if text.isdecimal() and self._has_numbers else self._containing(text)

    def search(self, text: str, most: int) -> list[int]:
        """Return features for a text that somebody types, which may be a part of an id or title.

        First comes the feature with this id. Then come those with this title, those whose title contains the
        text, and last ids that begin with it. Within each of these, the most popular is first.
        """
        if not text:
            return []
        (sought,) = _text(text).to_pylist()
        beginning = self._matching("id", lambda names: pc.starts_with(names, sought))
        found = [*self._with_id(text), *self._with_title(text), *self._containing(text), *beginning]
        return list(dict.fromkeys(found))[:most]

    @property
    def num_titles(self) -> int:
        """Number of features that have a title."""
        titles = self._table.column("title")
        return len(titles) - int(titles.null_count)

    @cached_property
    def _has_numbers(self) -> bool:
        """Whether ids are numbers: all of some that lie evenly among them."""
        step = -(-len(self) // _LOOKED_AT)
        return all(name.isdecimal() for name in self.ids(range(0, len(self), step)))

    def _with_id(self, text: str) -> list[int]:
        return self._matching("id", lambda names: pc.is_in(names, value_set=_text(text)))

    def _with_title(self, text: str) -> list[int]:
        lowered = _text(text.lower())
        return self._matching("title", lambda names: pc.is_in(pc.utf8_lower(names), value_set=lowered))

    def _containing(self, text: str) -> list[int]:
        """The features whose title contains a text, in any case."""
        (sought,) = _text(text).to_pylist()
        if not sought.strip():
            return []
        return self._matching("title", lambda titles: pc.match_substring(titles, sought, ignore_case=True))

    def _matching(self, column: str, rule: Callable[[pa.Array], pa.Array]) -> list[int]:
        """The features that fulfil a rule, most popular first."""
        indices = [
            start + place
            for start, names in self._chunks(column)
            for place in pc.indices_nonzero(rule(names)).to_pylist()
        ]
        counts = self.counts
        return sorted(indices, key=lambda index: (-counts[index], index))

    def _nearest(self, text: str) -> list[str]:
        """Features with a title or an id like a text: of those that share a word or the first, as `shown`."""
        sharing = {index for word in text.split() if len(word) > 2 for index in self._containing(word)}
        indices = sorted(sharing or range(min(len(self), NUM_COMPARED)))[:NUM_COMPARED]
        names: dict[str, str] = {}
        for (name, title), shown in zip(self.named(indices), self.shown(indices), strict=True):
            names.setdefault(title, shown)
            if not self._has_numbers:
                names.setdefault(name, shown)
        return list(dict.fromkeys(names[each] for each in alike(text, names, NUM_SUGGESTIONS, cutoff=0.5)))

    def _take(self, column: str, indices: Sequence[int] | np.ndarray) -> list[object]:
        """The values of a column for some features; None for null, OptionError for an unknown feature."""
        rows = checked_positions(str(self.path), "indices", indices, len(self))
        return _values_at(self._table.column(column), rows)

    def _chunks(self, column: str) -> list[tuple[int, pa.Array]]:
        """The chunks of a column, each with the index of its first row."""
        chunks = self._table.column(column).chunks
        starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
        return [(int(start), chunk) for start, chunk in zip(starts, chunks, strict=False)]


def _values_at(column: pa.ChunkedArray, rows: np.ndarray) -> list[object]:
    """The values of a column at some rows, int64 [R]; None for null."""
    if column.num_chunks == 1:
        return list(column.chunk(0).take(_arrow(rows)).to_pylist())
    taken: list[object] = [None] * len(rows)
    stops = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    owners = np.searchsorted(stops, rows, side="right")
    for owner in np.unique(owners):
        chunk = column.chunk(int(owner))
        positions = np.flatnonzero(owners == owner)
        names = chunk.take(_arrow(rows[positions] - (stops[owner] - len(chunk)))).to_pylist()
        for position, name in zip(positions.tolist(), names, strict=True):
            taken[position] = name
    return taken


def _arrow(indices: np.ndarray) -> pa.Array:
    """Make an Arrow array of int64 without a copy; `pa.array` would first import pandas if installed."""
    return pa.Array.from_buffers(pa.int64(), len(indices), [None, pa.py_buffer(indices)])


def _text(text: str) -> pa.Array:
    """Make an Arrow array of one text."""
    return texts_array([text])
