"""Plain PyTorch for sessions: the network of examples/diginetica, padded, with all logits at once."""

import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

Sessions = Sequence[Sequence[int]]
_SHOWN = 20
"""Items of a case that count."""


class Block(nn.Module):
    """A block of self-attention as `"kind": "attention"` describes it, with relative positions."""

    def __init__(self, units: int, newest: int, layer: dict[str, Any]) -> None:
        super().__init__()
        self.heads, self.dropout = layer.get("heads", 1), nn.Dropout(layer.get("dropout", 0.0))
        inner = layer.get("feed_forward", units)
        self.before, self.between = nn.LayerNorm(units, eps=1e-8), nn.LayerNorm(units, eps=1e-8)
        self.projections, self.joined = nn.Linear(units, 3 * units), nn.Linear(units, units)
        self.inner, self.outer = nn.Linear(units, inner), nn.Linear(inner, units)
        self.distances = nn.Parameter(torch.empty(newest, units))
        for name, numbers in self.named_parameters():
            if numbers.dim() == 2:
                nn.init.normal_(numbers, std=layer["initializer"]["deviation"])
            elif name.endswith("bias"):
                nn.init.zeros_(numbers)

    def forward(self, x_ETU: Tensor) -> Tensor:
        """Return the values of all positions, [E, T, U]."""
        shape, times = (*x_ETU.shape[:2], self.heads, -1), x_ETU.shape[1]
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.projections(self.before(x_ETU)).chunk(3, dim=2)
        )
        apart = torch.arange(times)[:, None] - torch.arange(times)
        vectors_TCH = self.distances[:times].view(times, self.heads, -1).permute(1, 2, 0)
        far = (q @ vectors_TCH).gather(3, apart.clamp_min(0).expand(*q.shape[:2], times, times))
        mask = (far * q.shape[3] ** -0.5).masked_fill(apart < 0, -torch.inf)
        read = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x_ETU = x_ETU + self.dropout(self.joined(read.transpose(1, 2).flatten(start_dim=2)))
        hidden = functional.relu(self.inner(self.between(x_ETU)))
        return torch.add(x_ETU, self.dropout(self.outer(hidden)))


class Padded(nn.Module):
    """The network of a document: item vectors, blocks, and cosines with the same item vectors."""

    def __init__(self, width: int, layers: Sequence[dict[str, Any]]) -> None:
        super().__init__()
        session, item, *blocks, output = layers
        self.newest, units = session["last"], item["units"]
        self.temperature: float = output["cosine"]["temperature"]
        self.items = nn.Embedding(width + 1, units, padding_idx=width)
        nn.init.normal_(self.items.weight, std=item["initializer"]["deviation"])
        self.dropout, self.bias = nn.Dropout(item.get("dropout", 0.0)), nn.Parameter(torch.zeros(width))
        self.blocks = nn.Sequential(*(Block(units, self.newest, layer) for layer in blocks))

    def logits(self, items_ET: Tensor, asking_ET: Tensor) -> Tensor:
        """Return the logits of all items at the positions that ask, [M, width]."""
        states = self.blocks(self.dropout(self.items(items_ET)))[asking_ET]
        cosines = functional.normalize(states) @ functional.normalize(self.items.weight[:-1]).T
        return cosines / self.temperature + self.bias


def padded(rows: Sessions, newest: int, width: int) -> Tensor:
    """Return the newest items of some sessions, int64 [E, T], filled up with `width`."""
    longest = max(min(len(row), newest) for row in rows)
    items_ET = torch.full((len(rows), longest), width)
    for number, row in enumerate(rows):
        own = row[-newest:]
        items_ET[number, : len(own)] = torch.tensor(own)
    return items_ET


def train(model: Padded, sessions: Sessions, training: dict[str, Any], smoothing: float) -> list[float]:
    """Train as a training document with Adam and a cosine schedule says; return the seconds of each epoch.

    `smoothing` is the share of every target that all items have in common.
    """
    epochs, size, rate = training["epochs"], training["batch_size"], training["optimizer"]["learning_rate"]
    width, seconds = len(model.bias), []
    steps = -(-len(sessions) // size) * epochs
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for epoch in range(epochs):
        started = time.perf_counter()
        for rows in _batches(sessions, size, epoch):
            items_ET = padded(rows, model.newest + 1, width)
            before_ET, next_ET = items_ET[:, :-1], items_ET[:, 1:]
            asking_ET = next_ET != width
            optimizer.zero_grad()
            logits, targets = model.logits(before_ET, asking_ET), next_ET[asking_ET]
            loss = functional.cross_entropy(logits, targets, label_smoothing=smoothing)
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
        seconds.append(time.perf_counter() - started)
    return seconds


def _batches(sessions: Sessions, size: int, epoch: int) -> Iterator[Sessions]:
    order = np.random.default_rng(epoch).permutation(len(sessions))
    for start in range(0, len(order), size):
        yield [sessions[number] for number in order[start : start + size]]


@torch.no_grad()
def ranks(model: Padded, prefixes: Sessions, targets: Sequence[int]) -> Tensor:
    """Return the rank of each case's target among all items, from 1, int64 [cases]."""
    model.eval()
    found, width = [], len(model.bias)
    for start in range(0, len(prefixes), 512):
        items_ET = padded(prefixes[start : start + 512], model.newest, width)
        ends_ET = torch.arange(items_ET.shape[1]) == (items_ET != width).sum(dim=1, keepdim=True) - 1
        logits, wanted = model.logits(items_ET, ends_ET), torch.tensor(targets[start : start + 512])
        found.append((logits > logits.gather(1, wanted[:, None])).sum(dim=1) + 1)
    return torch.cat(found)


def main(network: str, training: str, cases: str, out: str, threads: str, smoothing: str) -> None:
    """Train on sessions, and write seconds, P@20 and MRR@20 as JSON.

    Args:
        network: Path of the network document.
        training: Path of the training document.
        cases: Path of a JSON file with width, sessions, prefixes and targets, of indices from 0.
        out: The file to write.
        threads: Number of threads.
        smoothing: Label smoothing.
    """
    torch.set_num_threads(int(threads))
    torch.manual_seed(0)
    data = _read(cases)
    model = Padded(data["width"], _read(network)["layers"])
    seconds = train(model, data["sessions"], _read(training), float(smoothing))
    found = ranks(model, data["prefixes"], data["targets"])
    shown = (found <= _SHOWN).double()
    figures = {"recall@20": shown.mean().item(), "mrr@20": (shown / found).mean().item(), "seconds": seconds}
    Path(out).write_text(json.dumps(figures), "utf-8")


def _read(path: str) -> Any:
    return json.loads(Path(path).read_text("utf-8"))


if __name__ == "__main__":
    main(*sys.argv[1:])
