"""The checkpoints of a training: decides when one is due, and writes it while the training continues."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from widenet.devices import keep_to_one_thread
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.training.checkpoint import (
    TRUNK,
    neighbourhood_files,
    replicas_of,
    wide_file,
)
from widenet.training.publication import Publication
from widenet.training.run_directory import RunDirectory


class Saving:
    """Saves a training into its run directory, in the background if memory has room for a snapshot.

    In the background, every process copies its weights and state between two steps, and a thread writes the
    copy while the training continues. When all processes have written their files, the leader's thread
    publishes the checkpoint. Only one checkpoint is in progress at a time. All processes call the methods in
    the same order and first agree on everything that depends on a clock or a thread.

    Attributes:
        seconds: How long the training has waited for checkpoints.
    """

    def __init__(self, run: RunDirectory, network: Network, in_background: bool) -> None:
        self.run, self.network, self.settings = run, network, run.training.checkpoints
        self.snapshot = Snapshot(network) if in_background else None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint", initializer=keep_to_one_thread)
        self.pending: Publication | None = None
        self.work: Future[Any] | None = None
        self.is_placing = self.is_overdue = self.is_closed = self.has_saved = False
        self.newest, self.seconds = monotonic(), 0.0

    def is_late(self) -> bool:
        """Return whether the last checkpoint is `every_minutes` old, by the leader's clock."""
        minutes = self.settings.every_minutes
        return (
            minutes is not None and self.network.exchange.leads and monotonic() - self.newest >= 60 * minutes
        )

    def is_early(self) -> bool:
        """Return whether the newest checkpoint is not `min_seconds` old yet, by the leader's clock.

        The first one of a process is never early.
        """
        is_young = self.has_saved and monotonic() - self.newest < self.settings.min_seconds
        return self.network.exchange.leads and is_young

    def is_writing(self) -> bool:
        """Return whether this process is writing in the background."""
        return self.work is not None and not self.work.done()

    def falls_due(self, step: int, is_late: bool) -> bool:
        """Return whether to save after a step.

        A checkpoint that falls due while another one is in progress starts when that one is published.

        Args:
            step: Number of the step in the whole training.
            is_late: The leader's answer to `is_late`.
        """
        every = self.settings.every_steps
        self.is_overdue = self.is_overdue or is_late or (every is not None and step % every == 0)
        return self.is_overdue and self.pending is None

    def save(self, facts: dict[str, Any], position: tuple[int, int], at_once: bool) -> None:
        """Begin a checkpoint of the current state.

        Args:
            facts: Facts to store beside the tensors.
            position: Epoch and step.
            at_once: Publish the checkpoint before returning.

        Raises:
            CheckpointError: This checkpoint, or the one before, cannot be written.
        """
        self.finish()
        started = monotonic()
        if self.snapshot is None or at_once:
            self.run.save_checkpoint(self.network, facts, position)
        else:
            path, mirror = self.run.checkpoint_path(position), self.run.mirror
            self.pending = Publication(path, self.network.exchange, facts, mirror)
            self.work = self.thread.submit(self.pending.write, self._files(self.snapshot.take()))
        self.is_overdue, self.has_saved, self.newest = False, True, monotonic()
        self.seconds += self.newest - started

    def save_best(self, facts: Mapping[str, Any]) -> None:
        """Publish the weights as the best so far, before this returns."""
        started = monotonic()
        self.run.save_model("best", self.network, facts)
        self.seconds += monotonic() - started

    def continue_writing(self, is_writing: bool) -> None:
        """Start the next stage of the checkpoint in progress, unless some process is still writing.

        Raises:
            CheckpointError: A process failed; all processes raise this.
        """
        if self.pending is None or is_writing:
            return
        if self.is_placing:
            by_all(self.network.exchange, self._placed, "checkpoint")
            self.pending, self.work, self.is_placing = None, None, False
            return
        assert self.work is not None
        self.pending.gather(self.work.result())
        self.work = self.thread.submit(self._place, self.pending) if self.pending.leads else None
        self.is_placing = True

    def finish(self) -> None:
        """Wait until the checkpoint in progress is published."""
        started = monotonic()
        while self.pending is not None:
            if self.work is not None:
                wait([self.work])
            self.continue_writing(is_writing=False)
        self.seconds += monotonic() - started

    def close(self) -> None:
        """End the thread; complete a checkpoint that is being published, and drop an earlier one."""
        self.is_closed = True
        self.thread.shutdown()
        if self.pending is not None:
            self.pending.drop()
            self.pending = None

    def _files(
        self, copies: Mapping[str, Mapping[str, Tensor]]
    ) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
        """Yield the copies, and stop early once this is closed."""
        for name, tensors in copies.items():
            if self.is_closed:
                return
            yield name, tensors

    def _place(self, publication: Publication) -> None:
        publication.put_in_place()
        self.run.point_to(publication.path.name)

    def _placed(self) -> None:
        if self.work is not None:
            self.work.result()


class Snapshot:
    """A copy of what this process writes into a checkpoint; allocated by the first `take`, then reused.

    On CUDA the copy is in pinned memory, so that the device copies by itself.
    """

    def __init__(self, network: Network) -> None:
        self.network = network
        self.files: dict[str, dict[str, Tensor]] = {}

    def take(self) -> Mapping[str, Mapping[str, Tensor]]:
        """Copy the tensors of every file of this process; the copy stays valid until the next call."""
        network = self.network

        def copy(shard: int) -> None:
            for number, weight in enumerate(network.wide.values()):
                self._copy(wide_file(number, shard, weight.shards.count), weight.parts[shard].tensors())

        network.exchange.each(copy)
        self.files.update(neighbourhood_files(network))
        if network.exchange.leads:
            self._copy(TRUNK, replicas_of(network))
        if network.device.type == "cuda":
            torch.cuda.current_stream(network.device).synchronize()
        return self.files

    def _copy(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        copies = self.files.setdefault(name, {})
        for key, tensor in tensors.items():
            if key not in copies or copies[key].shape != tensor.shape:
                copies[key] = _empty_copy(tensor)
            copies[key].copy_(tensor.detach(), non_blocking=True)


def _empty_copy(tensor: Tensor) -> Tensor:
    """Allocate memory with a tensor's own strides, so that copying it is one pass in order."""
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return copy.pin_memory() if tensor.device.type == "cuda" else copy
