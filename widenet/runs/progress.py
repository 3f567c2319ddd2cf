"""Progress of long commands: a bar on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from widenet.data.messages import Note
from widenet.errors import in_one_line
from widenet.plan.machine import used_memory
from widenet.plan.numbers import amount, duration
from widenet.training.state import Report

_SHARE_OF_NEW_LOSS = 0.02
_LARGE_LOSS = 1e9
_LONGEST_SILENCE = 30.0
"""Seconds after which a line is printed where there is no bar."""


def _bar(quiet: bool, *columns: ProgressColumn) -> Progress:
    """Make a bar, which counts but shows nothing where there is no terminal."""
    is_shown = not quiet and sys.stderr.isatty()
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not is_shown)


class TrainingReport(Report):
    """Shows the progress of a training, and prints a line for each epoch.

    The bar has the loss, the latest metric, examples per second, this process's memory and the time left.

    Args:
        quiet: Whether to show nothing.
        metric: The metric by which the training chooses, shown beside recall and NDCG at 20.
        examples: What people call several examples of the dataset.
    """

    def __init__(self, quiet: bool = False, metric: str | None = None, examples: str = "users") -> None:
        self.quiet, self.metric, self.metrics = quiet, metric or "ndcg@20", ("recall@20", "ndcg@20", metric)
        self.named, self.task, self.epochs = examples, TaskID(0), 0
        self.loss: float | None = None
        self.spoken = monotonic()
        self.bar = _bar(
            quiet,
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            TextColumn("{task.percentage:3.0f}%"),
            TextColumn("loss {task.fields[loss]}"),
            TextColumn("{task.fields[metric]}"),
            TextColumn(f"{{task.fields[rate]}} {examples}/s"),
            TextColumn("{task.fields[memory]}"),
            TimeRemainingColumn(),
        )

    def start(self, state: Any, epochs: int, examples_per_epoch: int) -> None:
        """Show the bar when the loop starts."""
        done = state.epoch * examples_per_epoch + state.examples
        if done and state.epoch >= epochs:
            self.say(f"This training has finished: {epochs} of {epochs} epochs are done.")
        elif done:
            inside = f"in epoch {state.epoch + 1}, after step {state.step}"
            self.say(f"Resuming {inside if state.step else f'after epoch {state.epoch}'}.")
        self.spoken, self.epochs = monotonic(), epochs
        total, shown = epochs * examples_per_epoch, f"{min(state.epoch + 1, epochs)}/{epochs}"
        self.task = self.bar.add_task(
            "", total=total, completed=done, epoch=shown, loss="-", metric="", rate="-", memory=""
        )
        self.bar.start()

    def advance(self, num_examples: int, loss: float) -> None:
        """Update the bar after a step, or print a line after a long silence where there is no bar."""
        self.loss = loss if self.loss is None else self.loss + _SHARE_OF_NEW_LOSS * (loss - self.loss)
        self.bar.update(self.task, advance=num_examples)
        task = self.bar.tasks[0]
        rate = "-" if task.speed is None else f"{task.speed:,.0f}"
        if not self.bar.disable:
            memory = amount(used_memory() or 0)
            self.bar.update(self.task, loss=_loss(self.loss), rate=rate, memory=memory)
        elif monotonic() - self.spoken >= _LONGEST_SILENCE:
            left = duration(task.time_remaining or 0.0)
            self._speak(f"loss {_loss(self.loss)}, {rate} {self.named}/s, {left} left")

    def _speak(self, text: str) -> None:
        """Print a line, after which there may be a long silence."""
        self.say(text)
        self.spoken = monotonic()

    def epoch(self, record: dict[str, Any]) -> None:
        """Print the line of an epoch."""
        metrics = "  ".join(f"{name} {value:.4f}" for name, value in record.items() if name in self.metrics)
        rate = f"{record['examples_per_second']:,.0f} {self.named}/s"
        epoch = f"epoch {record['epoch']:>{len(str(self.epochs))}}/{self.epochs}"
        line = f"{epoch}  loss {_loss(record['loss'])}  {record['seconds']:.1f} s  {rate}  {metrics}".rstrip()
        self.bar.update(self.task, epoch=f"{min(record['epoch'] + 1, self.epochs)}/{self.epochs}")
        if self.metric in record:
            self.bar.update(self.task, metric=f"{self.metric} {record[self.metric]:.4f}")
        self._speak(line)

    def tried(self, text: str) -> None:
        """Show the best term so far: in the bar, or as a line after a long silence."""
        if not self.bar.disable:
            self.bar.update(self.task, metric=text)
        elif monotonic() - self.spoken >= _LONGEST_SILENCE:
            self._speak(text)

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self.quiet:
            self.bar.console.out(in_one_line(text), highlight=False)

    def stop(self) -> None:
        """Remove the bar."""
        self.bar.stop()


def _loss(loss: float) -> str:
    return f"{loss:.4f}" if abs(loss) < _LARGE_LOSS else f"{loss:.3e}"


@contextmanager
def counting(what: str, total: int, quiet: bool = False) -> Iterator[Callable[[int], None]]:
    """Show on a terminal how many examples are done; gives what adds a number of finished ones."""
    with _bar(quiet, TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()) as bar:
        task = bar.add_task("", total=total)
        yield lambda number: bar.advance(task, number)


class IngestReport:
    """Prints a line for each phase of an ingest; a terminal also shows rows, their rate and the time left.

    Args:
        quiet: Whether to show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self.bar = _bar(
            quiet,
            TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
            TextColumn("{task.fields[rate]}/s"),
            BarColumn(),
            TimeRemainingColumn(),
        )
        self.task: TaskID | None = None

    def __enter__(self) -> "IngestReport":
        self.bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.bar.stop()

    def phase(self, text: str) -> None:
        """Print the line of a new phase, or a note."""
        if self.quiet:
            return
        if self.task is not None:
            self.bar.remove_task(self.task)
            self.task = None
        self.bar.console.out(text + ("" if isinstance(text, Note) else " ..."), highlight=False)

    def bytes(self, done: int, total: int | None) -> None:
        """Show how many bytes of a file have arrived."""
        self.rows(done, total, "bytes")

    def rows(self, done: int, total: int | None, unit: str = "rows") -> None:
        """Show how many rows of the phase are done."""
        if self.task is None:
            self.task = self.bar.add_task("", total=total, rate="-", unit=unit)
        speed = self.bar.tasks[-1].speed if self.bar.tasks else None
        self.bar.update(
            self.task, completed=done, total=total, rate="-" if speed is None else f"{speed:,.0f}"
        )
