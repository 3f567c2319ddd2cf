"""The best items of users on a device: blocks of users as `widenet predict` takes them, and in plain PyTorch.

Both have the same network of random numbers: a mean of item vectors, tanh, a score for every item.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from widenet.data.dataset import Dataset
from widenet.model.build import build
from widenet.parallel.exchange import one_thread_an_operation
from widenet.parallel.group import exchange_for
from widenet.plan.binding import bind
from widenet.plan.tiles import as_slice
from widenet.predict.restrictions import Histories
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

USERS = 512
"""Users of a block."""

_TILE = 2**20
"""Items of a tile in plain PyTorch."""


def widenet(folder: str, network: dict[str, Any], k: int, device: str) -> Callable[[int], dict[str, Any]]:
    """Return steps that find the k best items, which they do not know yet, of a block of users."""
    dataset = Dataset.open(f"{folder}/dataset")
    layout = bind(NetworkSpec.of(network), TrainingSpec.of({}), dataset.fields)
    exchange = exchange_for(layout.training.shards, torch.device(device))
    made = build(layout, exchange, device)
    for place, link in enumerate((("taste", "history"), ("next", ""))):
        wide = made.wide[layout.links[link].weight]
        vectors = _vectors(place, wide.shards.width, wide.columns, device)
        for shard, part in wide.parts.items():
            part.weight.copy_(vectors[as_slice(wide.shards.units(shard))])
        del vectors
    histories = Histories(made, dataset)

    def best(rows: np.ndarray) -> Tensor:
        with one_thread_an_operation():
            scores, units = histories.best("next", rows, k)
        scores.cpu()
        return units.cpu()

    return _blocks(folder, f"widenet-{k}", dataset.num_examples, best)


def plain(
    folder: str, network: dict[str, Any], k: int, precision: str, device: str
) -> Callable[[int], dict[str, Any]]:
    """Return the same steps with `mm` and `topk` of a tile of items at a time.

    Args:
        folder: Folder of the data.
        network: The network document.
        k: Number of items.
        precision: Of `torch.set_float32_matmul_precision`.
        device: The device.
    """
    torch.set_float32_matmul_precision(precision)
    indptr, indices, width = (
        np.load(Path(folder) / f"{name}.npy") for name in ("indptr", "indices", "width")
    )
    units = network["layers"][1]["units"]
    inputs, items = (_vectors(place, int(width), units, device) for place in (0, 1))
    edges = np.arange(0, int(width) + _TILE, _TILE)

    def best(rows: np.ndarray) -> Tensor:
        offsets, entries = indptr[rows[0] : rows[-1] + 2], indices[indptr[rows[0]] : indptr[rows[-1] + 1]]
        users = np.repeat(np.arange(len(rows)), np.diff(offsets))
        order = np.argsort(entries, kind="stable")
        known, owners, bags, starts = (
            torch.from_numpy(each).long().to(device)
            for each in (entries[order], users[order], entries, offsets[:-1] - offsets[0])
        )
        hidden = torch.tanh(functional.embedding_bag(bags, inputs, starts, mode="mean"))
        spans = np.searchsorted(entries[order], edges)
        found = []
        for start, low, high in zip(edges.tolist(), spans[:-1].tolist(), spans[1:].tolist(), strict=False):
            scores = torch.mm(hidden, items[start : start + _TILE].T)
            scores[owners[low:high], known[low:high] - start] = -torch.inf
            values, places = scores.topk(min(k, scores.shape[1]))
            found.append((values, places + start))
        values, places = (torch.cat(each, dim=1) for each in zip(*found, strict=True))
        chosen = values.topk(k)
        chosen.values.cpu()
        return places.gather(1, chosen.indices).cpu()

    return _blocks(folder, f"plain-{precision}-{k}", len(indptr) - 1, best)


def _vectors(seed: int, width: int, units: int, device: str) -> Tensor:
    """Return normal numbers, float32 [width, units]."""
    generator = torch.Generator(device).manual_seed(seed)
    return torch.randn(width, units, generator=generator, device=device)


def _blocks(
    folder: str, name: str, num_users: int, best: Callable[[np.ndarray], Tensor]
) -> Callable[[int], dict[str, Any]]:
    """Return steps of one block of users each; the items of the first block are written to a file."""
    done, path = 0, Path(folder) / f"{name}.npy"

    def steps(number: int) -> dict[str, Any]:
        nonlocal done
        with torch.no_grad():
            for _ in range(number):
                first = done * USERS % (num_users - USERS + 1)
                found = best(np.arange(first, first + USERS))
                if not done:
                    np.save(path, found.numpy())
                done += 1
        return {"items": str(path), "users": USERS}

    return steps
