"""Pruning: which weights lose numbers in training, and how many numbers of a row stay after each step."""

from dataclasses import dataclass

from widenet.errors import FitError
from widenet.plan.layout import Layout, Weight
from widenet.spec.training import Pruning

_TIMES = 32
"""How often rows are pruned between the start and the end of pruning."""


@dataclass(frozen=True)
class Schedule:
    """How many numbers of each row of a weight stay.

    The number falls from all to `nonzeros` along a cubic curve (Zhu and Gupta, 2017, "To prune, or not to
    prune", equation 1).

    Attributes:
        pruning: The document's settings.
        columns: Numbers of a row.
    """

    pruning: Pruning
    columns: int

    def kept(self, step: int, steps: int) -> int:
        """Return how many numbers of a row stay after a step, from 1, of a training of so many steps."""
        first, last = int(self.pruning.start * steps), int(self.pruning.stop * steps)
        times = min(max(_TIMES * (step - first) // max(last - first, 1), 0), _TIMES)
        return self.pruning.nonzeros + round(
            (self.columns - self.pruning.nonzeros) * (1 - times / _TIMES) ** 3
        )

    def has_begun(self, step: int, steps: int) -> bool:
        """Return whether rows were pruned before a step, so that it must leave zeros as they are."""
        return self.kept(step - 1, steps) < self.columns

    def is_due(self, step: int, steps: int) -> bool:
        """Return whether rows are pruned after a step."""
        return self.kept(step, steps) < self.kept(step - 1, steps)


MOST_COLUMNS = 2**15
"""Longest rows of which only some numbers are stored: int16 holds the columns."""
_BYTE = 2**8


def column_bytes(columns: int) -> int:
    """Return the bytes of a column of rows of this length."""
    return 1 if columns <= _BYTE else 2


def pruned_row_bytes(weight: Weight, nonzeros: int) -> int:
    """Return the bytes of a row as a pruned run stores it: numbers with their columns, or all numbers."""
    if not is_prunable(weight, nonzeros):
        return weight.row_bytes
    return nonzeros * (4 + column_bytes(weight.row_length))


def pruned_bytes(layout: Layout) -> int | None:
    """Return the bytes of the weights that `widenet prune` leaves of a training that prunes; None if not."""
    pruning = layout.training.pruning
    if pruning is None:
        return None
    return sum(weight.rows * pruned_row_bytes(weight, pruning.nonzeros) for weight in layout.weights.values())


def is_prunable(weight: Weight, nonzeros: int) -> bool:
    """Return whether a weight can be stored as its largest numbers."""
    return can_be_pruned(weight, nonzeros) and weight.row_length <= MOST_COLUMNS


def can_be_pruned(weight: Weight, nonzeros: int) -> bool:
    """Return whether a weight has rows of more numbers that are gathered or multiplied by whole."""
    return weight.has_vectors and (weight.columns or 0) > nonzeros


def schedule_of(layout: Layout, weight: Weight) -> Schedule | None:
    """Return how a weight is pruned in training; None: not at all."""
    pruning = layout.training.pruning
    if pruning is None or not weight.trained or not can_be_pruned(weight, pruning.nonzeros):
        return None
    return Schedule(pruning, weight.row_length)


def check_pruning(layout: Layout) -> None:
    """Raise FitError if the training document prunes and no weight of the network can be pruned."""
    pruning = layout.training.pruning
    if pruning is None:
        return
    pruned = {name for name, weight in layout.weights.items() if schedule_of(layout, weight) is not None}
    described = next((name for name in pruned if layout.is_described(name)), None)
    if described is not None:
        raise FitError(
            f"{layout.training.where}: pruning must be unset where vectors contain those of attributes, as"
            f' "{described}" does. Remove it, or "described_by".'
        )
    if not pruned and not any(weight.has_vectors and weight.trained for weight in layout.weights.values()):
        raise FitError(
            f"{layout.training.where}: pruning needs a trained hidden layer on a sparse input, or a trained"
            " output behind hidden layers, and the network has neither. Remove it."
        )
    if not pruned:
        longest = max(
            (weight.row_length for weight in layout.weights.values() if weight.has_vectors), default=0
        )
        raise FitError(
            f"{layout.training.where}: pruning.nonzeros must be less than the {longest:,} numbers of the"
            f" longest vector of a trained sparse input or output; got {pruning.nonzeros:,}. Lower it, or"
            " remove pruning."
        )
