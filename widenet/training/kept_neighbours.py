"""Gives the known units of a network the neighbours that they had in an earlier run."""

from collections.abc import Callable

import numpy as np
import torch

from widenet.model.neighbourhood import EMPTY
from widenet.model.network import Network
from widenet.plan.layout import Layout
from widenet.spec.layers import OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.training.checkpoint import Checkpoint, neighbourhood_file


def outputs_near(before: NetworkSpec, spec: NetworkSpec) -> list[OutputLayer]:
    """Return the outputs of a network with a term whose neighbours are those of an earlier network's."""
    old = {(output.name, output.field): _counted(output) for output in before.outputs}
    return [
        output
        for output in spec.outputs
        if output.neighbourhood is not None and old.get((output.name, output.field)) == _counted(output)
    ]


def _counted(output: OutputLayer) -> tuple[int, float, str] | None:
    """Return the settings of a term on which its neighbours and similarities depend."""
    term = output.neighbourhood
    return None if term is None else (term.neighbours, term.popularity, term.order)


def keep_neighbours(
    before: Layout, model: Checkpoint, network: Network, origin_of: Callable[[str, int, int], np.ndarray]
) -> None:
    """Replace what was counted for known units by the neighbours in an earlier run; new units keep it.

    Args:
        before: The layout of the earlier run.
        model: Its weights.
        network: The network, whose neighbours are counted.
        origin_of: Returns the index of each unit of a field in the earlier run, by its numbers of units there
            and here; -1 for new units.
    """
    names = [output.name for output in before.network.outputs]
    for output in outputs_near(before.network, network.spec):
        term = network.outputs[output.name].neighbourhood
        assert term is not None
        shards = before.shards(before.units[output.name])
        origin = torch.from_numpy(origin_of(output.field, shards.width, term.shards.width))
        now = torch.full((shards.width,), -1)
        now[origin[origin >= 0]] = torch.nonzero(origin >= 0)[:, 0]
        units, neighbours, similarities = [], [], []
        for shard in range(shards.count):
            size = shards.size(shard)
            places = size * term.spec.neighbours
            keys, similarity_Z = torch.empty(places, dtype=torch.int64), torch.empty(places)
            file = neighbourhood_file(names.index(output.name), shard, shards.count)
            model.fill(file, {"key": keys, "similarity": similarity_Z})
            key_Z = keys[keys != EMPTY]
            unit_Z, neighbour_Z = now[shard + key_Z % size * shards.count], now[key_Z // size]
            is_known_Z = (unit_Z >= 0) & (neighbour_Z >= 0)
            is_known_Z &= torch.isin(unit_Z % term.shards.count, torch.tensor([*term.parts]))
            units.append(unit_Z[is_known_Z])
            neighbours.append(neighbour_Z[is_known_Z])
            similarities.append(similarity_Z[: len(key_Z)][is_known_Z])
        term.replace(origin >= 0, torch.cat(units), torch.cat(neighbours), torch.cat(similarities))
