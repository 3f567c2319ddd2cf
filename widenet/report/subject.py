"""The subject of a report: a run with its dataset and a sample of its recommendations."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from widenet.data.manifest import Manifest
from widenet.data.words import Words, words_of
from widenet.report.recommendations import Sample
from widenet.runs.run_log import diverged, kept_line
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory, WeightsFacts


@dataclass(frozen=True)
class Subject:
    """One run of a report.

    Attributes:
        name: Name of the run in the report.
        run: The run directory.
        manifest: Manifest of the dataset; None if it is not available.
        sample: Recommendations for some users; None without a network or dataset.
    """

    name: str
    run: RunDirectory
    manifest: Manifest | None = None
    sample: Sample | None = None

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """The lines of the log, without numbers that are not finite or that no float64 holds."""
        sane = (
            {name: value for name, value in record.items() if _is_sane(value)}
            for record in self.run.records()
        )
        return [record for record in sane if "epoch" in record]

    @cached_property
    def final(self) -> WeightsFacts:
        """Facts of the final weights; empty if there are none."""
        model = self.run.path / "model"
        return WeightsFacts.of(Checkpoint.open(model).facts if model.is_dir() else {})

    @property
    def is_changed(self) -> bool:
        """Whether the model was changed after the training, whose numbers are not its own."""
        return self.final.in_8_bits

    @property
    def without_data(self) -> str:
        """Why the dataset is not available, and what a report lacks for that."""
        recorded = self.run.machine.get("data")
        gone = "" if recorded is None else f": {recorded} is gone, or has other items now"
        return f"The dataset is not at hand{gone}. The report has neither its facts nor recommendations."

    @property
    def words(self) -> Words:
        """What people call the rows and features of the dataset; without one, as its fields suggest."""
        return words_of(self.run.fields, {}) if self.manifest is None else self.manifest.words

    @property
    def parameters(self) -> dict[str, int]:
        """Number of trained parameters by layer."""
        parameters: dict[str, int] = {}
        for weight in self.run.layout.weights.values():
            if weight.trained:
                parameters[weight.layer] = parameters.get(weight.layer, 0) + weight.numbers
        return parameters

    @property
    def metric(self) -> str | None:
        """The metric that selects the best epoch; None without an evaluation."""
        evaluation = self.run.training.evaluation
        return None if evaluation is None else evaluation.metric

    @property
    def last(self) -> Mapping[str, Any]:
        """The last line of the log; empty before the first epoch has ended."""
        return self.records[-1] if self.records else {}

    @property
    def kept(self) -> Mapping[str, Any]:
        """The line of the log for the epoch whose weights the run keeps: the best or the last."""
        return kept_line(self.run.training, self.records)

    @property
    def measured(self) -> Mapping[str, Any]:
        """The line of the log that tells of the run's weights, with the metrics of fitted terms.

        It is empty if the weights were changed since.
        """
        return {} if self.is_changed else {**self.kept, **(self.final.metrics or {})}

    @property
    def warnings(self) -> list[str]:
        """A warning about a loss far above its start, if it is."""
        problem = diverged(self.run.training, self.records)
        return [] if problem is None else [f"Warning: {problem}"]

    @property
    def seconds(self) -> float | None:
        """Seconds of all steps of its training; None if its weights were made of another run's."""
        return self.total("seconds") if self.final.form is None else None

    def total(self, name: str) -> float:
        """The sum of a number over all lines of the log."""
        return float(
            sum(record[name] for record in self.records if isinstance(record.get(name), int | float))
        )


def _is_sane(value: object) -> bool:
    """Return whether a value is no number, or one that float64 holds."""
    return not isinstance(value, int | float) or abs(value) <= sys.float_info.max
