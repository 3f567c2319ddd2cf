"""The training loop: epochs of steps, evaluations and checkpoints, and its numbers for TensorBoard."""

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import takewhile
from pathlib import Path
from time import monotonic
from types import FrameType
from typing import Any

import numpy as np
import torch
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from torch import Tensor

from widenet.data.stream import Stream, ahead
from widenet.devices import Ahead, keep_to_one_thread
from widenet.errors import unwritten
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.preparation import Prepared
from widenet.parallel.group import by_leader
from widenet.training.checkpoint import (
    NEIGHBOURHOOD,
    TRUNK,
    Checkpoint,
    Work,
    files_of_shard,
    own_files,
    publishing,
    replicas_of,
)
from widenet.training.facts import environment
from widenet.training.run_directory import RunDirectory, TrainingFacts
from widenet.training.schedules import rates
from widenet.training.state import LoopState, Report
from widenet.training.step import (
    Gradients,
    check_weights,
    norm_of,
    norms_of_weights,
    regularization,
    settle,
    train_step,
)

Evaluate = Callable[[Network], dict[str, float]]
AfterEpoch = Callable[[Network, int], bool | None]
"""Called in every process with the network and the number of finished epochs, before a checkpoint counts
the last of them as finished. If it returns true, which it must in all processes, the training saves and ends.
"""


def steps_ahead(
    network: Network, stream: Stream, learning_rates: np.ndarray, numbers: range
) -> Generator[tuple[Prepared, StepNumbers, float], None, None]:
    """Yield batches of a training, prepared ahead by a thread, with the seconds of waiting for each.

    Args:
        network: The network.
        stream: The batches.
        learning_rates: Learning rate of every step; see `rates`.
        numbers: The steps, counted from 0 in the whole training.
    """
    beside = Ahead(network.device)

    def prepared(number: int) -> Prepared:
        epoch, step = divmod(number, stream.steps_per_epoch)
        batch = stream.batch(epoch, step)
        with torch.no_grad():
            return network.prepare(batch.fields, (epoch, step), batch.weights)

    with closing(ahead(lambda number: beside.make(lambda: prepared(number)), numbers)) as made:
        started = time.monotonic()
        for number, batch in zip(numbers, map(beside.take, made), strict=True):
            yield batch, StepNumbers(number + 1, learning_rates), time.monotonic() - started
            started = time.monotonic()


