"""A run as a report sees it: its directory, and what is known of its dataset and its recommendations."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from widenet.data.manifest import Manifest
from widenet.report.sample import Sample
from widenet.training.arithmetic import MIXED
from widenet.training.outcome import best_line, diverged, kept_line
from widenet.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Subject:
    """One run of a report.

    name: what the report calls it. data, manifest: the dataset's path and contents; None where it is not at
    hand. sample: None where nothing was recommended.
    """

    name: str
    run: RunDirectory
    data: Path | None = None
    manifest: Manifest | None = None
    sample: Sample | None = None

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return self.run.records()

    @property
    def parameters(self) -> dict[str, int]:
        """Trained numbers by the layer that owns them."""
        found: dict[str, int] = {}
        for weight in self.run.layout.weights.values():
            if weight.trained:
                found[weight.layer] = found.get(weight.layer, 0) + weight.numbers
        return found

    @property
    def metric(self) -> str | None:
        """The metric that the training is judged by; None where it is not evaluated."""
        evaluation = self.run.training.evaluation
        return None if evaluation is None else evaluation.metric

    @property
    def best(self) -> Mapping[str, Any] | None:
        """The line of the log whose metric is best, the first of equal ones; None where no line has it."""
        return best_line(self.run.training, self.records)

    @property
    def last(self) -> Mapping[str, Any]:
        """The last line of the log; empty before the first epoch has ended."""
        return self.records[-1] if self.records else {}

    @property
    def kept(self) -> Mapping[str, Any]:
        """The line of the log of the epoch whose weights the run has: the best where its document says so,
        else the last.
        """
        return kept_line(self.run.training, self.records)

    @property
    def warnings(self) -> list[str]:
        """What to say of a loss that lies far above its start, and of a training that went on in another
        arithmetic.
        """
        problem = diverged(self.run.training, self.records)
        return [*([] if problem is None else [problem]), *([MIXED] if "arithmetic" in self.last else [])]

    def total(self, name: str) -> float:
        """The sum of a number over all lines of the log."""
        return float(
            sum(record[name] for record in self.records if isinstance(record.get(name), int | float))
        )
