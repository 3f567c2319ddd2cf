"""The facts that a run's checkpoints hold beside their tensors."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from widenet.errors import CheckpointError
from widenet.training.environment import COMPILED, NOT_COMPILED
from widenet.training.state import LoopState

VERSION = 3


@dataclass(frozen=True)
class TrainingFacts:
    """Facts of a checkpoint from which a training resumes.

    Attributes:
        state: Where the training stands.
        examples: Digest of the examples it trains on.
        steps_per_epoch: Number of steps of an epoch.
        environment: Everything that decides how its numbers round.
        documents: SHA-256 of the run's documents.
    """

    state: LoopState
    examples: str
    steps_per_epoch: int
    environment: Mapping[str, str]
    documents: Mapping[str, str]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TrainingFacts":
        """Read the facts of a checkpoint; raises CheckpointError if another version of widenet wrote them."""
        if facts.get("version") != VERSION:
            rule = f"a checkpoint must have facts of version {VERSION}"
            raise CheckpointError(rule, value=facts.get("version"))
        return cls(
            LoopState.of(facts["state"]),
            facts["examples"],
            facts["steps_per_epoch"],
            facts["environment"],
            facts["documents"],
        )

    def to_json(self) -> dict[str, Any]:
        """Return the facts as a checkpoint keeps them."""
        return {"version": VERSION, **asdict(self)}

    @property
    def device(self) -> str:
        """The kind of device that computed the checkpoint."""
        return self.environment["device"]

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code made the steps."""
        return self.environment[COMPILED] != NOT_COMPILED


@dataclass(frozen=True)
class WeightsFacts:
    """Facts of weights alone: of a finished model, an imported one, or the best evaluation so far.

    Attributes:
        epochs: Number of epochs of a finished model.
        best: Best value of its metric.
        best_epoch: Epoch of this value.
        examples: Digest of the examples it was trained on.
        imported: Name of the file it was imported from, if its features have no names.
        epoch: Epoch of the best evaluation so far.
        metrics: Metrics of this evaluation; or of final weights whose neighbourhood terms were fitted.
        documents: See `TrainingFacts`.
        fingerprint: SHA-256 of the weights alone.
        in_8_bits: Whether wide matrices are whole numbers in 8 bits, with a scale for each row.
        network: The network document with the neighbourhood terms that were fitted when training ended.
        other_term: Whether an output got another neighbourhood term after the training.
        made_of: Path of the run that it was made of, if it was made of one.
    """

    epochs: int | None = None
    best: float | None = None
    best_epoch: int | None = None
    examples: str | None = None
    imported: str | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] | None = None
    documents: Mapping[str, str] | None = None
    fingerprint: str | None = None
    in_8_bits: bool = False
    network: Mapping[str, Any] | None = None
    other_term: bool = False
    made_of: str | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "WeightsFacts":
        """Read the facts of weights."""
        return cls(**{known.name: facts[known.name] for known in fields(cls) if known.name in facts})

    @property
    def form(self) -> str | None:
        """What was changed after the training, in words; None if nothing was."""
        if self.in_8_bits:
            return "in 8 bits"
        return "with another neighbourhood term" if self.other_term else None


def facts_of(facts: Mapping[str, Any]) -> TrainingFacts | WeightsFacts:
    """Read the facts of a checkpoint of either kind."""
    return TrainingFacts.of(facts) if "state" in facts else WeightsFacts.of(facts)


def made_of(facts: Mapping[str, Any]) -> str | None:
    """Return the path of the run that another was made of; None for other runs."""
    return WeightsFacts.of(facts).made_of


def in_8_bits(facts: Mapping[str, Any]) -> bool:
    """Return whether the weights of a checkpoint with these facts are whole numbers in 8 bits."""
    return "state" not in facts and WeightsFacts.of(facts).in_8_bits
