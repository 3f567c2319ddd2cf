"""The rows that a batch touches: brought before a step, and let go of after it.

Those in files come into memory, and those in the host's memory to the device.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from widenet.kernels.bags import Touched, gather_sum
from widenet.model.wide_weight import WHOLE, WideWeight
from widenet.plan.layout import Key, Layout
from widenet.sparse import SparseBatch

TouchedRows = Mapping[str, Mapping[int, Touched]]
"""By weight and shard."""

Rows = Mapping[str, Mapping[int, Tensor]]
"""Rows of weights in the host's memory, int64 there, by weight and shard or `WHOLE`."""


def fetch_rows(
    wide: Mapping[str, WideWeight], touched: TouchedRows, rows: Rows, updates: bool = True
) -> None:
    """Bring the rows that a batch touches, and let go of those in files that the step before has left.

    Args:
        wide: The weights.
        touched: The rows where they are computed.
        rows: Those of weights in the host's memory, which are copied from there.
        updates: Whether a step updates them.
    """
    for name, by_shard in touched.items():
        weight = wide[name]
        if weight.host is not None:
            features = {shard: own.features_U for shard, own in by_shard.items()}
            weight.take(rows[name], features, with_state=updates and weight.by_rows and weight.trained)
        elif weight.in_files:
            for part in weight.parts.values():
                part.unmap()
            if not _is_read_ahead(weight):
                _begin_to_read(weight, by_shard)


def read_ahead(wide: Mapping[str, WideWeight], touched: TouchedRows) -> None:
    """Begin to read the rows in files that a batch to come touches, while a step before it is under way."""
    for name, by_shard in touched.items():
        if _is_read_ahead(wide[name]):
            _begin_to_read(wide[name], by_shard)


def _is_read_ahead(weight: WideWeight) -> bool:
    """Return whether no step passes over all rows in files: the cache must not read what a pass writes."""
    return weight.in_files and weight.by_rows and not weight.is_swept


def _begin_to_read(weight: WideWeight, by_shard: Mapping[int, Touched]) -> None:
    for shard, own in by_shard.items():
        weight.parts[shard].fetch_rows(own.features_U)


def let_go_of_rows(wide: Mapping[str, WideWeight], names: Iterable[str]) -> None:
    """Write some weights' rows back to the host's memory."""
    for name in names:
        wide[name].let_go()
    for host in {weight.host for weight in wide.values() if weight.host is not None}:
        host.settle()


def rows_of(wide: Mapping[str, WideWeight], touched: TouchedRows) -> Rows:
    """Return the rows that a batch touches in weights that lie in the host's memory, before they are sent."""
    return {
        name: {shard: own.features_U for shard, own in by_shard.items()}
        for name, by_shard in touched.items()
        if wide[name].host is not None
    }


def gathered(weight: WideWeight, batch: SparseBatch) -> Tensor:
    """Return the sums of the rows of all shards of this process, float32 [S * E, H]."""
    assert weight.whole is not None
    if weight.taken is None:
        return gather_sum(batch, weight.whole.weight)
    places_Z = torch.searchsorted(weight.taken.places_U, batch.indices)
    return gather_sum(SparseBatch(batch.indptr, places_Z, batch.values), weight.taken.copies.weight)


def touched_together(
    uses: Mapping[str, Sequence[Key]], whole: Mapping[str, SparseBatch], layout: Layout, num_shards: int
) -> dict[str, dict[int, Touched]]:
    """Return the rows that a batch touches, as `WHOLE`, of the weights whose shards are updated together.

    Outputs, and a limit of the gradient's length, take shard by shard.

    Args:
        uses: Layers and sources that read each weight of sparse inputs.
        whole: The sources, of `sharding.joined`.
        layout: The network.
        num_shards: Number of shards of this process.
    """
    if layout.training.gradient_norm_limit is not None:
        return {}
    of_outputs = {layout.links[output.name, ""].weight for output in layout.network.outputs}
    return {
        weight: {WHOLE: Touched.of_shards([whole[source] for _, source in keys], num_shards)}
        for weight, keys in uses.items()
        if weight not in of_outputs
    }