class Training:
    """Trains a network from a state to the end, or until it is interrupted."""

    def __init__(
        self,
        run: RunDirectory,
        network: Network,
        rule: Optimizer,
        stream: Stream,
        evaluate: Evaluate | None,
        report: Report,
        state: LoopState,
        after_epoch: AfterEpoch | None = None,
        in_background: bool = False,
    ) -> None:
        """Prepare a training.

        Args:
            run: Directory of the run, locked.
            network: The network, with the weights of the state.
            rule: Its optimizer.
            stream: The batches.
            evaluate: Computes the metrics; None without an evaluation.
            report: Follows the training.
            state: Where the training stands.
            after_epoch: Called after each epoch.
            in_background: Whether to write checkpoints in the background; see `Saving`.
        """
        self.run, self.network, self.rule, self.stream = run, network, rule, stream
        self.evaluate, self.report, self.state, self.after_epoch = evaluate, report, state, after_epoch
        self.spec = run.training
        self.rates = rates(self.spec, stream.steps_per_epoch)
        self.saving = Saving(run, self.network, in_background)

    def loop(self, interrupted: Callable[[], bool]) -> bool:
        """Train to the end; return False if `interrupted` became true first, or `after_epoch` returned true.

        In both cases the newest checkpoint holds the last step.
        """
        state, saving, exchange = self.state, self.saving, self.network.exchange
        self.report.start(state, self.spec.epochs, self.stream.num_examples)
        folder = self.run.path / "tensorboard"
        with closing(saving):
            board = Board(folder, state.epoch + 1, self.report.say) if exchange.leads else None
            while not state.has_ended(self.spec):
                if not self._train_epoch(interrupted):
                    return False
                record = self._end_epoch() | self._evaluation()
                by_leader(exchange, partial(self.run.log, record), "log")
                if board is not None:
                    board.add(record)
                self.report.epoch(record)
                is_stopped = self.after_epoch is not None and self.after_epoch(self.network, state.epoch)
                has_ended = state.has_ended(self.spec)
                if has_ended or is_stopped or self._is_checkpoint_due():
                    self._save(at_once=bool(has_ended or is_stopped))
                if is_stopped and not has_ended:
                    return False
        return True

    def _train_epoch(self, interrupted: Callable[[], bool]) -> bool:
        """Make the steps that are left of an epoch; return False if `interrupted` became true, once saved."""
        state, saving, exchange = self.state, self.saving, self.network.exchange
        size, per_epoch = self.stream.batch_size, self.stream.steps_per_epoch
        left = range(state.steps_made(per_epoch), (state.epoch + 1) * per_epoch)
        with closing(steps_ahead(self.network, self.stream, self.rates, left)) as steps:
            started = time.monotonic()
            for batch, numbers, waited in steps:
                exchange.at(f"epoch {state.epoch + 1}, step {state.step + 1}")
                answers = exchange.start_any([interrupted, saving.is_writing], "interruption")
                observe = self._observe if state.step + 1 == per_epoch else None
                loss = train_step(self.network, self.rule, batch, numbers, observe)
                now = time.monotonic()
                num_examples = min(size, self.stream.num_examples - state.step * size)
                state.add(loss, num_examples, now - started, waited)
                started = now
                self.report.advance(num_examples, loss)
                is_interrupted, is_writing = answers()
                if not is_writing:
                    saving.advance()
                is_due = saving.is_due(numbers.number) and state.step < per_epoch
                if is_interrupted or is_due:
                    self._check_weights()
                    self._save(at_once=is_interrupted)
                    started = time.monotonic()
                if is_interrupted:
                    return False
        return True

    def _is_checkpoint_due(self) -> bool:
        """Return whether a checkpoint is due at the end of this epoch, which is not the last.

        The leader's clock decides when a checkpoint is written, never what it holds. An epoch whose weights
        are kept as the best always has one: a resume from an earlier epoch might find other bits on another
        processor, and then another best epoch than the one that is kept.
        """
        is_kept = self.spec.keep == "best" and self.state.best_epoch == self.state.epoch
        is_counted = self.state.epoch % self.spec.checkpoints.every_epochs == 0
        if is_kept or not is_counted or self.saving.is_overdue:
            return is_kept or is_counted
        (is_early,) = self.network.exchange.start_any([self.saving.is_early], "checkpoint")()
        return not is_early

    def _end_epoch(self) -> dict[str, Any]:
        """Bring all weights to the end of the epoch; return its line of the log, without metrics."""
        state, made = self.state, self.state.steps_made(self.stream.steps_per_epoch)
        self.saving.finish()
        settle(self.network, self.rule, self.rates, made)
        self._check_weights()
        state.norms = norms_of_weights(self.network) | state.norms
        record = {**state.end_epoch(), "learning_rate": float(self.rates[made])}
        record["checkpoint_seconds"], self.saving.seconds = round(self.saving.seconds, 3), 0.0
        if self.spec.l1 or self.spec.l2:
            record["regularization"] = regularization(self.network, self.spec.l1, self.spec.l2)
        return record

    def _observe(self, values: Mapping[str, Tensor], gradients: Gradients) -> None:
        """Keep the norms of the last step of an epoch, also in a checkpoint that is saved after it."""
        hidden = [layer.name for layer in self.network.spec.hidden if layer.name in values]
        activations = {f"activations/{name}": norm_of(values[name]) for name in hidden}
        self.state.norms = gradients.norms() | activations

    def _evaluation(self) -> dict[str, Any]:
        """Evaluate the network if that is due after this epoch; return the metrics for the log."""
        setting, epoch = self.spec.evaluation, self.state.epoch
        if setting is None or self.evaluate is None:
            return {}
        if epoch % setting.every_epochs and epoch != self.spec.epochs:
            return {}
        started = time.monotonic()
        metrics = self.evaluate(self.network)
        seconds = round(time.monotonic() - started, 3)
        self.network.exchange.at(f"end of epoch {epoch}")
        if self.state.is_best(metrics[setting.metric]) and self.spec.keep == "best":
            saving_since = monotonic()
            self.run.save_model("best", self.network, {"epoch": epoch, "metrics": metrics})
            self.saving.seconds += monotonic() - saving_since
        return {"evaluation_seconds": seconds, **metrics}

    def _save(self, at_once: bool) -> None:
        facts = TrainingFacts(
            self.state,
            self.stream.dataset.digest,
            self.stream.steps_per_epoch,
            environment(self.network.device),
            self.run.digests,
        )
        self.saving.save(asdict(facts), (self.state.epoch, self.state.step), at_once)

    def _check_weights(self) -> None:
        """Raise if weights are not finite or differ between processes, so that they are never saved."""
        facts = asdict(self.state).items()
        progress = {name: value for name, value in facts if "seconds" not in name}
        check_weights(self.network, repr(progress))


