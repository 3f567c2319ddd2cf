"""Prepares a batch for a network: everything that needs no weights and can run ahead of a step."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.bags import split
from widenet.kernels.fixed_point import power, sum_by
from widenet.model.activations import masked
from widenet.model.layers.output import WideOutput
from widenet.model.positions import Positions
from widenet.model.targets import Choice, Targets, joined
from widenet.model.weight import TouchedRows
from widenet.plan.layout import Layout
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.layers import InputLayer


def damping(spec: InputLayer, counts: np.ndarray | None, units: int) -> Tensor:
    """Return the factors of all features, float32 [units]: (count / mean count)^-popularity_damping.

    Features without a count have the factor 1, and so have all if there are no counts.
    """
    factors = torch.ones(units)
    if counts is None:
        return factors
    seen = counts > 0
    share = torch.from_numpy(counts[seen] / counts[seen].mean())
    factors[: len(counts)][torch.from_numpy(seen)] = power(share, -spec.popularity_damping).float()
    return factors


def hide(spec: InputLayer, batch: SparseBatch, random: StepRandom) -> tuple[SparseBatch, SparseBatch]:
    """Return the entries that `denoise` keeps, as the layer takes them, and the hidden ones as stored."""
    kept_Z = torch.from_numpy(random.kept(f"denoise/{spec.name}", (batch.num_entries,), spec.denoise))
    stays = (batch.with_values(None) if spec.values == "ignore" else batch).keep(kept_Z)
    if spec.denoise_rescale:
        stays = stays.with_values(stays.values_or_ones() / (1 - spec.denoise))
    return stays, batch.keep(~kept_Z)


_MOST_SQUARES = 2**24
"""Entries of a batch outside training up to which its size does not reach the bits of an example's length."""


def scaled(
    spec: InputLayer, batch: SparseBatch, factors_F: Tensor | None, in_training: bool = True
) -> SparseBatch:
    """The batch with the values that enter the network."""
    if factors_F is not None:
        batch = batch.with_values(batch.values_or_ones() * factors_F[batch.indices.long()])
    if spec.scale == "none":
        return batch
    if spec.scale == "unit":
        values_Z, examples_Z = batch.values_or_ones(), batch.example_of_entry()
        num_terms = None if in_training else max(_MOST_SQUARES, batch.num_entries)
        squares_E = sum_by(values_Z * values_Z, examples_Z, batch.num_examples, num_terms)
        return batch.with_values(values_Z * squares_E.clamp_min(1e-30).rsqrt()[examples_Z])
    counts_E = np.diff(batch.indptr.numpy())
    divisor_E = np.maximum(counts_E, 1).astype(np.float32)
    divisor_Z = np.repeat(divisor_E if spec.scale == "mean" else np.sqrt(divisor_E), counts_E)
    values = np.float32(1) if batch.values is None else batch.values.numpy()
    return batch.with_values(torch.from_numpy(values / divisor_Z))


def scaled_dense(spec: InputLayer, values_EN: Tensor, random: StepRandom | None) -> Tensor:
    """A dense field as it enters the network."""
    values_EN = masked(values_EN, random, spec.name, spec.dropout)
    if spec.scale == "unit":
        return torch.nn.functional.normalize(values_EN, dim=1)
    divisors = {"mean": values_EN.shape[1], "rsqrt": math.sqrt(values_EN.shape[1])}
    return values_EN / divisors[spec.scale] if spec.scale in divisors else values_EN


Values = SparseBatch | Tensor
"""A field of a batch: sparse, a sequence (its entries in order), or dense float32 [E, width]."""


@dataclass
class Prepared:
    """A batch, ready for a network.

    Attributes:
        sparse: Sparse inputs; a sequence has one example per position. On CUDA for all shards of this
            process, of `targets.joined`.
        dense: Dense inputs.
        targets: In training, the targets of each output: with a sample if it has one, else cut for its tiles.
        features: For every output on a sparse input, the batch's features.
        positions: Positions of every input of a sequence.
        taken: Positions that each output along a sequence takes, int64; N stands for zeros.
        touched: In training, and on CUDA if weights lie in the host's memory, the rows that a batch touches.
        random: The step's random numbers; None outside training.
        weights_E: Per-example loss weights, float32 [E]; None: all equal. The loss is the weighted sum over
            the examples, divided by their number.
    """

    sparse: dict[str, SparseBatch]
    dense: dict[str, Tensor]
    targets: dict[str, Choice | Targets]
    features: dict[str, SparseBatch] = field(default_factory=dict)
    positions: dict[str, Positions] = field(default_factory=dict)
    taken: dict[str, Tensor] = field(default_factory=dict)
    touched: TouchedRows = field(default_factory=dict)
    random: StepRandom | None = None
    weights_E: Tensor | None = None


def prepared(
    layout: Layout,
    outputs: Mapping[str, WideOutput],
    damping: Mapping[str, Tensor],
    fields: Mapping[str, Values],
    random: StepRandom | None,
    together: int,
) -> Prepared:
    """See `Network.prepare`; for `together`, which counts outside training, see `Positions`."""
    batch, hidden = Prepared({}, {}, {}, random=random), dict[str, SparseBatch]()
    for layer in layout.network.layers:
        if not isinstance(layer, InputLayer):
            continue
        values = fields[layer.field]
        if isinstance(values, Tensor):
            batch.dense[layer.name] = scaled_dense(layer, values, random)
            continue
        if layer.denoise and random is not None:
            values, hidden[layer.field] = hide(layer, values, random)
        elif layer.values == "ignore":
            values = values.with_values(None)
        if layer.name in layout.along:
            asking = [output for name, output in outputs.items() if layout.along.get(name) == layer.name]
            # Nobody reads the end of a sequence if all predict the next feature.
            ends_ask = random is not None and all(output.spec.predict == "next" for output in asking)
            positions = Positions.of(values, layer.newest, ends_ask, together if random is None else 1)
            batch.positions[layer.name], values = positions, positions.features
        batch.sparse[layer.name] = scaled(layer, values, damping.get(layer.name), random is not None)
    for name, output in outputs.items():
        weight, spec = layout.weights[layout.links[name, ""].weight], output.spec
        if weight.by_columns and weight.input is not None:
            batch.features[name] = batch.sparse[weight.input]
        own = batch.positions.get(layout.along.get(name, ""))
        predicts_next = random is not None and spec.predict == "next"
        if own is not None:
            batch.taken[name] = own.asking_M if predicts_next else own.ends_E
        if random is not None:
            given = hidden[spec.field] if spec.predict == "hidden" else fields[spec.field]
            batch.targets[name] = _targets(
                output, given if own is None or not predicts_next else own.next, random
            )
    gathered = {source for _, source in layout.links}
    batch.sparse = {name: own for name, own in batch.sparse.items() if name in gathered}
    return batch


def _targets(output: WideOutput, values: Values, random: StepRandom) -> Choice | Targets:
    """Return the values of a field as targets of an output."""
    if isinstance(values, Tensor):
        return Targets.of_dense(pad(values, (0, output.width - values.shape[1])), output.weight.shards)
    if output.spec.values == "ignore":
        values = values.with_values(None)
    if output.sampler is not None:
        return output.sampler.choice(values, random)
    weight = output.weight
    parts = split(values, weight.shards.count)
    targets = Targets.of_parts(values, parts)
    if weight.whole is not None:
        targets.joined = joined(parts, weight.shards, [*weight.parts])
    return targets
