"""The interface of reports, which follow a training."""

# ruff: noqa: ARG002 (a method does nothing unless a report overrides it)

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from widenet.training.state import LoopState


@runtime_checkable
class Report(Protocol):
    """Follows a training; a subclass overrides only the methods that it needs."""

    def start(self, state: "LoopState", epochs: int, examples_per_epoch: int) -> None:
        """Called before the first step, of a new or a resumed training."""
        return

    def advance(self, num_examples: int, loss: float) -> None:
        """Called after a step."""
        return

    def epoch(self, record: dict[str, Any]) -> None:
        """Called after an epoch, with its line of log.jsonl."""
        return

    def tried(self, text: str) -> None:
        """Called after the last epoch for each neighbourhood term that is tried, with the best so far."""
        return

    def say(self, text: str) -> None:
        """Called with a sentence that the user should know."""
        return


class Silence(Report):
    """A report that does nothing."""
