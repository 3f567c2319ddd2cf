"""The database of an ingest: its memory is bounded, and a full disk or memory is one clear error."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from widenet.data.limits import Limits
from widenet.errors import NO_ROOM, DataError, reason_of, unwritten

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
