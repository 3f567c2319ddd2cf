"""Writes files of recommendations block by block, as Parquet, CSV, JSON lines or DSSTNE text."""

import json
import re
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

from widenet.errors import DataError, OptionError, nearest
from widenet.regular_files import check_new
from widenet.stores.durable import appearing
from widenet.stores.publish import file_out
from widenet.stores.uri import is_uri

SCHEMA = pa.schema(
    [("user", pa.string()), ("item", pa.string()), ("score", pa.float32()), ("rank", pa.int32())]
)
"""The columns of Parquet and CSV files: one row for each recommendation, ranks from 1."""

ROW_GROUP = 131_072
"""Rows of a Parquet row group. The Parquet writer holds at most one group and one block in memory."""

_HEAD_BYTES = 2**16
_BEGINNING = re.compile(
    rb"\Z|user,item,score,rank\n|\{\"user\": \"[^\n]*\"items\": \[|[^\t\n]*\t[^\t\n:,]+,-?\d+\.\d{3}:"
)
"""How CSV, JSON lines and DSSTNE text begin; without users, some of them are empty."""

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
        """Append R recommendations of E users.

        Args:
            users: E names.
            counts: Number of recommendations of each user, int64 [E]; may be 0.
            items: R names, user by user, best first.
            scores: float32 [R], finite.

        Raises:
            DataError: A score is not finite, or the format cannot hold a name.
        """
        assert len(users) == len(counts), "one count for each user"
        assert len(items) == len(scores) == counts.sum(), "one score for each item, as many as counted"
        block = _Block(_strings(users), counts, _strings(items), scores.astype(np.float32, copy=False))
        bad = np.flatnonzero(~np.isfinite(block.scores))
        if len(bad):
            row = bad[0]
            user, item = block.users[block.owners()[row]], block.items[row]
            raise DataError(
                f'scores must be finite; got {block.scores[row]} for user "{user}", item "{item}"',
                place=self._path,
            )
        self._sink.append(block)


@contextmanager
def open_results(path: Path, file_format: str | None = None, *, overwrite: bool = False) -> Iterator[Writer]:
    """Open a file of recommendations, which appears only when it is complete.

    The bytes do not depend on the blocks. Memory is a few times one block.

    Args:
        path: The file to write; its folders are created. It may be a URI.
        file_format: "parquet", "csv", "jsonl" or "dsstne"; None uses the extension of `path`.
        overwrite: Whether to replace an earlier file of recommendations.

    Raises:
        OptionError: The format or extension is unknown, or the path exists or cannot be written.
        StoreError: `path` is a URI, and the store refuses.
    """
    open_sink = _FORMATS[_known_format(path, file_format)]
    if is_uri(path):
        if overwrite:
            raise OptionError("is for local files", option="overwrite", value=str(path))
        with file_out(path) as place, open_results(place, file_format or _known_format(path, None)) as writer:
            yield writer
        return
    check_new(path, overwrite, "a file of recommendations", _is_of_recommendations)
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(appearing(path))
        except OSError as error:
            raise OptionError(
                f"its folder must be one to write to; got: {error.strerror}", place=path
            ) from error
        sink = open_sink(path, file)
        try:
            yield Writer(path, sink)
        except BaseException:
            # Closing writes the rest into a file that will not appear; its errors would hide the first one.
            with suppress(Exception):
                sink.close()
            raise
        sink.close()


def _known_format(path: Path, file_format: str | None) -> str:
    if path == Path("-"):
        raise OptionError("recommendations go to a file, not to standard output")
    if not is_uri(path) and path.is_dir():
        raise OptionError("must be a file; got a directory", place=path)
    if file_format is not None:
        if file_format not in _FORMATS:
            raise OptionError(
                f"must be one of {', '.join(_FORMATS)}.{nearest(file_format, _FORMATS)}", option="file_format"
            )
        return file_format
    extension = path.suffix.lower()
    if extension not in _EXTENSIONS:
        known = ", ".join(_EXTENSIONS)
        raise OptionError(f"the extension must be one of {known}", place=path, value=extension)
    return _EXTENSIONS[extension]


