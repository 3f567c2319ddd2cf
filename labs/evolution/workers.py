"""Workers in processes of their own. Each holds the weights, and hears nothing but the others' scores."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

from labs.classifier import Examples, Floats
from labs.evolution.strategy import Settings, evolve, scored


def share(settings: Settings, worker: int, workers: int) -> range:
    """Return the pairs that a worker scores."""
    return range(settings.pairs * worker // workers, settings.pairs * (worker + 1) // workers)


def evolve_here(
    settings: Settings, start: Floats, data: Examples, generations: int, worker: int, links: list[Connection]
) -> Floats:
    """Evolve as one of several workers.

    Args:
        settings: Settings of the strategy.
        start: Initial weights.
        data: The training examples.
        generations: Number of generations.
        worker: Number of this worker.
        links: Connections to the others, in the order of their numbers.
    """
    workers = len(links) + 1
    order = [other for other in range(workers) if other != worker]

    def scores(weights: Floats, generation: int) -> NDArray[np.float64]:
        own = scored(settings, weights, data, generation, share(settings, worker, workers))
        received = {worker: own}
        # A pipe holds few bytes, so of two workers one sends while the other receives, and then the
        # other way round. All pairs meet in one order, so that one of them can always go on.
        for other, link in zip(order, links, strict=True):
            if worker < other:
                link.send_bytes(own.tobytes())
            received[other] = np.frombuffer(link.recv_bytes()).reshape(-1, 2)
            if worker > other:
                link.send_bytes(own.tobytes())
        return np.concatenate([received[each] for each in range(workers)])

    return evolve(settings, start, generations, scores)


def _serve(
    settings: Settings,
    start: Floats,
    data: Examples,
    generations: int,
    worker: int,
    links: list[Connection],
    answer: Connection,
) -> None:
    answer.send_bytes(evolve_here(settings, start, data, generations, worker, links).tobytes())


def evolve_with(
    settings: Settings, start: Floats, data: Examples, generations: int, workers: int
) -> list[Floats]:
    """Evolve with several workers, and return the weights that each of them has at the end."""
    context = multiprocessing.get_context("spawn")
    links: list[dict[int, Connection]] = [{} for _ in range(workers)]
    for first in range(workers):
        for second in range(first + 1, workers):
            links[first][second], links[second][first] = context.Pipe()
    answers = [context.Pipe(duplex=False) for _ in range(workers)]
    ordered = [[ends[other] for other in sorted(ends)] for ends in links]
    processes = [
        context.Process(
            target=_serve,
            args=(settings, start, data, generations, worker, ordered[worker], answers[worker][1]),
        )
        for worker in range(workers)
    ]
    with _running(processes):
        for _, send in answers:
            send.close()  # so that the end of a worker is seen
        return [np.frombuffer(receive.recv_bytes()) for receive, _ in answers]


@contextmanager
def _running(processes: list[multiprocessing.context.SpawnProcess]) -> Iterator[None]:
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.join(5)
            process.kill()
