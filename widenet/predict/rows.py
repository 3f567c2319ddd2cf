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
from widenet.predict.filters import PerUser, joined
from widenet.predict.top_k import Filter, top_k
from widenet.sparse import SparseBatch

_LARGEST_BLOCK = 512
_RECOMMENDATIONS_A_BLOCK = 2**21


def rows_a_block(k: int) -> int:
    """How many examples are ranked together, so that k units for each fit in memory."""
    return max(1, min(_LARGEST_BLOCK, _RECOMMENDATIONS_A_BLOCK // k))


def had(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch:
    """What some examples are known to have, in some parts of a field; values do not matter."""
    found = dataset.sparse(field, rows, parts[0])
    for part in parts[1:]:
        found = joined(found, dataset.sparse(field, rows, part))
    return found


def known_parts(dataset: Dataset, field: str, part: Part | None) -> Sequence[Part]:
    """What examples are known to have of a field: all; where a part is asked for, what comes before it."""
    before = PARTS if part is None else PARTS[: PARTS.index(part)]
    return [known for known in before if known in dataset.field(field).parts]


def history(dataset: Dataset, field: str, rows: np.ndarray, parts: Sequence[Part]) -> SparseBatch | Tensor:
    """What a network is given of a field: the training part; of a sequence all of some parts, one after
    the other in time.
    """
    return (
        had(dataset, field, rows, parts)
        if dataset.field(field).kind == "sequence"
        else dataset.rows(field, rows)
    )


@dataclass(frozen=True)
class Histories:
    """What a network is given of the examples of a dataset.

    parts: of a field, by its name, those that are known of an example. instead: what stands in place of
    fields, of one example.
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
    ) -> tuple[Tensor, Tensor]:
        """Scores and units [E, K] of the k best for some examples, as of `top_k`.

        exclude_seen: not what an example is known to have. never: units that must not appear either, example
        by example.
        """
        network, dataset = self.network, self.dataset
        inputs = dict.fromkeys(layer.field for layer in network.spec.inputs)
        fields = {name: history(dataset, name, rows, self.parts(name)) for name in inputs} | dict(
            self.instead or {}
        )
        fields = {name: values.to(network.device) for name, values in fields.items()}
        field = network.outputs[output].spec.field
        seen = self._seen(field, rows) if exclude_seen else None
        excluded = joined(seen, never) if seen is not None and never is not None else seen or never
        return top_k(
            network,
            fields,
            output,
            k,
            None if excluded is None else excluded.to(network.device),
            allowed,
            scores,
        )

    def _seen(self, field: str, rows: np.ndarray) -> SparseBatch:
        """What some examples are known to have, by the dataset or by what stands in its place."""
        seen, told = had(self.dataset, field, rows, self.parts(field)), (self.instead or {}).get(field)
        return joined(seen, told) if isinstance(told, SparseBatch) else seen


@dataclass(frozen=True)
class Block:
    """The recommendations of E users, R in all: the first user's first, best first.

    counts: int64 [E]. items: R ids. scores: float32 [R].
    """

    users: list[str]
    counts: np.ndarray
    items: list[str]
    scores: np.ndarray


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
    chosen: range | None = None,
    instead: Mapping[str, SparseBatch | Tensor] | None = None,
    part: Part | None = None,
) -> Iterator[Block]:
    """The k best items of an output for every example, in the dataset's order; memory does not grow with
    their number.

    chosen: the rows of the examples, if not all. instead: what stands in place of the dataset's fields, of
    one chosen row.
    names: the output's items. allowed, never_for: further filters.
    part: a part that is asked for, as an evaluation asks: of it and of what comes after it nothing is known.
    None: everything is known.
    exclude_seen: leave out what the example is known to have.
    say: told, after the last block, which users of `never_for` the dataset does not have.
    """
    histories = Histories(network, dataset, lambda name: known_parts(dataset, name, part), instead)
    allowed = (allowed or Filter()).within(len(names), network.outputs[output])
    step = rows_a_block(min(k, network.outputs[output].width))
    chosen = range(dataset.num_examples) if chosen is None else chosen
    for start in range(chosen.start, chosen.stop, step):
        rows = np.arange(start, min(start + step, chosen.stop))
        users = dataset.ids(rows)
        network.exchange.at(f"users {rows[0]:,} to {rows[-1]:,}")
        never = None if never_for is None else never_for.of(users)
        scores_EK, units_EK = histories.best(
            output, rows, k, exclude_seen=exclude_seen, never=never, allowed=allowed
        )
        kept_EK = units_EK >= 0
        counts_E = kept_EK.sum(dim=1).cpu().numpy()
        yield Block(
            users,
            counts_E,
            names.ids(units_EK[kept_EK].cpu().numpy()),
            scores_EK[kept_EK].cpu().to(torch.float32).numpy(),
        )
    if never_for is not None and say is not None and (stray := never_for.not_asked_for()):
        say(stray)
