"""Writes files of recommendations block by block, as Parquet, CSV or JSON lines."""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widenet.arguments import check_choice
from widenet.errors import DataError, OptionError
from widenet.regular_files import check_new
from widenet.stores.durable import appearing
from widenet.stores.folders import file_out
from widenet.stores.uri import is_uri

SCHEMA = pa.schema(
    [("user", pa.string()), ("item", pa.string()), ("score", pa.float32()), ("rank", pa.int32())]
)
"""The columns of Parquet and CSV files: one row for each recommendation, ranks from 1."""

ROW_GROUP = 131_072
"""Rows of a Parquet row group. The Parquet writer holds at most one group and one block in memory."""

_HEAD_BYTES = 2**16
_BEGINNING = re.compile(rb"\Z|user,item,score,rank\n|\{\"user\": \"[^\n]*\"items\": \[")
"""How CSV and JSON lines begin; without users, the latter are empty."""
FORMATS = ("parquet", "csv", "jsonl")


@dataclass(frozen=True)
class Block:
    """R recommendations of E users, user by user, best first.

    Attributes:
        users: E names.
        counts: Number of recommendations of each user, int64 [E].
        items: R ids.
        scores: float32 [R].
        units: The items' units, int64 [R].
    """

    users: list[str]
    counts: np.ndarray
    items: list[str]
    scores: np.ndarray
    units: np.ndarray


class Writer:
    """An open file of recommendations; `open_results` makes it."""

    def __init__(self, path: Path, file: BinaryIO, file_format: str) -> None:
        self._path, self._file, self._format = path, file, file_format
        self._pending = SCHEMA.empty_table()
        if file_format == "parquet":
            self._parquet = pq.ParquetWriter(file, SCHEMA, compression="zstd")
        elif file_format == "csv":
            file.write(f"{','.join(SCHEMA.names)}\n".encode())

    def write(self, block: Block) -> None:
        """Append a block of recommendations.

        Raises:
            DataError: A score is not finite.
        """
        DataError.require(np.isfinite(block.scores).all(), "scores must be finite", place=self._path)
        table = table_of(block)
        if self._format != "parquet":
            text = _csv(table) if self._format == "csv" else _json_lines(block, table)
            self._file.write(text.encode())
            return
        self._pending = pa.concat_tables([self._pending, table])
        while len(self._pending) >= ROW_GROUP:
            self._write_group()

    def close(self) -> None:
        """Write what is pending, and the end of the file."""
        if self._format == "parquet":
            if len(self._pending):
                self._write_group()
            self._parquet.close()

    def _write_group(self) -> None:
        self._parquet.write_table(self._pending.slice(0, ROW_GROUP).combine_chunks(), ROW_GROUP)
        self._pending = self._pending.slice(ROW_GROUP)


@contextmanager
def open_results(path: Path, file_format: str | None = None, *, overwrite: bool = False) -> Iterator[Writer]:
    """Open a file of recommendations, which appears only when it is complete.

    The bytes do not depend on the blocks. Memory is a few times one block.

    Args:
        path: The file to write; its folders are created. It may be a URI.
        file_format: "parquet", "csv" or "jsonl"; None uses the extension of `path`.
        overwrite: Whether to replace an earlier file of recommendations.

    Raises:
        OptionError: The format or extension is unknown, or the path exists or cannot be written.
        StoreError: `path` is a URI, and the store refuses.
    """
    known = check_results(path, file_format, overwrite)
    if is_uri(path):
        with file_out(path) as place, open_results(place, known) as writer:
            yield writer
        return
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(appearing(path))
        except OSError as error:
            raise OptionError(
                f"its folder must be one to write to; got: {error.strerror}", place=path
            ) from error
        writer = Writer(path, file, known)
        try:
            yield writer
        except BaseException:
            # Closing writes the rest into a file that will not appear; its errors would hide the first one.
            with suppress(Exception):
                writer.close()
            raise
        writer.close()


def check_results(path: Path, file_format: str | None, overwrite: bool) -> str:
    """Return the format of a file of recommendations to write; raises OptionError as `open_results`."""
    OptionError.require(path != Path("-"), "recommendations go to a file, not to standard output")
    check_choice("file_format", file_format, FORMATS)
    chosen = file_format or path.suffix.lower().removeprefix(".")
    if chosen not in FORMATS:
        rule = f"the extension must be one of {', '.join(f'.{name}' for name in FORMATS)}"
        raise OptionError(rule, place=path, value=path.suffix.lower())
    if is_uri(path):
        OptionError.require(not overwrite, "is for local files", option="overwrite", value=str(path))
    else:
        check_new(path, overwrite, "a file of recommendations", _is_of_recommendations)
    return chosen


def _is_of_recommendations(path: Path) -> bool:
    """Whether a file begins as one that this module writes."""
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head.startswith(b"PAR1"):
        with suppress(pa.ArrowException):
            return bool(pq.read_schema(path).equals(SCHEMA))
    return _BEGINNING.match(head) is not None


def table_of(block: Block) -> pa.Table:
    """The recommendations of a block, with the columns of SCHEMA."""
    starts = np.repeat(np.cumsum(block.counts) - block.counts, block.counts)
    owners = pa.array(np.repeat(np.arange(len(block.counts)), block.counts))
    ranks = pa.array(np.arange(1, len(block.items) + 1) - starts, pa.int32())
    users, items = (pa.array(names, pa.string()) for names in (block.users, block.items))
    columns = [users.take(owners), items, pa.array(block.scores, pa.float32()), ranks]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _csv(table: pa.Table) -> str:
    """Format recommendations as CSV: RFC 4180, except that a line ends with a lone line feed.

    Names with a comma, a quote or a line break are quoted.
    """
    names = [
        pc.if_else(
            pc.match_substring_regex(table[name], '[",\r\n]'),
            pc.binary_join_element_wise('"', pc.replace_substring(table[name], '"', '""'), '"', ""),
            table[name],
        )
        for name in ("user", "item")
    ]
    numbers = [table[name].cast(pa.string()) for name in ("score", "rank")]
    return "".join([f"{line}\n" for line in pc.binary_join_element_wise(*names, *numbers, ",").to_pylist()])


def _json_lines(block: Block, table: pa.Table) -> str:
    """Format recommendations as a line for each user: {"user": ..., "items": [{"item": ..., "score": ...}]}.

    Scores have as many digits as float32 needs.
    """
    pairs = zip(table["item"].to_pylist(), table["score"].cast(pa.string()).to_pylist(), strict=True)
    parts = [f'{{"item": {json.dumps(item)}, "score": {score}}}' for item, score in pairs]
    stops = np.cumsum(block.counts)
    return "".join(
        f'{{"user": {json.dumps(user)}, "items": [{", ".join(parts[start:stop])}]}}\n'
        for user, start, stop in zip(block.users, stops - block.counts, stops, strict=True)
    )
