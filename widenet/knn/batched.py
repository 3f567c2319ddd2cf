"""Single queries of many threads, answered together."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widenet.arguments import typed
from widenet.errors import OptionError
from widenet.knn.neighbours import Neighbours
from widenet.knn.sources import Array, source_of
from widenet.metrics import checked_k

Found = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass
class _Batch:
    """Queries that wait for one search. is_full: nobody else is taken in."""

    queries: list[Array] = field(default_factory=list)
    is_full: Event = field(default_factory=Event)
    answer: "Future[Found]" = field(default_factory=Future)


class BatchedNeighbours:
    """Answers single queries, from any number of threads, by searches over up to `size` of them at once.

    A query waits until `size` have come or `timeout_seconds` have passed since the first of them; the thread
    that brought the first one then searches for all. Who waits with whom changes no answer. For one process:
    a group's would not come to the same batches.
    """

    @typed
    def __init__(
        self, neighbours: Neighbours, k: int = 10, size: int = 128, timeout_seconds: float = 0.01
    ) -> None:
        if size < 1 or not timeout_seconds >= 0:
            raise OptionError(
                f"size must be at least 1 and timeout_seconds at least 0; got {size} and {timeout_seconds}."
            )
        self.neighbours, self.k, self.size, self.timeout_seconds = (
            neighbours,
            checked_k(k),
            size,
            timeout_seconds,
        )
        self._open: _Batch | None = None
        self._taking, self._searching = Lock(), Lock()

    def nearest(self, query: ArrayLike) -> Found:
        """Scores float64 [K] and positions int64 [K] of the vectors nearest to a query [D]; see
        `Neighbours.search`.

        Raises what a search for this query alone would raise.
        """
        source = source_of(np.asarray(query)[None], None)
        assert isinstance(source, Array), "numbers in memory"
        self.neighbours.check_queries(source)
        with self._taking:
            batch = self._open = self._open or _Batch()
            place = len(batch.queries)
            batch.queries.append(source)
            if len(batch.queries) == self.size:
                self._close(batch)
        if place == 0:
            self._answer(batch)
        scores_EK, positions_EK = batch.answer.result()
        return scores_EK[place], positions_EK[place]

    def _answer(self, batch: _Batch) -> None:
        """Wait for the batch and search for it; what goes wrong goes wrong for all."""
        try:
            batch.is_full.wait(self.timeout_seconds)
            with self._taking:
                self._close(batch)
            with self._searching:
                queries: NDArray[Any] = np.concatenate([query.rows(0, 1) for query in batch.queries])
                batch.answer.set_result(self.neighbours.search(queries, self.k))
        except BaseException as error:
            with self._taking:
                self._close(batch)
            batch.answer.set_exception(error)

    def _close(self, batch: _Batch) -> None:
        """Take no one else in."""
        if self._open is batch:
            self._open = None
        batch.is_full.set()
