"""The training loop: epochs of steps, evaluations, checkpoints."""

import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from widenet.data.stream import Batch, Stream, ahead
from widenet.errors import NumericsError
from widenet.model.draws import Draws
from widenet.model.network import Network
from widenet.model.packing import Packed
from widenet.model.preparation import Prepared
from widenet.model.rule import StepNumbers
from widenet.parallel.group import by_leader
from widenet.spec.training import TrainingSpec
from widenet.training.arithmetic import ARITHMETIC, UNCOUNTED
from widenet.training.board import Board
from widenet.training.brake import Brake
from widenet.training.cuda_graph import GraphSteps
from widenet.training.environment import environment
from widenet.training.optimizers import Optimizer, is_compiled
from widenet.training.overflow import REMEDY, remedy
from widenet.training.regularization import regularization
from widenet.training.replicas import check_replicas
from widenet.training.run_directory import RECORDED, RunDirectory
from widenet.training.saving import Saving
from widenet.training.schedules import rates
from widenet.training.step import train_step
from widenet.transfer import Ahead

_START_EXAMPLES = 256
"""How many examples at least tell what the loss began with."""


@dataclass
class LoopState:
    """Where a training stands: all that a resumed one needs besides the weights and the optimizer's state.

    epoch: finished epochs. step: finished steps of the next one; loss_sum, examples and seconds are of those
    steps, reading_seconds what of these they waited for batches. start_loss: the mean loss of the first
    start_examples examples of all.
    best: the best value of the metric so far, reached after best_epoch epochs; waited: evaluations since.
    brake: what it remembers, where the training has one. arithmetic: the versions of it that made steps, the
    current one last.
    """

    epoch: int = 0
    step: int = 0
    loss_sum: float = 0.0
    examples: int = 0
    seconds: float = 0.0
    reading_seconds: float = 0.0
    start_loss: float = 0.0
    start_examples: int = 0
    best: float | None = None
    best_epoch: int | None = None
    waited: int = 0
    brake: Brake = field(default_factory=Brake)
    arithmetic: list[int] = field(default_factory=lambda: [ARITHMETIC])

    @classmethod
    def of(cls, facts: dict[str, Any]) -> "LoopState":
        """The state that a checkpoint holds."""
        return cls(**{"arithmetic": [UNCOUNTED], **facts, "brake": Brake(**facts.get("brake", {}))})

    def steps_made(self, steps_per_epoch: int) -> int:
        """Finished steps of the whole training, without those that the brake left out."""
        return self.epoch * steps_per_epoch + self.step - self.brake.left_out

    def has_ended(self, training: TrainingSpec) -> bool:
        """Whether no step is left: all epochs are finished, or evaluations have not been better for long
        enough.
        """
        stop_after = None if training.evaluation is None else training.evaluation.stop_after
        return self.epoch >= training.epochs or (stop_after is not None and self.waited >= stop_after)

    def add(self, loss: float, num_examples: int) -> None:
        """A step was made of so many examples."""
        self.loss_sum += loss * num_examples
        self.examples += num_examples
        if self.epoch == 0 and self.start_examples < _START_EXAMPLES:
            self.start_examples += num_examples
            self.start_loss += (loss - self.start_loss) * num_examples / self.start_examples


