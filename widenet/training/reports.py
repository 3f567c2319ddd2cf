"""Who wants to know how a training goes."""

# ruff: noqa: ARG002 (each call does nothing unless a report extends it)

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from widenet.training.state import LoopState


@runtime_checkable
class Report(Protocol):
    """Follows a training; a report that extends this class answers only the calls that it wants to."""

    def start(self, state: "LoopState", epochs: int, examples_per_epoch: int) -> None:
        """The loop begins, from nothing or from a checkpoint."""
        return

    def advance(self, num_examples: int, loss: float) -> None:
        """A step was made."""
        return

    def epoch(self, record: dict[str, Any]) -> None:
        """An epoch ended: its line of log.jsonl."""
        return

    def say(self, text: str) -> None:
        """Something happened that a person should know."""
        return


class Silence(Report):
    """A report that nobody reads."""
