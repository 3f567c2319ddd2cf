"""Files of recommendations, written block by block: Parquet, CSV, JSON lines, DSSTNE text."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widenet.durable import appearing
from widenet.errors import DataError, OptionError, did_you_mean

SCHEMA = pa.schema(
    [("user", pa.string()), ("item", pa.string()), ("score", pa.float32()), ("rank", pa.int32())]
)
"""The columns of Parquet and CSV files: one row for each recommendation, rank from 1."""

ROW_GROUP = 131_072
"""Rows of a Parquet row group; also what the Parquet writer holds in memory, besides one block."""

Strings: TypeAlias = Sequence[str] | pa.Array | pa.ChunkedArray
"""Names: a list, or an Arrow array of strings."""


class Writer:
    """An open file of recommendations; `open_results` makes it."""

    def __init__(self, path: Path, sink: "_ParquetSink | _TextSink") -> None:
        self._path = path
        self._sink = sink

    def write(
        self, users: Strings, counts: NDArray[np.int64], items: Strings, scores: NDArray[np.float32]
    ) -> None:
        """Append the recommendations of E users, R in all.

        users: E names.
        counts: int64 [E], how many recommendations each user has; may be 0.
        items: R names, those of the first user first, best first.
        scores: float32 [R], finite. Raises DataError for one that is not, and for a name that the format
        cannot hold.
        """
        assert len(users) == len(counts), "one count for each user"
        assert len(items) == len(scores) == counts.sum(), (
            "one score for each item, and as many as the counts say"
        )
        block = _Block(_strings(users), counts, _strings(items), scores.astype(np.float32, copy=False))
        bad = np.flatnonzero(~np.isfinite(block.scores))
        if len(bad):
            user, item, score = block.users[block.owners()[bad[0]]], block.items[bad[0]], block.scores[bad[0]]
            raise DataError(
                f'{self._path}: scores must be finite; got {score} for user "{user}", item "{item}". Train'
                " the network again."
            )
        self._sink.append(block)


@contextmanager
def open_results(path: Path, file_format: str | None = None) -> Iterator[Writer]:
    """A writer of recommendations whose file appears only when it is complete.

    path: the file to write, which must not exist yet; its folders are made.
    file_format: "parquet", "csv", "jsonl" or "dsstne"; None takes it from the extension of `path`.
    Raises OptionError for an unknown format or extension, or a path that exists or cannot be written.
    The bytes do not depend on how the recommendations were cut into blocks. Memory is a few times one block.
    """
    open_sink = _FORMATS[_known_format(path, file_format)]
    if path.exists():
        raise OptionError(f"{path} exists already. Choose another --out, or remove it first.")
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(appearing(path))
        except OSError as error:
            raise OptionError(
                f"{path}: its folder must be one to write to; got: {error.strerror}. Choose another."
            ) from error
        sink = open_sink(path, file)
        try:
            yield Writer(path, sink)
        except BaseException:
            with suppress(Exception):  # it writes on, into a file that will not appear
                sink.close()
            raise
        sink.close()


def _known_format(path: Path, file_format: str | None) -> str:
    if path.is_dir():
        raise OptionError(
            f"{path}: must be a file; got a directory. Name a file in it, such as"
            f" {path / 'recommendations.parquet'}."
        )
    if file_format is not None:
        if file_format not in _FORMATS:
            raise OptionError(
                f'"{file_format}" is not a known format of'
                f" recommendations.{did_you_mean(file_format, _FORMATS)}"
            )
        return file_format
    extension = path.suffix.lower()
    if extension not in _EXTENSIONS:
        known = ", ".join(_EXTENSIONS)
        raise OptionError(
            f'{path}: the extension must be one of {known}; got "{extension}". Rename the file, or name the'
            " format."
        )
    return _EXTENSIONS[extension]


@dataclass(frozen=True, slots=True)
class _Block:
    """What one call of `write` brought: users [E], counts int64 [E], items [R], scores float32 [R]."""

    users: pa.StringArray
    counts: NDArray[np.int64]
    items: pa.StringArray
    scores: NDArray[np.float32]

    def owners(self) -> NDArray[np.int64]:
        """The position in `users` that each recommendation belongs to, int64 [R]."""
        return np.repeat(np.arange(len(self.counts), dtype=np.int64), self.counts)

    def table(self) -> pa.Table:
        """The recommendations in the columns of SCHEMA."""
        starts = np.cumsum(self.counts) - self.counts
        ranks = np.arange(1, len(self.items) + 1) - np.repeat(starts, self.counts)
        columns = [
            self.users.take(pa.array(self.owners())),
            self.items,
            pa.array(self.scores),
            pa.array(ranks, pa.int32()),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMA)

    def lines(self, parts: Sequence[str], line: Callable[[str, Sequence[str]], str]) -> str:
        """One line for each user, from its name and the parts [R] that belong to it."""
        stops = np.cumsum(self.counts)
        bounds = zip(self.users.to_pylist(), (stops - self.counts).tolist(), stops.tolist(), strict=True)
        return "".join([line(user, parts[start:stop]) for user, start, stop in bounds])


def _strings(names: Strings) -> pa.StringArray:
    array = (
        names.cast(pa.string())
        if isinstance(names, pa.Array | pa.ChunkedArray)
        else pa.array(names, pa.string())
    )
    array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
    assert array.null_count == 0, "every user and item has a name"
    return array


class _ParquetSink:
    def __init__(self, _path: Path, file: BinaryIO) -> None:
        self._parquet = pq.ParquetWriter(file, SCHEMA, compression="zstd")
        self._pending: list[pa.Table] = []
        self._num_pending = 0

    def append(self, block: _Block) -> None:
        self._pending.append(block.table())
        self._num_pending += len(block.items)
        if self._num_pending >= ROW_GROUP:
            self._write(self._num_pending // ROW_GROUP * ROW_GROUP)

    def close(self) -> None:
        self._write(self._num_pending)
        self._parquet.close()

    def _write(self, num_rows: int) -> None:
        table = pa.concat_tables([SCHEMA.empty_table(), *self._pending])
        for start in range(0, num_rows, ROW_GROUP):
            self._parquet.write_table(
                table.slice(start, min(ROW_GROUP, num_rows - start)).combine_chunks(), ROW_GROUP
            )
        self._pending = [table.slice(num_rows)]
        self._num_pending -= num_rows


@dataclass(frozen=True, slots=True)
class _TextSink:
    path: Path
    file: BinaryIO
    render: Callable[[Path, _Block], str]

    def append(self, block: _Block) -> None:
        self.file.write(self.render(self.path, block).encode())

    def close(self) -> None:
        """Nothing is left to write."""


def _open_csv(path: Path, file: BinaryIO) -> _TextSink:
    file.write(f"{','.join(SCHEMA.names)}\n".encode())
    return _TextSink(path, file, _csv)


def _csv(_path: Path, block: _Block) -> str:
    """RFC 4180, except that a lone line feed ends a line: names are quoted where they hold a comma, a
    quote or a line break.
    """
    table = block.table()
    columns = [
        _csv_quoted(table["user"]),
        _csv_quoted(table["item"]),
        table["score"].cast(pa.string()),
        table["rank"].cast(pa.string()),
    ]
    return "".join([f"{line}\n" for line in pc.binary_join_element_wise(*columns, ",").to_pylist()])


def _csv_quoted(names: pa.ChunkedArray) -> pa.ChunkedArray:
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(names, '"', '""'), '"', "")
    return pc.if_else(pc.match_substring_regex(names, '[",\r\n]'), quoted, names)


def _json_lines(_path: Path, block: _Block) -> str:
    """One object for each user: {"user": ..., "items": [{"item": ..., "score": ...}]}; scores have the
    digits float32 needs.
    """
    scores = pa.array(block.scores).cast(pa.string()).to_pylist()
    parts = [
        f'{{"item": {json.dumps(item)}, "score": {score}}}'
        for item, score in zip(block.items.to_pylist(), scores, strict=True)
    ]
    return block.lines(
        parts, lambda user, own: f'{{"user": {json.dumps(user)}, "items": [{", ".join(own)}]}}\n'
    )


def _dsstne(path: Path, block: _Block) -> str:
    """What DSSTNE's predict writes: user, tab, then "item,score:" for each item, scores with three decimals.

    Its readers split a line at the first tab, then at colons, then at commas. So a user's name must not hold
    a tab or a line break, nor an item's name a tab, a line break, a colon or a comma; raises DataError for
    one that does.
    """
    _refuse(path, "a user", block.users, "[\t\r\n]", "a tab or a line break")
    _refuse(path, "an item", block.items, "[\t\r\n:,]", "a tab, a line break, a colon or a comma")
    parts = [
        f"{item},{score:4.3f}:"
        for item, score in zip(block.items.to_pylist(), block.scores.tolist(), strict=True)
    ]
    return block.lines(parts, lambda user, own: f"{user}\t{''.join(own)}\n")


def _refuse(path: Path, kind: str, names: pa.StringArray, pattern: str, what: str) -> None:
    bad = names.filter(pc.match_substring_regex(names, pattern))
    if len(bad):
        name = json.dumps(bad[0].as_py())
        raise DataError(
            f"{path}: in DSSTNE text, the name of {kind} must not hold {what}; got {name}. Write CSV or JSON"
            " lines."
        )


_FORMATS: dict[str, Callable[[Path, BinaryIO], _ParquetSink | _TextSink]] = {
    "parquet": _ParquetSink,
    "csv": _open_csv,
    "jsonl": partial(_TextSink, render=_json_lines),
    "dsstne": partial(_TextSink, render=_dsstne),
}
_EXTENSIONS = {f".{name}": name for name in _FORMATS}
