"""The preset of Gowalla in plain PyTorch, with a switch for each idea about its training."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize
from torch.optim import Adam, SparseAdam
from torch.optim.lr_scheduler import CosineAnnealingLR

from benchmarks.piece import Piece
from benchmarks.terms import nearest
from widenet.sparse import SparseBatch

_BATCH = 64
"""Users of a step. The piece has a quarter of the users, so it takes as many steps as the preset."""
_LONGEST = 2.0
"""Largest standardized loss that changes a temperature."""


@dataclass(frozen=True)
class Switches:
    """Differences of a training from the preset's."""

    seed: int = 0
    wider: int = 1
    """Units, as a multiple."""
    negatives: float = 1.0
    """BSL: factor on the gradient of the vectors by the logarithm of the sum over all items."""
    others: float = 1.0
    """`delta_boost`: factor on the gradients by the logits of items that are no targets."""
    top: int | None = None
    """SL@K: K. A target counts by how far its logit is above the K-th largest."""
    by_loss: float = 0.0
    """Adap-tau: exponent by which a user with a large loss has a higher temperature."""
    own: float = 0.0
    """Factor on a vector of the user's own, which is added to the items'."""
    views: int = 1
    """How often a step sees each history, each time with other items hidden."""
    near: float = 0.0
    """Share of the mean vector of the 10 nearest items that is added to each item's."""
    visible: float = 1.0
    """Weight of targets that are not hidden."""
    length: float = 0.0
    """Targets count n^-length in a history of n."""


class Autoencoder:
    """Vectors of items, which are both input and output, and their biases.

    Attributes:
        vectors: float32 [items, units].
        bias: float32 [items].
        own: A vector for each user, or None.
    """

    def __init__(self, piece: Piece, switches: Switches, documents: tuple[Any, Any], units: int) -> None:
        (history, taste, output), self.training = documents[0]["layers"], documents[1]
        random = torch.Generator().manual_seed(switches.seed)
        deviation, units = taste["initializer"]["deviation"], switches.wider * units
        self.piece, self.switches = piece, switches
        self.temperature, self.denoise = output["cosine"]["temperature"], history["denoise"]
        counts = piece.counts.float()
        self.damping = (counts / counts.mean()) ** -history["popularity_damping"]
        self.vectors = (torch.randn(piece.width, units, generator=random) * deviation).requires_grad_()
        self.bias = torch.zeros(piece.width, requires_grad=True)
        self.own: torch.nn.Embedding | None = None
        if switches.own:
            self.own = torch.nn.Embedding(piece.histories.num_examples, units, sparse=True)
            torch.nn.init.normal_(self.own.weight, 0, deviation, random)
        self.nearest = nearest(piece, 10) if switches.near else None

    def directions(self, rows: Tensor, visible_Z: Tensor | None = None) -> Tensor:
        """Return the hidden vectors of users, of length 1, float32 [E, units]; None: nothing is hidden."""
        history = self.piece.histories.take(rows)
        inputs = self.vectors
        if self.nearest is not None:
            inputs = inputs + self.switches.near * _sums(self.nearest, inputs)
        weight_Z = self.damping[history.indices]
        if visible_Z is not None:
            weight_Z = weight_Z * visible_Z
        sums = _sums(history.with_values(weight_Z), inputs)
        if self.own is not None:
            sums = sums + self.switches.own * self.own(rows)
        return normalize(sums, dim=1)

    @torch.no_grad()
    def logits(self, rows: Tensor, bias: float = 1.0) -> Tensor:
        """Return the logits of all items for users, with a factor on the biases."""
        scores = self.directions(rows) @ normalize(self.vectors, dim=1).T
        return scores.div_(self.temperature).add_(self.bias, alpha=bias)


