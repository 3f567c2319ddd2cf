"""The names of a sparse field's features: ids, titles and counts, memory-mapped."""

import difflib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from widenet.data.manifest import sha256_of
from widenet.data.writer import VOCABULARY_SCHEMA
from widenet.errors import DataError

NUM_SUGGESTIONS = 5
NUM_COMPARED = 5_000
"""An unknown title is compared with the titles of this many features: a comparison costs microseconds."""


_REMEDY = "Copy it from the dataset again, or ingest again."
_Rule = Callable[[pa.Array], pa.Array]


class Vocabulary:
    """What each feature index stands for. One Arrow file, which may be copied elsewhere and opened there."""

    def __init__(self, path: Path, table: pa.Table) -> None:
        self.path = path
        self._table = table

    @classmethod
    def open(cls, path: str | Path, sha256: str | None = None) -> "Vocabulary":
        """Open the vocabulary in one file, after its bytes are compared and its names are found to be whole
        text.

        sha256: the file's, where somebody knows it.
        Raises DataError when the file is missing, damaged or no vocabulary.
        """
        path = Path(path)
        if not path.is_file():
            raise DataError(
                f"{path}: the vocabulary does not exist. Copy it from the dataset directory, or ingest again."
            )
        try:
            if sha256 is not None and sha256_of(path) != sha256:  # before Arrow reads a byte
                raise DataError(
                    f"{path}: the vocabulary is damaged: its SHA-256 is not the recorded one. {_REMEDY}"
                )
            table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
            table.validate(full=True)  # offsets and UTF-8, which Arrow's functions trust
        except (OSError, ValueError, pa.ArrowException) as error:
            raise DataError(
                f"{path}: a vocabulary must be an Arrow IPC file; {str(error).rstrip('.')}. {_REMEDY}"
            ) from error
        if not table.schema.equals(VOCABULARY_SCHEMA):
            raise DataError(
                f"{path}: a vocabulary must have the columns id, title, count; got"
                f" {', '.join(table.schema.names)}."
            )
        if table.column("id").null_count or table.column("count").null_count:
            raise DataError(
                f"{path}: a vocabulary must name and count every feature; some have no id or no count."
                f" {_REMEDY}"
            )
        return cls(path, table)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __repr__(self) -> str:
        return f"Vocabulary({str(self.path)!r}, {len(self):,} features)"

    @property
    def counts(self) -> np.ndarray:
        """Interactions of each feature in the train part, int64 [width]."""
        return np.from_dlpack(self._table.column("count").combine_chunks())

    def record_batches(self, counts: np.ndarray | None = None) -> Iterator[pa.RecordBatch]:
        """The rows as they are stored, with other counts (int64 [width]) if given; counts are read when
        asked for.
        """
        first = 0
        for batch in self._table.to_batches():
            stop = first + batch.num_rows
            yield batch if counts is None else batch.set_column(2, "count", pa.array(counts[first:stop]))
            first = stop

    def ids(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """The ids of some features."""
        return [str(name) for name in _take(self._table.column("id"), indices)]

    def all_ids(self) -> pa.Array:
        """The ids of all features."""
        return self._table.column("id").combine_chunks()

    def titles(self, indices: Sequence[int] | np.ndarray) -> list[str]:
        """The titles of some features; a feature without a title gives its id."""
        titles = _take(self._table.column("title"), indices)
        names = self.ids(indices) if None in titles else [""] * len(titles)
        return [name if title is None else str(title) for name, title in zip(names, titles, strict=True)]

    def index_of(self, ids: Sequence[str]) -> np.ndarray:
        """The indices of some ids, int64 [len(ids)]; raises DataError naming the first unknown id."""
        places = self.places_of(ids)
        unknown = np.flatnonzero(places < 0)
        if len(unknown):
            raise DataError(
                f"{self.path}: the id {ids[unknown[0]]!r} is not in the vocabulary of {len(self):,} features."
            )
        return places

    def places_of(self, ids: Sequence[str]) -> np.ndarray:
        """As `index_of`, with -1 for an unknown id."""
        asked = pa.array(dict.fromkeys(ids), type=pa.string())
        index_of: dict[str, int] = {}
        for start, names in self._chunks("id"):
            place = pc.index_in(names, value_set=asked)
            found = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
            index_of.update(
                (str(name), start + int(row))
                for row, name in zip(found, names.take(_arrow(found)).to_pylist(), strict=True)
            )
        return np.array([index_of.get(name, -1) for name in ids], dtype=np.int64)

    def indices_of(self, other: "Vocabulary") -> np.ndarray:
        """The index here of each feature of another vocabulary, int64 [its features]; -1 for those whose
        id is not here.
        """
        found = pc.index_in(other._table.column("id"), value_set=self._table.column("id"))
        return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)

    def find(self, text: str) -> list[int]:
        """The features that a text means, most popular first.

        The feature with this id, or else those with this title (in any case of letters), or else those whose
        title contains the text. Raises DataError with the nearest titles when there is none.
        """
        if found := self._matching("id", lambda names: pc.equal(names, text)):
            return found
        if found := self._matching("title", lambda titles: pc.equal(pc.utf8_lower(titles), text.lower())):
            return found
        if text and (
            found := self._matching(
                "title", lambda titles: pc.match_substring(titles, text, ignore_case=True)
            )
        ):
            return found
        near = self._nearest(text)
        remedy = (
            f" Nearest: {'; '.join(near)}."
            if near
            else f" Give the id of one that it has, such as {self.ids([0])[0]!r}."
        )
        field = self.path.name.partition(".")[0]
        raise DataError(f'no feature of the field "{field}" has the id or the title {text!r}.{remedy}')

    def _matching(self, column: str, rule: _Rule) -> list[int]:
        found: list[int] = []
        for start, names in self._chunks(column):
            matches = pc.fill_null(rule(names), False).to_numpy(zero_copy_only=False)
            found += (start + np.flatnonzero(matches)).tolist()
        counts = self.counts
        return sorted(found, key=lambda index: (-counts[index], index))

    def _nearest(self, text: str) -> list[str]:
        """Titles with words much like the text, among those that share a word with it, or else among the
        first ones.
        """
        words = [word for word in text.split() if len(word) > 2]
        candidates = {index for word in words for index in self._containing(word)} or range(
            min(len(self), NUM_COMPARED)
        )
        titles = self.titles(sorted(candidates)[:NUM_COMPARED])
        pieces: dict[str, str] = {}
        for title in titles:
            for word in re.finditer(r"\S+", title):
                pieces.setdefault(title[word.start() : word.start() + len(text) + 2].lower(), title)
        near = difflib.get_close_matches(text.lower(), pieces, n=NUM_SUGGESTIONS, cutoff=0.5)
        return list(dict.fromkeys(pieces[piece] for piece in near))

    def _containing(self, word: str) -> list[int]:
        return self._matching("title", lambda titles: pc.match_substring(titles, word, ignore_case=True))

    def _chunks(self, column: str) -> list[tuple[int, pa.Array]]:
        chunks = self._table.column(column).chunks
        starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
        return [(int(start), chunk) for start, chunk in zip(starts, chunks, strict=False)]


def _take(column: pa.ChunkedArray, indices: Sequence[int] | np.ndarray) -> list[object]:
    wanted = np.asarray(indices, dtype=np.int64)
    assert not len(wanted) or (wanted.min() >= 0 and wanted.max() < len(column)), (
        "feature indices must lie in [0, width)"
    )
    taken: list[object] = [None] * len(wanted)
    stops = np.cumsum([len(chunk) for chunk in column.chunks], dtype=np.int64)
    owners = np.searchsorted(stops, wanted, side="right")
    for owner in np.unique(owners):
        chunk = column.chunk(int(owner))
        places = np.flatnonzero(owners == owner)
        names = chunk.take(_arrow(wanted[places] - (stops[owner] - len(chunk)))).to_pylist()
        for place, name in zip(places.tolist(), names, strict=True):
            taken[place] = name
    return taken


def _arrow(places: np.ndarray) -> pa.Array:
    """int64 places as Arrow has them, not copied; `pa.array` would import pandas first, where it is
    installed.
    """
    return pa.Array.from_buffers(pa.int64(), len(places), [None, pa.py_buffer(places)])