def _is_of_recommendations(path: Path) -> bool:
    """Whether a file begins as one that this module writes."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"PAR1"):
        with suppress(pa.ArrowException):
            return bool(pq.read_schema(path).equals(SCHEMA))
    return _BEGINNING.match(head) is not None


@dataclass(frozen=True, slots=True)
class _Block:
    """The arguments of one call of `write`: users [E], counts int64 [E], items [R], scores float32 [R]."""

    users: pa.StringArray
    counts: NDArray[np.int64]
    items: pa.StringArray
    scores: NDArray[np.float32]

    def owners(self) -> NDArray[np.int64]:
        """For each recommendation, the position of its user in `users`, int64 [R]."""
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
        """Join one line for each user, made from the user's name and own share of the R parts."""
        stops = np.cumsum(self.counts)
        bounds = zip(self.users.to_pylist(), (stops - self.counts).tolist(), stops.tolist(), strict=True)
        return "".join([line(user, parts[start:stop]) for user, start, stop in bounds])


def table_of(
    users: Strings, counts: NDArray[np.int64], items: Strings, scores: NDArray[np.float32]
) -> pa.Table:
    """The columns of SCHEMA for the arguments of `Writer.write`."""
    return _Block(_strings(users), counts, _strings(items), scores).table()


def _strings(names: Strings) -> pa.StringArray:
    if isinstance(names, pa.Array | pa.ChunkedArray):
        array = names.cast(pa.string())
    else:
        array = pa.array(names, pa.string())
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
            group = table.slice(start, min(ROW_GROUP, num_rows - start))
            self._parquet.write_table(group.combine_chunks(), ROW_GROUP)
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
        """Do nothing: all is written already."""


def _open_csv(path: Path, file: BinaryIO) -> _TextSink:
    file.write(f"{','.join(SCHEMA.names)}\n".encode())
    return _TextSink(path, file, _csv)


def _csv(_path: Path, block: _Block) -> str:
    """Format a block as CSV: RFC 4180, except that a line ends with a lone line feed.

    Names with a comma, a quote or a line break are quoted.
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
    """Format a block as one object for each user: {"user": ..., "items": [{"item": ..., "score": ...}]}.

    Scores have as many digits as float32 needs.
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
    """Format a block as DSSTNE does: user, tab, and "item,score:" with three decimals for each item.

    Its readers split a line at the first tab, then at colons, then at commas. So these characters and line
    breaks must not occur in the names of items, nor tabs and line breaks in those of users.

    Raises:
        DataError: A name has such a character.
    """
    _refuse(path, "a user", block.users, "[\t\r\n]", "a tab or a line break")
    _refuse(path, "an item", block.items, "[\t\r\n:,]", "a tab, a line break, a colon or a comma")
    parts = [
        f"{item},{score:4.3f}:"
        for item, score in zip(block.items.to_pylist(), block.scores.tolist(), strict=True)
    ]
    return block.lines(parts, lambda user, own: f"{user}\t{''.join(own)}\n")


def _refuse(path: Path, kind: str, names: pa.StringArray, pattern: str, characters: str) -> None:
    bad = names.filter(pc.match_substring_regex(names, pattern))
    if len(bad):
        name = json.dumps(bad[0].as_py())
        raise DataError(
            f"in DSSTNE text, the name of {kind} must not hold {characters}", place=path, value=name
        )


_FORMATS: dict[str, Callable[[Path, BinaryIO], _ParquetSink | _TextSink]] = {
    "parquet": _ParquetSink,
    "csv": _open_csv,
    "jsonl": partial(_TextSink, render=_json_lines),
    "dsstne": partial(_TextSink, render=_dsstne),
}
_EXTENSIONS = {f".{name}": name for name in _FORMATS}
