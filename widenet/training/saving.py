"""The checkpoints of a training: when one is due, and how it is written while the training goes on."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from widenet.model.network import Network
from widenet.parallel.group import by_leader
from widenet.publication import Publication
from widenet.training.run_directory import RunDirectory
from widenet.training.snapshot import Snapshot


class Saving:
    """Saves a training into its run directory, in the background where it has room for a snapshot.

    In the background, every process copies its weights and state between two steps; a thread of its own
    writes the copy while the steps go on. When all have written their files, the leader's thread publishes
    the checkpoint. One is on its way at a time. All processes call the methods in the same order; whatever
    depends on a clock or on a thread is agreed on first.

    seconds: how long the training has waited for checkpoints.
    """

    def __init__(self, run: RunDirectory, network: Network, in_background: bool) -> None:
        self.run, self.network, self.asked = run, network, run.training.checkpoints
        self.snapshot = Snapshot(network) if in_background else None
        self.thread = ThreadPoolExecutor(
            1, thread_name_prefix="checkpoint", initializer=partial(torch.set_num_threads, 1)
        )
        self.pending: Publication | None = None
        self.work: Future[Any] | None = None
        self.is_placing = self.is_owed = self.is_closed = False
        self.newest, self.seconds = monotonic(), 0.0

    def is_late(self) -> bool:
        """Whether the last checkpoint is `every_minutes` old, by the clock of the leader."""
        minutes = self.asked.every_minutes
        return (
            minutes is not None and self.network.exchange.leads and monotonic() - self.newest >= 60 * minutes
        )

    def is_writing(self) -> bool:
        """Whether this process is writing in the background."""
        return self.work is not None and not self.work.done()

    def falls_due(self, step: int, is_late: bool) -> bool:
        """Whether to save after a step. step: number in the whole training. is_late: what the leader said.

        A checkpoint that falls due while one is on its way is taken as soon as that one is published.
        """
        every = self.asked.every_steps
        self.is_owed = self.is_owed or is_late or (every is not None and step % every == 0)
        return self.is_owed and self.pending is None

    def save(self, facts: dict[str, Any], position: tuple[int, int], at_once: bool) -> None:
        """Begin a checkpoint of the state at hand; at_once: it is there when this returns.

        Raises CheckpointError, of this checkpoint or of the one before.
        """
        self.finish()
        started = monotonic()
        if self.snapshot is None or at_once:
            self.run.save_checkpoint(self.network, facts, position)
        else:
            self.pending = Publication(self.run.checkpoint_path(position), self.network.exchange, facts)
            self.work = self.thread.submit(self.pending.write, self._files(self.snapshot.take()))
        self.is_owed, self.newest = False, monotonic()
        self.seconds += self.newest - started

    def save_best(self, facts: Mapping[str, Any]) -> None:
        """Publish the weights as the best so far, before this returns."""
        started = monotonic()
        self.run.save_model("best", self.network, facts)
        self.seconds += monotonic() - started

    def go_on(self, is_writing: bool) -> None:
        """Take the next stage of the checkpoint on its way, if no process is writing any more.

        Raises CheckpointError in all.
        """
        if self.pending is None or is_writing:
            return
        if self.is_placing:
            by_leader(self.network.exchange, self._placed, "checkpoint")
            self.pending, self.work, self.is_placing = None, None, False
            return
        assert self.work is not None
        self.pending.gather(self.work.result())
        self.work = self.thread.submit(self._place, self.pending) if self.network.exchange.leads else None
        self.is_placing = True

    def finish(self) -> None:
        """Wait until the checkpoint on its way is published."""
        started = monotonic()
        while self.pending is not None:
            if self.work is not None:
                wait([self.work])
            self.go_on(is_writing=False)
        self.seconds += monotonic() - started

    def close(self) -> None:
        """End the thread, and drop a checkpoint that is still on its way; what is being put in place is
        completed.
        """
        self.is_closed = True
        self.thread.shutdown()
        if self.pending is not None:
            self.pending.drop()
            self.pending = None

    def _files(
        self, copies: Mapping[str, Mapping[str, Tensor]]
    ) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
        """The copies, up to the moment at which nobody needs them any more."""
        for name, tensors in copies.items():
            if self.is_closed:
                return
            yield name, tensors

    def _place(self, publication: Publication) -> None:
        publication.put_in_place()
        self.run.point_to(publication.path.name)

    def _placed(self) -> None:
        assert self.work is not None
        self.work.result()
