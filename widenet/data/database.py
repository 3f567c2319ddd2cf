"""The database of an ingest: its memory is bounded, and a full disk or memory is one clear error."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import duckdb

from widenet.data.buckets import BYTES_PER_BUCKET
from widenet.errors import NO_ROOM, DataError, OptionError, reason_of, unwritten
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount, bytes_of

_SHARE = 0.25
"""Share of the free memory that an ingest takes by default."""

_RESERVED = 200_000_000
"""Bytes for the rows in flight, and for what DuckDB takes beyond its limit."""

_DATABASE_PER_THREAD = 125_000_000
_PER_THREAD = _DATABASE_PER_THREAD + BYTES_PER_BUCKET
_LEAST = _RESERVED + _PER_THREAD


@dataclass(frozen=True)
class Limits:
    """Limits of an ingest.

    Attributes:
        database: DuckDB's memory limit in bytes; None for no limit.
        threads: Threads of DuckDB, and number of buckets that are merged at a time.
    """

    database: int | None
    threads: int

    @classmethod
    def within(cls, memory: str | None, threads: int) -> "Limits":
        """Compute the limits for some memory and at most this many threads.

        Args:
            memory: Memory of the whole process, such as "8GB", beyond what Python and the libraries take at
                their start; None takes a share of the free memory.
            threads: Largest number of threads, at least 1. Fewer are used if the memory is too small for all.

        Raises:
            OptionError: The memory is too small or invalid, or `threads` is below 1.
        """
        if threads < 1:
            raise OptionError(f"threads must be at least 1; got {threads}.")
        room = available_memory()
        if memory is None and room is None:
            return cls(None, threads)
        total = bytes_of(memory, "memory") if memory is not None else max(int(_SHARE * (room or 0)), _LEAST)
        if total < _LEAST:
            raise OptionError(
                f"`memory` must be at least {amount(_LEAST)}; got {memory}. Give more; what does not fit goes"
                " to disk."
            )
        threads = min(threads, (total - _RESERVED) // _PER_THREAD)
        return cls(total - _RESERVED - threads * BYTES_PER_BUCKET, threads)


_INTERRUPTED = "Query interrupted"


@contextmanager
def database(folder: Path, limits: Limits) -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a DuckDB in memory that spills into a temporary folder and reports a full disk or memory."""
    folder.mkdir()
    config: dict[str, str | bool | int | float | list[str]] = {
        "temp_directory": str(folder),
        "threads": limits.threads,
        "preserve_insertion_order": False,
        # Sources have no known length: these optimizers would keep them whole in memory.
        "disabled_optimizers": "build_side_probe_side,join_order",
    }
    try:
        with duckdb.connect(
            ":memory:", config=config | ({"memory_limit": f"{limits.database}B"} if limits.database else {})
        ) as connection:
            yield connection
    except (duckdb.OutOfMemoryException, duckdb.IOException) as error:
        raise DataError(
            f"{folder.parent}: not enough memory or disk space; {reason_of(error)}. Give more"
            " `memory`, or free some space."
        ) from error
    except RuntimeError as error:  # DuckDB's error for Ctrl-C during a query
        if str(error) != _INTERRUPTED:
            raise
        raise KeyboardInterrupt from None
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise DataError(unwritten(folder.parent, error)) from error
    finally:
        shutil.rmtree(folder)
