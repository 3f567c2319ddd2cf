"""How the memory of an ingest is divided among those who take it."""

from dataclasses import dataclass

from widenet.data.buckets import BYTES_PER_BUCKET
from widenet.errors import OptionError
from widenet.plan.machine import available_memory
from widenet.plan.numbers import amount, bytes_of

_SHARE = 0.25
"""Of the memory that is left, what an ingest may take unless it is told."""

_ELSEWHERE = 200_000_000
"""What the rows take that are read and written, and DuckDB beyond its limit."""

_DATABASE_PER_THREAD = 125_000_000
_PER_THREAD = _DATABASE_PER_THREAD + BYTES_PER_BUCKET
_LEAST = _ELSEWHERE + _PER_THREAD


@dataclass(frozen=True)
class Limits:
    """What an ingest may take. database: DuckDB's bytes; None: no limit. threads: how many of its queries,
    and of buckets merged.
    """

    database: int | None
    threads: int

    @classmethod
    def within(cls, memory: str | None, threads: int) -> "Limits":
        """At most so many threads, and those that some memory is enough for: what is said, or else a share of
        what is left.

        memory: of the whole process, over what Python and the libraries take at its start. Raises
        OptionError.
        """
        if threads < 1:
            raise OptionError(f"threads must be at least 1; got {threads}.")
        room = available_memory()
        if memory is None and room is None:
            return cls(None, threads)
        total = bytes_of(memory, "`memory`") if memory is not None else max(int(_SHARE * (room or 0)), _LEAST)
        if total < _LEAST:
            raise OptionError(
                f"`memory` must be at least {amount(_LEAST)}; got {memory}. Give more; what does not fit goes"
                " to disk."
            )
        threads = min(threads, (total - _ELSEWHERE) // _PER_THREAD)
        return cls(total - _ELSEWHERE - threads * BYTES_PER_BUCKET, threads)