@contextmanager
def interruption(interrupted: Callable[[], bool] | None) -> Iterator[Callable[[], bool]]:
    """Give the function that tells the loop to stop: the caller's, or one that notices Ctrl-C and SIGTERM.

    A second signal ends the process at once.
    """
    if interrupted is not None or threading.current_thread() is not threading.main_thread():
        yield interrupted or (lambda: False)
        return
    noticed = threading.Event()

    def notice(number: int, _: FrameType | None) -> None:
        if noticed.is_set():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        noticed.set()

    before = {number: signal.signal(number, notice) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noticed.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Board:
    """A TensorBoard event file. It is written in the calling thread, so that errors are noticed at once.

    A training continues without its board: after the first error, such as a full disk, this calls `say` once
    and writes nothing more.
    """

    def __init__(self, folder: Path, epoch: int, say: Callable[[str], None]) -> None:
        """Begin a file.

        Args:
            folder: Folder of the file; made if it is missing.
            epoch: The first epoch to be written; TensorBoard drops it and later ones from earlier files.
            say: Called with a sentence if the file cannot be written.
        """
        name = f"events.out.tfevents.{time.time():017.6f}.{socket.gethostname()}.{os.getpid()}"
        self.say, self.path = say, folder / name
        self.is_whole = True
        self._write(file_version="brain.Event:2")
        self._write(step=epoch, session_log=SessionLog(status=SessionLog.START))

    def add(self, record: Mapping[str, Any]) -> None:
        """Write the numbers of an epoch, by name; "epoch" is its number."""
        numbers = (entry for entry in record.items() if entry[0] != "epoch")
        values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers]
        self._write(step=record["epoch"], summary=Summary(value=values))

    def _write(self, **content: Any) -> None:
        """Append an event with the time."""
        if not self.is_whole:
            return
        event = Event(wall_time=time.time(), **content).SerializeToString()
        try:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("ab") as file:
                RecordWriter(file).write(event)
        except OSError as error:
            self.is_whole = False
            self.say(f"{unwritten(self.path.parent, error)} The training continues without TensorBoard.")