def trained(piece: Piece, switches: Switches, documents: tuple[Any, Any], units: int) -> Autoencoder:
    """Train a network.

    Args:
        piece: The data.
        switches: What differs from the documents.
        documents: A network and a training document, as `examples/gowalla` has them.
        units: Units in place of the document's.
    """
    network, random = Autoencoder(piece, switches, documents, units), np.random.default_rng(switches.seed)
    users = torch.nonzero(piece.histories.counts())[:, 0]
    losses_U = torch.zeros(piece.histories.num_examples)
    rate, epochs = network.training["optimizer"]["learning_rate"], network.training["epochs"]
    optimizers: list[torch.optim.Optimizer] = [Adam([network.vectors, network.bias], lr=rate)]
    if network.own is not None:
        optimizers.append(SparseAdam(network.own.parameters(), lr=rate))
    steps = epochs * -(-len(users) // _BATCH)
    schedules = [CosineAnnealingLR(optimizer, steps) for optimizer in optimizers]
    for epoch in range(epochs):
        shuffled = users[torch.from_numpy(random.permutation(len(users)))]
        for start in range(0, len(users), _BATCH):
            rows = shuffled[start : start + _BATCH]
            temperature_E1 = torch.full((len(rows), 1), network.temperature)
            if switches.by_loss and epoch:
                standardized = (losses_U[rows] - losses_U[users].mean()) / losses_U[users].std()
                temperature_E1 *= (switches.by_loss * standardized.clamp(-_LONGEST, _LONGEST)).exp()[:, None]
            for optimizer in optimizers:
                optimizer.zero_grad()
            for _ in range(switches.views):
                history = piece.histories.take(rows)
                hidden = random.random(history.num_entries, dtype=np.float32) < network.denoise
                loss_E = _losses(network, rows, history, torch.from_numpy(~hidden), temperature_E1)
                torch.autograd.backward(loss_E.mean())
            losses_U[rows] = loss_E.detach() / history.counts()
            for optimizer, schedule in zip(optimizers, schedules, strict=True):
                optimizer.step()
                schedule.step()
    return network


def _losses(
    network: Autoencoder, rows: Tensor, history: SparseBatch, visible_Z: Tensor, temperature_E1: Tensor
) -> Tensor:
    """Return the cross-entropy of each user, summed over the targets."""
    switches, example_Z = network.switches, history.example_of_entry()
    directions = network.directions(rows, visible_Z)
    products = directions / temperature_E1 @ normalize(network.vectors, dim=1).T
    target_Z = products[example_Z, history.indices] + network.bias[history.indices]
    if switches.negatives != 1:
        products = _with_gradients(products, torch.tensor(switches.negatives))
    logits = products + network.bias
    if switches.others != 1:
        factors = torch.full_like(logits, switches.others)
        factors[example_Z, history.indices] = 1
        logits = _with_gradients(logits, factors)
    weight_Z = _weights(switches, history, visible_Z, target_Z.detach(), logits.detach())
    total_E = torch.zeros(len(rows)).index_add(0, example_Z, weight_Z)
    own_E = torch.zeros(len(rows)).index_add(0, example_Z, weight_Z * target_Z)
    return total_E * logits.logsumexp(1) - own_E


def _weights(
    switches: Switches, history: SparseBatch, visible_Z: Tensor, target_Z: Tensor, logits: Tensor
) -> Tensor:
    """Return how much each target counts, float32 [Z]."""
    weight_Z = torch.where(visible_Z, switches.visible, 1.0)
    example_Z = history.example_of_entry()
    if switches.length:
        weight_Z = weight_Z * (history.counts().float() ** -switches.length)[example_Z]
    if switches.top is not None:
        threshold_E = logits.topk(min(switches.top, logits.shape[1])).values[:, -1]
        weight_Z = weight_Z * (target_Z - threshold_E[example_Z]).sigmoid()
    return weight_Z


def _sums(batch: SparseBatch, vectors: Tensor) -> Tensor:
    """Return the sums of vectors times values, float32 [E, units]."""
    return embedding_bag(
        batch.indices, vectors, batch.indptr[:-1], mode="sum", per_sample_weights=batch.values
    )


def _with_gradients(values: Tensor, factors: Tensor) -> Tensor:
    """Return the same values, whose gradients are multiplied by factors."""
    return values.detach() + factors * (values - values.detach())
