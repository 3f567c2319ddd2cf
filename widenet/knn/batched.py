"""Answers single queries of many threads in batches."""

from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock

import numpy as np
from numpy.typing import ArrayLike, NDArray

from widenet.arguments import typed
from widenet.data.vectors import source_of
from widenet.errors import OptionError
from widenet.knn.neighbours import Neighbours
from widenet.metrics.ranking import checked_k

Answer = tuple[NDArray[np.float64], NDArray[np.int64]]
"""Scores and positions."""


@dataclass
class _Batch:
    """Queries that wait for one search; `is_full` is set when no more may join."""

    queries: list[NDArray[np.float32]] = field(default_factory=list)
    is_full: Event = field(default_factory=Event)
    answer: "Future[Answer]" = field(default_factory=Future)


class BatchedNeighbours:
    """Answers single queries from any number of threads, in batches of up to `size`.

    A query waits until the batch is full, or until `timeout_seconds` have passed since its first query. The
    thread of the first query then searches for the whole batch. Batching changes no answer. Use it in one
    process only: the processes of a group would form different batches.
    """

    @typed
    def __init__(
        self, neighbours: Neighbours, k: int = 10, size: int = 128, timeout_seconds: float = 0.01
    ) -> None:
        if size < 1 or not timeout_seconds >= 0:
            raise OptionError(
                f"size must be at least 1 and timeout_seconds at least 0; got {size} and {timeout_seconds}"
            )
        self.neighbours, self.k = neighbours, checked_k(k)
        self.size, self.timeout_seconds = size, timeout_seconds
        self._open: _Batch | None = None
        self._joining, self._searching = Lock(), Lock()

    def nearest(self, query: ArrayLike) -> Answer:
        """Return scores float64 [K] and positions int64 [K] of the vectors nearest to a query [D].

        See `Neighbours.search`; raises what a search for this query alone would raise.
        """
        query_1D = self.neighbours.check_queries(source_of(np.asarray(query)[None], None)).cpu().numpy()
        with self._joining:
            batch = self._open = self._open or _Batch()
            row = len(batch.queries)
            batch.queries.append(query_1D)
            if len(batch.queries) == self.size:
                self._close(batch)
        if row == 0:
            self._answer(batch)
        scores_EK, positions_EK = batch.answer.result()
        return scores_EK[row], positions_EK[row]

    def _answer(self, batch: _Batch) -> None:
        """Wait until the batch is closed and search for it; an error is passed to all its queries."""
        try:
            batch.is_full.wait(self.timeout_seconds)
            with self._joining:
                self._close(batch)
            with self._searching:
                batch.answer.set_result(self.neighbours.search(np.concatenate(batch.queries), self.k))
        except BaseException as error:
            with self._joining:
                self._close(batch)
            batch.answer.set_exception(error)

    def _close(self, batch: _Batch) -> None:
        """Let no more queries join a batch."""
        if self._open is batch:
            self._open = None
        batch.is_full.set()
