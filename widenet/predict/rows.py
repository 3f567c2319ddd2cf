"""Recommendations for every example of a dataset, block by block."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from widenet.data.dataset import Dataset
from widenet.data.vocabulary import Vocabulary
from widenet.model.network import Network
from widenet.predict.filters import PerUser, joined
from widenet.predict.top_k import Filter, top_k

_LARGEST_BLOCK = 512
_RECOMMENDATIONS_A_BLOCK = 2**21


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
) -> Iterator[Block]:
    """The k best items of an output for every example, in the dataset's order; memory does not grow with their number.

    names: the output's items. exclude_seen: leave out what is in the example's training part. allowed, never_for: further filters.
    """
    field = network.outputs[output].spec.field
    input_fields = [layer.field for layer in network.spec.inputs]
    allowed = (allowed or Filter()).within(len(names), network.outputs[output])
    rows_a_block = max(1, min(_LARGEST_BLOCK, _RECOMMENDATIONS_A_BLOCK // k))
    for start in range(0, dataset.num_examples, rows_a_block):
        rows = np.arange(start, min(start + rows_a_block, dataset.num_examples))
        users = dataset.ids(rows)
        fields = {name: dataset.rows(name, rows).to(network.device) for name in input_fields}
        seen = dataset.sparse(field, rows) if exclude_seen else None
        never = None if never_for is None else never_for.of(users)
        excluded = joined(seen, never) if seen is not None and never is not None else seen or never
        scores_EK, units_EK = top_k(network, fields, output, k, None if excluded is None else excluded.to(network.device), allowed)
        kept_EK = units_EK >= 0
        counts_E = kept_EK.sum(dim=1).cpu().numpy()
        yield Block(users, counts_E, names.ids(units_EK[kept_EK].cpu().numpy()), scores_EK[kept_EK].cpu().to(torch.float32).numpy())
