"""Builds a network from a layout, with initial weights that are functions of (seed, weight, shard) alone."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.model.description import Description
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.preparation import damping
from widenet.model.storage import Store, blocks, zeros
from widenet.model.targets import Sampler
from widenet.model.weight import Part, QuantizedPart, TrunkWeight, WideWeight, fits_in_8_bits
from widenet.parallel.exchange import Exchange, Workers
from widenet.plan.layout import Layout, Weight
from widenet.plan.machine import available_threads
from widenet.plan.tiles import block_rows
from widenet.plan.weights import vectors_name
from widenet.randomness import stream
from widenet.sparse import SparseBatch
from widenet.spec.initializers import Constant, Gaussian, Initializer, Scaled, Uniform
from widenet.spec.layers import OutputLayer

_BLOCK_NUMBERS = 2**22
"""Numbers that are drawn together; the numbers do not depend on it."""


def fill(
    weight: Tensor,
    spec: Initializer,
    fan_in: int,
    fan_out: int,
    seed: int,
    purpose: str,
    shard: int,
) -> None:
    """Fill one shard of a weight with its initial numbers, some rows at a time.

    Args:
        weight: The shard, float32 [rows, columns], in memory or in a file.
        spec: The initializer.
        fan_in: Units that enter the whole weight.
        fan_out: Units that leave it.
        seed: Seed of the training.
        purpose: Name of the weight.
        shard: Number of the shard.
    """
    draw = stream(seed, f"weights/{purpose}", shard)
    rows = max(1, _BLOCK_NUMBERS // max(weight.shape[1], 1))
    for block in blocks(weight, rows, writes=True):
        numbers = torch.empty(block.shape)
        _draw(numbers, spec, fan_in, fan_out, draw)
        block.copy_(numbers)


def _draw(block: Tensor, spec: Initializer, fan_in: int, fan_out: int, draw: np.random.Generator) -> None:
    match spec:
        case Scaled(kind=kind, scale=scale):
            spreads = {
                "xavier": scale * math.sqrt(6 / (fan_in + fan_out)),
                "caffe_xavier": scale * math.sqrt(3 / fan_out),
                "he": scale * math.sqrt(2 / fan_in),
                "selu": scale / math.sqrt(fan_in),
                "reciprocal": scale / fan_in,
            }
            (_uniform if "xavier" in kind else _gaussian)(draw, block, spreads[kind])
        case Gaussian(deviation=deviation):
            _gaussian(draw, block, deviation)
        case Uniform(limit=limit, low=low):
            _uniform(draw, block, limit, low)
        case Constant(value=value):
            block.fill_(value)


def _uniform(draw: np.random.Generator, block: Tensor, limit: float, low: float | None = None) -> None:
    least = -limit if low is None else low
    draw.random(out=block.numpy(), dtype=np.float32)
    block.mul_(limit - least).add_(least)


def _gaussian(draw: np.random.Generator, block: Tensor, deviation: float) -> None:
    draw.standard_normal(out=block.numpy(), dtype=np.float32)
    block.mul_(deviation)


def build(
    layout: Layout,
    exchange: Exchange,
    device: torch.device | str = "cpu",
    counts: Mapping[str, np.ndarray] | None = None,
    elsewhere: Store | None = None,
    attributes: Mapping[str, SparseBatch] | None = None,
    in_8_bits: bool = False,
) -> Network:
    """Build a network with the weights that (seed, layer, shard) determine.

    Args:
        layout: Its layers and weights.
        exchange: Knows which shards this process holds.
        device: Device of the weights.
        counts: Training interactions int64 [width] of the fields that "popularity_damping", samples by
            popularity and descriptions need. None leaves every weight undefined, for a checkpoint to fill.
        elsewhere: Takes wide weights, and later their state: a file on a CPU, the host's memory on CUDA;
            None: the device's memory does.
        attributes: The attributes of the rows of every weight that is described, by name; None outside
            training.
        in_8_bits: Whether a checkpoint will fill the matrices that can be in 8 bits with whole numbers.
    """
    device = torch.device(device)
    wide = {name: _wide(layout, name, exchange, device, elsewhere, in_8_bits) for name in layout.sharded}
    trunk = {}
    for name, weight in layout.weights.items():
        if not weight.wide:
            tensor = zeros(_shape(weight, weight.rows), device, None)
            trunk[name] = TrunkWeight(tensor, norm_limit=weight.norm_limit, trained=weight.trained)
    # On CUDA, threads draw in the host's memory and copy block by block.
    workers = exchange.workers if device.type == "cpu" else Workers(available_threads())
    for name, weight in layout.weights.items():
        if counts is not None or weight.columns is None:
            if weight.wide:
                parts = {shard: part.weight for shard, part in wide[name].parts.items()}
            else:
                parts = {0: trunk[name].tensor}
            workers.run(partial(_begin, layout, name, parts), [*parts])
    outputs = {output.name: _output(output, layout, wide, exchange) for output in layout.network.outputs}
    factors = {}
    for layer in layout.network.inputs:
        if layer.popularity_damping:
            of_field = None if counts is None else counts[layer.field]
            factors[layer.name] = damping(layer, of_field, layout.units[layer.name])
    if counts is not None:
        _forget_unknown(layout, wide, outputs, counts)
        for output in outputs.values():
            if output.spec.sample is not None:
                own = output.known, [*output.weight.parts], counts.get(output.spec.field)
                output.sampler = Sampler.of(output.spec.sample, output.spec.name, *own)
    return Network(
        layout=layout,
        exchange=exchange,
        device=device,
        wide=wide,
        trunk=trunk,
        outputs=outputs,
        damping=factors,
        descriptions={
            name: Description.of(wide[name], trunk[vectors_name(name)], rows)
            for name, rows in (attributes or {}).items()
        },
    )


def _shape(weight: Weight, rows: int) -> tuple[int, ...]:
    return (rows,) if weight.columns is None else (rows, weight.columns)


def _wide(
    layout: Layout,
    name: str,
    exchange: Exchange,
    device: torch.device,
    elsewhere: Store | None,
    in_8_bits: bool,
) -> WideWeight:
    """Return a wide weight or bias of zeros, with the shards of this process."""
    weight, held = layout.weights[name], exchange.shards
    shards, store = layout.shards(weight.rows), elsewhere if weight.has_vectors else None
    wide = WideWeight(
        shards,
        {},
        norm_limit=None if weight.rows_are_features else weight.norm_limit,
        by_rows=not weight.by_tiles and weight.trained,
        has_vectors=weight.has_vectors,
        trained=weight.trained,
    )
    if device.type != "cpu" and not weight.by_columns:
        wide.lay_out(Part(zeros(_shape(weight, len(held) * shards.room), device, store), store=store), held)
        return wide
    for shard in held:
        rows = shards.size(shard)
        if in_8_bits and fits_in_8_bits(weight):
            wide.parts[shard] = QuantizedPart.blank(rows, weight.row_length)
        elif weight.by_columns:
            wide.parts[shard] = Part(zeros((weight.row_length, rows), device, None).T, by_columns=True)
        else:
            wide.parts[shard] = Part(zeros(_shape(weight, rows), device, store), store=store)
    return wide


def _begin(layout: Layout, name: str, parts: Mapping[int, Tensor], shard: int) -> None:
    """Give one shard of a weight its first numbers, or all of a weight of the trunk."""
    weight, tensor = layout.weights[name], parts[shard]
    layer: Any = layout.network.layer(weight.layer)
    if weight.columns is None:
        tensor.copy_(_first_numbers(layer, name, len(tensor)))
    elif weight.columns and weight.describes is None:
        fan_in, fan_out = weight.columns, weight.rows * weight.places
        if weight.rows_are_features:
            fan_in, fan_out = fan_out, fan_in
        if hasattr(layer, "sums"):
            fan_out = layer.units
        fill(tensor, layer.initializer, fan_in, fan_out, layout.training.seed, name, shard)


def _first_numbers(layer: Any, name: str, count: int) -> Tensor:
    """Return the first values of biases and other weights of one dimension, float32 [count].

    Biases start at `bias_start`, scales and variances at 1, and others at 0. Biases of forget gates start at
    1: Jozefowicz et al., "An empirical exploration of recurrent network architectures", ICML 2015.
    """
    start = float(name.endswith(("scale", "variance")))
    if name.endswith(" bias"):
        start = getattr(layer, "bias_start", 0.0)
    numbers = torch.full((count,), start)
    if getattr(layer, "cell", None) == "lstm":
        numbers[layer.units : 2 * layer.units] = 1
    return numbers


def _output(
    spec: OutputLayer, layout: Layout, wide: Mapping[str, WideWeight], exchange: Exchange
) -> WideOutput:
    """Return an output with its weight, which may be another layer's."""
    output = WideOutput(
        spec=spec,
        weight=wide[layout.links[spec.name, ""].weight],
        bias=wide.get(f"{spec.name} bias"),
        exchange=exchange,
        known=layout.shards(layout.units[spec.name]),
        updates_at_once=not layout.waits(spec.name),
        half=layout.training.precision == "bfloat16"
        and not spec.weightless
        and not layout.of_output(spec.name).by_columns,
    )
    output.empty_lists()
    return output


def _forget_unknown(
    layout: Layout,
    wide: Mapping[str, WideWeight],
    outputs: Mapping[str, WideOutput],
    counts: Mapping[str, np.ndarray],
) -> None:
    """Leave features after the last one with training interactions out of losses, without own vectors.

    Their biases follow those of the others; see `WideOutput.set_unknown_biases`.
    """
    for name, weight in layout.described.items():
        seen = np.flatnonzero(counts[layout.rows_field(weight)])
        known = layout.shards(int(seen[-1]) + 1 if len(seen) else 0)
        for shard, part in wide[name].parts.items():
            rows = part.weight[known.size(shard) :]
            for block in blocks(rows, block_rows(rows[:1].nbytes), writes=True):
                block.zero_()
        for output in outputs.values():
            if output.weight is wide[name]:
                output.known = known
