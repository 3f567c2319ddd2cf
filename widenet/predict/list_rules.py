"""Rules for a list as a whole: at most N items of a category, and items that differ from each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, Protocol

import torch
from torch import Tensor

from widenet.data.attributes import Attributes
from widenet.errors import FitError, OptionError
from widenet.spec.layers import OutputLayer

_DEEPER, _LEAST_POOL = 5, 100


class Ranked(Protocol):
    """What rules and filters ask of an output: nothing that needs its weights."""

    @property
    def spec(self) -> OutputLayer:
        """The layer of the document."""

    @property
    def width(self) -> int:
        """L."""


@dataclass(frozen=True)
class Unloaded:
    """An output as filters and rules know it, before its weights are read."""

    spec: OutputLayer
    width: int


@dataclass(frozen=True)
class Limit:
    """The largest number of items of one category in a list.

    Attributes:
        category_LM: The categories of each unit, int64 [L, M]; the last number fills the rows of units with
            fewer than M, and limits nothing.
        num_categories: Number of categories, with that last number.
        most: The largest number of items of each category.
    """

    category_LM: Tensor
    num_categories: int
    most: int


@dataclass(frozen=True)
class ListRules:
    """Rules that the items of a list fulfil together.

    Attributes:
        limits: Limits of categories.
        diversity: Weight of the similarity to items before, in [0, 1]; 0 ranks by score alone.
    """

    limits: Sequence[Limit] = ()
    diversity: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is a rule."""
        return bool(self.limits) or self.diversity > 0

    def pool(self, k: int) -> int:
        """Number of candidates among which the k items of a list are sought at a time."""
        if self.diversity:
            return max(_LEAST_POOL, _DEEPER * k)
        return _DEEPER * k if self.limits else k

    def to(self, device: torch.device) -> "ListRules":
        """The rules on another device."""
        limits = [replace(limit, category_LM=limit.category_LM.to(device)) for limit in self.limits]
        return ListRules(limits, self.diversity)


def rules_of(
    output: Ranked, attributes: Attributes | None, at_most: Mapping[str, int] | None, diversity: float
) -> ListRules:
    """Make the rules for the lists of an output; its tensors lie in the host's memory.

    Args:
        output: The output.
        attributes: The attributes of its items, if they have any.
        at_most: The largest number of items of one category, by attribute.
        diversity: Weight of the similarity to items before, in [0, 1].

    Raises:
        FitError: The items have no attributes, or the output has no vectors to compare.
        OptionError: A rule is wrong, or names an unknown attribute.
    """
    if not 0 <= diversity <= 1:
        raise OptionError("must be 0 to 1", option="diversity", value=diversity)
    if diversity and output.spec.weightless:
        raise FitError(
            f'compares vectors, which output "{output.spec.name}" does not have', option="diversity"
        )
    limits: list[Limit] = []
    for name, most in (at_most or {}).items():
        if isinstance(most, bool) or not isinstance(most, Integral) or most < 1:
            raise OptionError(
                f'must give a whole number from 1 on for "{name}"', option="at_most", value=most
            )
        categories, number = existing(attributes, "at_most").categories(name)
        category_LM = torch.full((output.width, categories.shape[1]), number - 1)
        category_LM[: len(categories)] = torch.from_numpy(categories)
        limits.append(Limit(category_LM, number, most))
    return ListRules(limits, diversity)


def banned_by(
    output: Ranked, attributes: Attributes | None, where: Mapping[str, Any] | None
) -> Tensor | None:
    """Return the units that do not fulfil the conditions `where`, bool [L]; None without a condition.

    Raises:
        FitError: The items have no attributes.
        OptionError: A condition is wrong, or names an unknown attribute.
    """
    if not where:
        return None
    banned_L = torch.ones(output.width, dtype=torch.bool)
    fulfilled = existing(attributes, "where").matching(where)
    banned_L[: len(fulfilled)] = ~torch.from_numpy(fulfilled)
    return banned_L


def existing(attributes: Attributes | None, option: str) -> Attributes:
    """Return the attributes; raises FitError that names an option which needs them if there are none."""
    if attributes is None:
        raise FitError("needs attributes of the items, and the run has none", option=option)
    return attributes
