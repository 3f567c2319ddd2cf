"""Progress of a search: a bar on a terminal, and a line for each rung that a trial has reached."""

import sys
from collections.abc import Mapping
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from widenet.cli.wording import say


class StudyProgress:
    """Shows the progress of a search.

    The bar has the number of trials begun, the epochs of all trials, the best metric, and what trains now.

    Args:
        num_trials: Number of trials.
        quiet: Whether to show nothing.
    """

    def __init__(self, num_trials: int, quiet: bool = False) -> None:
        self.quiet, self.num_trials = quiet, num_trials
        self.begun: set[int] = set()
        self.training: dict[int, int] = {}
        self.best: dict[int, float] = {}
        self.epochs = 0
        self.bar: Progress | None = None
        self.task = TaskID(0)
        if not quiet and sys.stderr.isatty():
            columns = (
                TextColumn("{task.completed:.0f}/{task.total:.0f} trials"),
                BarColumn(),
                TextColumn("{task.fields[state]}"),
                TimeElapsedColumn(),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("", total=num_trials, state="")
            self.bar.start()

    def resume(self, reached: Mapping[int, Mapping[int, float]]) -> None:
        """Count the trials of an earlier search, and its best."""
        self.begun.update(reached)
        for epochs, value in (each for own in reached.values() for each in own.items()):
            self.best[epochs] = max(value, self.best.get(epochs, value))

    def begin(self, trial: int, start: int, stop: int) -> None:
        """Show that a trial begins or goes on."""
        del start
        self.begun.add(trial)
        self.training[trial] = stop
        self._show()

    def epoch(self, trial: int, record: dict[str, Any]) -> None:
        """Count an epoch."""
        del trial, record
        self.epochs += 1
        self._show()

    def reach(self, trial: int, epochs: int, value: float) -> None:
        """Print the line of a trial at a rung."""
        self.training.pop(trial, None)
        is_best = value > self.best.get(epochs, float("-inf"))
        if is_best:
            self.best[epochs] = value
        self._print(f"trial {trial:>3}  epochs {epochs:>3}  {value:.4f}{'  best of this rung' * is_best}")

    def fail(self, trial: int, problem: str) -> None:
        """Print why a trial has failed."""
        self.training.pop(trial, None)
        self._print(f"trial {trial:>3}  failed: {problem}")

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self.quiet:
            say(text)

    def stop(self) -> None:
        """Remove the bar."""
        if self.bar is not None:
            self.bar.stop()

    def _print(self, line: str) -> None:
        self._show()
        if self.bar is not None:
            self.bar.console.print(line, highlight=False, markup=False)
        elif not self.quiet:
            typer.echo(line, err=True)

    def _show(self) -> None:
        if self.bar is None:
            return
        now = ", ".join(f"trial {trial} to epoch {stop}" for trial, stop in sorted(self.training.items()))
        best = f"best {self.best[max(self.best)]:.4f} after epoch {max(self.best)}" if self.best else ""
        state = "  ".join(filter(None, [f"{self.epochs} epochs", best, now]))
        self.bar.update(self.task, completed=len(self.begun), state=state)