class Saving:
    """Saves a training into its run directory, in the background if memory has room for a snapshot.

    In the background, every process copies its weights and state between two steps, and a thread writes the
    copy while the training continues. When all processes have written their files, the leader's thread
    publishes the checkpoint. Only one checkpoint is in progress at a time. All processes call the methods in
    the same order and first agree on everything that depends on a clock or a thread.

    Attributes:
        seconds: How long the training has waited for checkpoints since the last line of the log.
    """

    def __init__(self, run: RunDirectory, network: Network, in_background: bool) -> None:
        self.run, self.network, self.settings = run, network, run.training.checkpoints
        self.copies: dict[str, dict[str, Tensor]] | None = {} if in_background else None
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint", initializer=keep_to_one_thread)
        self.stages: Generator[None, None, None] | None = None
        self.work: Future[object] | None = None
        self.is_overdue = self.is_closed = False
        self.early_until, self.seconds = 0.0, 0.0

    def is_early(self) -> bool:
        """Return whether the newest checkpoint is not `min_seconds` old yet, by the leader's clock.

        The first one of a process is never early.
        """
        return self.network.exchange.leads and monotonic() < self.early_until

    def is_writing(self) -> bool:
        """Return whether this process is writing in the background."""
        return self.work is not None and not self.work.done()

    def is_due(self, step: int) -> bool:
        """Return whether to save after a step, by its number in the whole training.

        A checkpoint that falls due while another one is in progress starts when that one is published.
        """
        every = self.settings.every_steps
        self.is_overdue = self.is_overdue or (every is not None and step % every == 0)
        return self.is_overdue and self.stages is None

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
        checkpoint = Checkpoint(self.run.checkpoint_path(position), {}, facts)
        copies = None if at_once else self.copies
        files = [*own_files(self.network, True)] if copies is None else copied(self.network, copies)
        if self.network.device.type == "cuda":
            torch.cuda.current_stream(self.network.device).synchronize()
        self.stages = publishing(
            checkpoint,
            takewhile(lambda _: not self.is_closed, files),
            self.network.exchange,
            self.run.mirror,
            self._submit,
            lambda: self.run.point_to(checkpoint.path.name),
        )
        self.advance()
        self.seconds += monotonic() - started
        if copies is None:
            self.finish()
        self.is_overdue, self.early_until = False, monotonic() + self.settings.min_seconds

    def _submit(self, work: Work) -> Work:
        self.work = self.thread.submit(work)
        return self.work.result

    def advance(self) -> None:
        """Start the next stage of the checkpoint in progress, once every process has finished its own.

        Raises:
            CheckpointError: A process failed; all processes raise this.
        """
        for _ in self.stages or ():
            return
        self.stages = None

    def finish(self) -> None:
        """Wait until the checkpoint in progress is published."""
        started = monotonic()
        while self.stages is not None:
            self.advance()
        self.seconds += monotonic() - started

    def close(self) -> None:
        """End the thread; complete a checkpoint that is being published, and drop an earlier one."""
        self.is_closed = True
        self.thread.shutdown()
        if self.stages is not None:
            self.stages.close()


def copied(network: Network, copies: dict[str, dict[str, Tensor]]) -> Iterable[tuple[str, dict[str, Tensor]]]:
    """Copy what this process writes into a checkpoint; memory of an earlier copy is used again.

    On CUDA the copy is in pinned memory, so that the device copies by itself.
    """

    def copy(name: str, tensors: Mapping[str, Tensor]) -> None:
        own = copies.setdefault(name, {})
        for key, tensor in tensors.items():
            if key not in own:
                # With the tensor's own strides, so that copying it is one pass in order.
                memory = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
                own[key] = memory.pin_memory() if tensor.device.type == "cuda" else memory
            own[key].copy_(tensor.detach(), non_blocking=True)

    def copy_shard(shard: int) -> None:
        for name, tensors in files_of_shard(network, shard, with_state=True):
            if name.startswith(NEIGHBOURHOOD):  # training does not change them
                copies[name] = tensors
            else:
                copy(name, tensors)

    network.exchange.each(copy_shard)
    if network.exchange.leads:
        copy(TRUNK, replicas_of(network))
    return copies.items()
