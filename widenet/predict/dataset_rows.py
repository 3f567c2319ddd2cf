"""Recommendations for every example of a dataset, block by block."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.manifest import PARTS, Part
from widenet.data.vocabulary import Vocabulary
from widenet.model.network import Network
from widenet.plan.tiles import RANKED_TOGETHER
from widenet.predict.filtered_lists import ListRules, best_lists
from widenet.predict.filters import PerUser
from widenet.predict.top_k import Filter, joined, top_k
from widenet.sparse import SparseBatch

_RECOMMENDATIONS_A_BLOCK = 2**21


def rows_a_block(k: int) -> int:
    """Number of examples to rank together, so that k units for each fit in memory."""
    return max(1, min(RANKED_TOGETHER, _RECOMMENDATIONS_A_BLOCK // k))


def seen_entries(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch:
    """The entries of some examples in some parts of a field; values may be missing."""
    entries = dataset.sparse(field, rows, parts[0])
    for part in parts[1:]:
        entries = joined(entries, dataset.sparse(field, rows, part))
    return entries


def known_parts(dataset: Dataset, field: str, part: Part | None) -> Sequence[Part]:
    """The parts of a field that come before `part`; all parts for None."""
    before = PARTS if part is None else PARTS[: PARTS.index(part)]
    return [known for known in before if known in dataset.field(field).parts]


def history(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch | Tensor:
    """A network's input from a field: its training part; for a sequence, all of `parts` in order of time."""
    if dataset.field(field).kind == "sequence":
        return seen_entries(dataset, field, rows, parts)
    return dataset.rows(field, rows)


@dataclass(frozen=True)
class Histories:
    """Feeds a network with examples of a dataset.

    Attributes:
        network: The network.
        dataset: The examples.
        parts: Gives the known parts of a field, by its name.
        instead: Values of one example by field, to use in place of those of the dataset.
    """

    network: Network
    dataset: Dataset
    parts: Callable[[str], Sequence[Part]]
    instead: Mapping[str, SparseBatch | Tensor] | None = None

    def fields(self, rows: np.ndarray) -> dict[str, SparseBatch | Tensor]:
        """Return the fields that the network reads, for the examples in some rows, int64 [E]."""
        names = dict.fromkeys(layer.field for layer in self.network.spec.inputs)
        found = {name: history(self.dataset, name, rows, self.parts(name)) for name in names}
        return {**found, **(self.instead or {})}

    def seen(self, output: str, rows: np.ndarray) -> SparseBatch:
        """Return the units that some examples are known to have, from the dataset and from `instead`."""
        name = self.network.outputs[output].spec.field
        seen = seen_entries(self.dataset, name, rows, self.parts(name))
        more = (self.instead or {}).get(name)
        return joined(seen, more) if isinstance(more, SparseBatch) else seen

    def best(
        self,
        output: str,
        rows: np.ndarray,
        k: int,
        *,
        exclude_seen: bool = True,
        allowed: Filter | None = None,
        scores: bool = True,
    ) -> tuple[Tensor, Tensor]:
        """Return scores and units [E, K] of the k best for some examples; see `top_k`.

        Args:
            output: Name of the output.
            rows: The examples' rows in the dataset, int64 [E].
            k: Number of units.
            exclude_seen: Whether to leave out the units that an example is known to have.
            allowed: Filter for all examples.
            scores: As for `top_k`.
        """
        seen = self.seen(output, rows) if exclude_seen else None
        return top_k(self.network, self.fields(rows), output, k, seen, allowed, scores)


@dataclass(frozen=True)
class Block:
    """R recommendations of E users, user by user, best first.

    Attributes:
        users: E names.
        counts: Number of recommendations of each user, int64 [E].
        items: R ids.
        scores: float32 [R].
        units: The items' units, int64 [R].
    """

    users: list[str]
    counts: np.ndarray
    items: list[str]
    scores: np.ndarray
    units: np.ndarray


@dataclass(frozen=True)
class Restrictions:
    """Which items of an output may be recommended, in the host's memory.

    Attributes:
        allowed: Filter for everybody.
        rules: Rules for each list.
        never_for: Items that single users must not be shown.
        only_for: The only items that single users may be shown.
    """

    allowed: Filter = field(default_factory=Filter)
    rules: ListRules = field(default_factory=ListRules)
    never_for: PerUser | None = None
    only_for: PerUser | None = None

    def rows_a_block(self, k: int, width: int) -> int:
        """Return how many lists of k of so many units to make together."""
        return rows_a_block(min(self.rules.pool(k), width))

    def block(
        self,
        network: Network,
        fields: Mapping[str, SparseBatch | Tensor],
        output: str,
        k: int,
        users: list[str],
        names: Vocabulary,
        seen: SparseBatch | None,
    ) -> Block:
        """Return the k best items of an output for some users.

        Args:
            network: The network; all its processes must call this.
            fields: What it reads of the users.
            output: Name of the output.
            k: Number of items for each user.
            users: Their names.
            names: Vocabulary of the output's items.
            seen: Units to leave out, user by user.
        """
        if self.never_for is not None:
            never = self.never_for.of(users)
            seen = never if seen is None else joined(seen, never)
        only = None if self.only_for is None else self.only_for.only(users)
        allowed = self.allowed.to(network.device).within(len(names), network.outputs[output])
        scores_EK, units_EK = best_lists(network, fields, output, k, seen, allowed, self.rules, only)
        kept_EK = units_EK >= 0
        units, scores = units_EK[kept_EK].cpu().numpy(), scores_EK[kept_EK].cpu().to(torch.float32).numpy()
        return Block(users, kept_EK.sum(dim=1).cpu().numpy(), names.ids(units), scores, units)


def recommendations(
    network: Network,
    dataset: Dataset,
    names: Vocabulary,
    output: str,
    k: int,
    exclude_seen: bool = True,
    restrictions: Restrictions | None = None,
    say: Callable[[str], None] | None = None,
    chosen: Sequence[int] | np.ndarray | None = None,
    instead: Mapping[str, SparseBatch | Tensor] | None = None,
    part: Part | None = None,
) -> Iterator[Block]:
    """Yield the k best items of an output for every example, block by block, in the dataset's order.

    Args:
        network: The network; all its processes must call this.
        dataset: The examples.
        names: Vocabulary of the output's items.
        output: Name of the output.
        k: Number of items for each example.
        exclude_seen: Whether to leave out the items that an example is known to have.
        restrictions: Which items may be recommended; None: all.
        say: Called after the last block with a warning about users of `restrictions` who are not in the
            dataset.
        chosen: Rows of the examples; None for all.
        instead: Values by field, to use in place of those of the dataset; for a single chosen row.
        part: Recommend as an evaluation of this part does: neither it nor later parts are known. None: all
            parts are known.
    """
    histories = Histories(network, dataset, lambda name: known_parts(dataset, name, part), instead)
    restrictions = restrictions or Restrictions()
    step = restrictions.rows_a_block(k, network.outputs[output].width)
    chosen = range(dataset.num_examples) if chosen is None else chosen
    for start in range(0, len(chosen), step):
        rows = np.asarray(chosen[start : start + step], dtype=np.int64)
        network.exchange.at(f"users {start:,} to {start + len(rows) - 1:,}")
        seen = histories.seen(output, rows) if exclude_seen else None
        yield restrictions.block(network, histories.fields(rows), output, k, dataset.ids(rows), names, seen)
    for personal in (restrictions.never_for, restrictions.only_for):
        if personal is not None and say is not None and (warning := personal.warning()):
            say(warning)
