"""The interface of reports, which follow a study."""

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class StudyReport(Protocol):
    """Follows a study; a subclass overrides only the methods that it needs."""

    def resume(self, reached: Mapping[int, Mapping[int, float]]) -> None:
        """Called when a study is resumed, with the metrics of each trial by its number, then by epochs."""
        return

    def begin(self, trial: int, start: int, stop: int) -> None:
        """Called when a trial begins or goes on, after `start` epochs; it stops after `stop`."""
        return

    def epoch(self, trial: int, record: dict[str, Any]) -> None:
        """Called after an epoch of a trial, with its line of log.jsonl."""
        return

    def reach(self, trial: int, epochs: int, value: float) -> None:
        """Called when a trial has reached a rung, with its metric."""
        return

    def fail(self, trial: int, problem: str) -> None:
        """Called when a trial has failed."""
        return

    def say(self, text: str) -> None:
        """Called with a sentence that the user should know."""
        return


class Silence(StudyReport):
    """A report that does nothing."""
