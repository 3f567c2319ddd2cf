"""Recommendations for every example of a dataset, block by block."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
from widenet.predict.top_k import Filter, Only, joined, top_k
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

    def best(
        self,
        output: str,
        rows: np.ndarray,
        k: int,
        *,
        exclude_seen: bool = True,
        never: SparseBatch | None = None,
        allowed: Filter | None = None,
        scores: bool = True,
        rules: ListRules | None = None,
        only: Only | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return scores and units [E, K] of the k best for some examples; see `top_k`.

        Args:
            output: Name of the output.
            rows: The examples' rows in the dataset, int64 [E].
            k: Number of units.
            exclude_seen: Whether to leave out the units that an example is known to have.
            never: More units to leave out, example by example.
            allowed: Filter for all examples.
            scores: As for `top_k`.
            rules: Rules for each list.
            only: Units to choose from, for some examples.
        """
        network, dataset = self.network, self.dataset
        inputs = dict.fromkeys(layer.field for layer in network.spec.inputs)
        fields = {name: history(dataset, name, rows, self.parts(name)) for name in inputs}
        fields |= self.instead or {}
        field = network.outputs[output].spec.field
        seen = self._seen(field, rows) if exclude_seen else None
        excluded = joined(seen, never) if seen is not None and never is not None else seen or never
        if rules:
            return best_lists(network, fields, output, k, excluded, allowed, rules, only)
        return top_k(network, fields, output, k, excluded, allowed, scores, None, only)

    def _seen(self, field: str, rows: np.ndarray) -> SparseBatch:
        """The known entries of some examples, from the dataset and from `instead`."""
        seen = seen_entries(self.dataset, field, rows, self.parts(field))
        more = (self.instead or {}).get(field)
        return joined(seen, more) if isinstance(more, SparseBatch) else seen


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

    @classmethod
    def of(cls, users: list[str], names: Vocabulary, scores_EK: Tensor, units_EK: Tensor) -> "Block":
        """The recommendations that `top_k` returned for some users."""
        kept_EK = units_EK >= 0
        counts_E = kept_EK.sum(dim=1).cpu().numpy()
        units, scores = units_EK[kept_EK].cpu().numpy(), scores_EK[kept_EK].cpu().to(torch.float32).numpy()
        return cls(users, counts_E, names.ids(units), scores, units)


def recommendations(
    network: Network,
    dataset: Dataset,
    names: Vocabulary,
    output: str,
    k: int,
    exclude_seen: bool = True,
    allowed: Filter | None = None,
    never_for: PerUser | None = None,
    say: Callable[[str], None] | None = None,
    chosen: Sequence[int] | np.ndarray | None = None,
    instead: Mapping[str, SparseBatch | Tensor] | None = None,
    part: Part | None = None,
    rules: ListRules | None = None,
    only_for: PerUser | None = None,
) -> Iterator[Block]:
    """Yield the k best items of an output for every example, block by block, in the dataset's order.

    Args:
        network: The network; all its processes must call this.
        dataset: The examples.
        names: Vocabulary of the output's items.
        output: Name of the output.
        k: Number of items for each example.
        exclude_seen: Whether to leave out the items that an example is known to have.
        allowed: Filter for all users.
        never_for: Items that single users must not be shown.
        say: Called after the last block with a warning about users of `never_for` or `only_for` who are not
            in the dataset.
        chosen: Rows of the examples; None for all.
        instead: Values by field, to use in place of those of the dataset; for a single chosen row.
        part: Recommend as an evaluation of this part does: neither it nor later parts are known. None: all
            parts are known.
        rules: Rules for each user's list.
        only_for: The only items that single users may be shown.
    """
    histories = Histories(network, dataset, lambda name: known_parts(dataset, name, part), instead)
    allowed = (allowed or Filter()).within(len(names), network.outputs[output])
    step = rows_a_block(min((rules or ListRules()).pool(k), network.outputs[output].width))
    chosen = range(dataset.num_examples) if chosen is None else chosen
    for start in range(0, len(chosen), step):
        rows = np.asarray(chosen[start : start + step], dtype=np.int64)
        users = dataset.ids(rows)
        network.exchange.at(f"users {start:,} to {start + len(rows) - 1:,}")
        never = None if never_for is None else never_for.of(users)
        scores_EK, units_EK = histories.best(
            output,
            rows,
            k,
            exclude_seen=exclude_seen,
            never=never,
            allowed=allowed,
            rules=rules,
            only=None if only_for is None else only_for.only(users),
        )
        yield Block.of(users, names, scores_EK, units_EK)
    for personal in (never_for, only_for):
        if personal is not None and say is not None and (warning := personal.warning()):
            say(warning)