@runtime_checkable
class Report(Protocol):
    """Who wants to know how a training goes."""

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        """The loop begins, from nothing or from a checkpoint."""

    def advance(self, num_examples: int, loss: float) -> None:
        """A step was made."""

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch ended: its line of log.jsonl."""

    def say(self, text: str) -> None:
        """Something happened that a person should know."""


class Silence:
    """A report that nobody reads."""

    def start(self, state: LoopState, epochs: int, examples_per_epoch: int) -> None:
        """Nothing."""

    def advance(self, num_examples: int, loss: float) -> None:
        """Nothing."""

    def epoch(self, record: dict[str, Any]) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""


Evaluate = Callable[[Network], dict[str, float]]
AfterEpoch = Callable[[Network, int], None]
"""Called in every process with the network and the number of finished epochs, before a checkpoint says
that they are.
"""


class Training:
    """One training from its state to its end, or to an interruption."""

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
        cuda_graph: bool = False,
        in_background: bool = False,
    ) -> None:
        """cuda_graph: steps are recorded and replayed; see `training.cuda_graph`. in_background: as of
        `Saving`.
        """
        self.run, self.network, self.rule, self.stream = run, network, rule, stream
        self.evaluate, self.report, self.state, self.after_epoch = evaluate, report, state, after_epoch
        self.spec = run.training
        self.rates = state.brake.braked(rates(self.spec, stream.steps_per_epoch))
        self.saving = Saving(run, network, in_background)
        self.recorded = (
            GraphSteps(network, rule, min(stream.batch_size, stream.num_examples)) if cuda_graph else None
        )

    def loop(self, interrupted: Callable[[], bool]) -> bool:
        """Train to the end; False where `interrupted` became true first.

        Either way the newest checkpoint is of the last step.
        """
        self.report.start(self.state, self.spec.epochs, self.stream.num_examples)
        with ExitStack() as stack:
            stack.callback(self.saving.close)
            board = None
            if self.network.exchange.leads:
                board = stack.enter_context(
                    closing(Board(self.run.path / "tensorboard", self.state.epoch + 1, self.report.say))
                )
            return self._run_epochs(board, interrupted)

    def _run_epochs(self, board: Board | None, interrupted: Callable[[], bool]) -> bool:
        while not self.state.has_ended(self.spec):
            if not self._run_epoch(interrupted):
                self._checkpoint(at_once=True)
                return False
            self._end_epoch(board)
        self._settle()
        return True

    def _run_epoch(self, interrupted: Callable[[], bool]) -> bool:
        state, exchange, started = self.state, self.network.exchange, time.monotonic()
        earlier = state.seconds
        beside = Ahead(self.network.device)
        steps = range(state.step, self.stream.steps_per_epoch)
        with closing(ahead(lambda step: beside.make(lambda: self._prepared(step)), steps)) as batches:
            asked = time.monotonic()
            for batch, prepared, packed in map(beside.take, batches):
                state.reading_seconds += time.monotonic() - asked
                exchange.at(self._place(batch.step + 1))
                answers = exchange.start_any(
                    [interrupted, self.saving.is_late, self.saving.is_writing], "interruption"
                )
                loss = self._step(batch, prepared, packed)
                state.step = batch.step + 1
                state.add(loss, batch.num_examples)
                state.seconds = earlier + time.monotonic() - started
                self.report.advance(batch.num_examples, loss)
                stop, is_late, is_writing = answers.result()
                self.saving.go_on(is_writing)
                if stop:
                    return False
                if self.saving.falls_due(self._number(state.step), is_late) and state.step < steps.stop:
                    paused = time.monotonic()
                    self._checkpoint()
                    started += (
                        time.monotonic() - paused
                    )  # which counts as seconds of checkpoints, not of steps
                asked = time.monotonic()
        return True

    def _prepared(self, step: int) -> tuple[Batch, Prepared, Packed | None]:
        """Batch `step` of the current epoch, what the network takes of it, and the same packed where steps
        are recorded.
        """
        with torch.no_grad():
            batch = self.stream.batch(self.state.epoch, step, self.network.device)
            prepared = self.network.prepare(batch.fields, Draws(self.spec.seed, batch.epoch, batch.step))
            packed = (
                None
                if self.recorded is None
                else self.recorded.pack(prepared, batch.weights, batch.num_examples)
            )
            return batch, prepared, packed

    def _step(self, batch: Batch, prepared: Prepared, packed: Packed | None) -> float:
        """The loss of a batch, before the step that is made."""
        draws, limit = Draws(self.spec.seed, batch.epoch, batch.step), self.spec.gradient_norm_limit
        numbers, judge = self._numbers(batch.step + 1), self._braked if self.spec.brake else None
        try:
            if self.recorded is not None and packed is not None:
                return self.recorded.step(packed, prepared, batch.weights, draws, numbers)
            return train_step(self.network, prepared, batch.weights, draws, self.rule, numbers, limit, judge)
        except NumericsError as error:
            raise NumericsError(f"{self._place(batch.step + 1)}: {error} {remedy(batch.fields)}") from error

    def _braked(self, loss: float, numbers: StepNumbers) -> StepNumbers | None:
        """The numbers of a step whose batch has that loss; None where it is left out."""
        brake = self.state.brake
        if brake.leaves_out(loss):
            return None
        brake.shorten(numbers.number, self.rates)
        return numbers

    def _end_epoch(self, board: Board | None) -> None:
        self.saving.finish()
        self._settle()
        self._check_weights()
        record = self._begin_record()
        if self.evaluate is not None and self._is_due(
            self.spec.evaluation.every_epochs if self.spec.evaluation else 1
        ):
            started = time.monotonic()
            metrics = self.evaluate(self.network)
            record["evaluation_seconds"] = round(time.monotonic() - started, 3)
            record.update(metrics)
            self.network.exchange.at(f"end of epoch {self.state.epoch}")
            self._judge(metrics)
        by_leader(self.network.exchange, lambda: self.run.log(record), "log")
        if board is not None:
            board.add(record)
        self.report.epoch(record)
        if self.after_epoch is not None:
            self.after_epoch(self.network, self.state.epoch)
        if self._is_due(self.spec.checkpoints.every_epochs) or self.state.has_ended(self.spec):
            self._save(at_once=self.state.has_ended(self.spec))
        waited, self.saving.seconds = round(self.saving.seconds, 3), 0.0
        by_leader(self.network.exchange, lambda: self.run.log_more({"checkpoint_seconds": waited}), "log")

    def _begin_record(self) -> dict[str, Any]:
        """The line of an epoch that has just ended, but for its evaluation; the state begins the next one."""
        state = self.state
        seconds = max(state.seconds, 1e-9)
        record: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "loss": state.loss_sum / max(state.examples, 1),
            "seconds": round(seconds, 3),
            "reading_seconds": round(state.reading_seconds, 3),
            "examples_per_second": round(state.examples / seconds, 1),
            "learning_rate": self._numbers(state.step).rate,
        }
        if self.spec.l1 or self.spec.l2:
            record["regularization"] = regularization(self.network, self.spec.l1, self.spec.l2)
        if len(state.arithmetic) > 1:
            record["arithmetic"] = state.arithmetic[-1]
        if state.start_examples and state.epoch == 0:
            record["start_loss"] = state.start_loss
        state.epoch, state.step, state.loss_sum, state.examples = state.epoch + 1, 0, 0.0, 0
        state.seconds = state.reading_seconds = 0.0
        return record

    def _judge(self, metrics: dict[str, float]) -> None:
        evaluation, state = self.spec.evaluation, self.state
        assert evaluation is not None
        value = metrics[evaluation.metric]
        if state.best is None or value > state.best:
            state.best, state.best_epoch, state.waited = value, state.epoch, 0
            if self.spec.keep == "best":
                self.saving.save_best({"epoch": state.epoch, "metrics": metrics})
        else:
            state.waited += 1

    def _is_due(self, every: int) -> bool:
        return self.state.epoch % every == 0 or self.state.epoch == self.spec.epochs

    def _checkpoint(self, at_once: bool = False) -> None:
        """Save the state between two steps of an epoch, in which rows may idle."""
        self._check_weights()
        self._save(at_once)

    def _save(self, at_once: bool) -> None:
        facts = {
            "state": asdict(self.state),
            "examples": self.stream.dataset.digest,
            "steps_per_epoch": self.stream.steps_per_epoch,
        }
        facts[RECORDED] = self.run.digests
        facts["device"], facts["compiled"] = self.network.device.type, is_compiled(self.network.device.type)
        facts["environment"] = environment(self.network.device)
        self.saving.save(facts, (self.state.epoch, self.state.step), at_once)

    def _numbers(self, step: int) -> StepNumbers:
        """The numbers of step `step` (from 1) of the current epoch."""
        return StepNumbers(self._number(step) - self.state.brake.left_out, self.rates)

    def _number(self, step: int) -> int:
        """The number in the whole training of step `step` (from 1) of the current epoch."""
        return self.state.epoch * self.stream.steps_per_epoch + step

    def _place(self, step: int) -> str:
        """Step `step` (from 1) of the current epoch, for a person."""
        return f"epoch {self.state.epoch + 1}, step {step}"

    def _settle(self) -> None:
        settle(self.network, self.rule, self.rates, self.state.steps_made(self.stream.steps_per_epoch))

    def _check_weights(self) -> None:
        """Raise where a step has broken a weight, or a process has computed other weights, so that neither
        is ever saved.
        """
        broken = self.network.first_non_finite()
        if broken is not None:
            raise NumericsError(
                f'{self._place(self.state.step)}: weights must be finite numbers; those of "{broken}" are'
                f" not. {REMEDY}"
            )
        state = self.state
        progress = [
            state.epoch,
            state.step,
            state.loss_sum,
            state.start_loss,
            state.best,
            state.best_epoch,
            state.waited,
            state.brake,
        ]
        check_replicas(self.network, repr(progress), self._place(state.step))


def settle(network: Network, rule: Optimizer, rates: np.ndarray, num_steps: int) -> None:
    """Bring rows that no batch touched lately to where their optimizer leads them in `num_steps` steps,
    before somebody looks at them.
    """
    for weight in network.wide.values():
        weight.wake_all(rule, StepNumbers(num_steps + 1, rates))
    for output in network.outputs.values():
        if output.drift is not None:
            output.drift.wake(num_steps)
