"""Builds a network from a layout, with initial weights that are functions of (seed, weight, shard) alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.devices import keep_to_one_thread
from widenet.kernels.rows import roomy
from widenet.model.description import Description, clear_unknown, last_known
from widenet.model.layers.output import WideOutput
from widenet.model.network import Network
from widenet.model.preparation import damping
from widenet.model.quantized_part import QuantizedPart, fits_in_8_bits
from widenet.model.sample import Sampler
from widenet.model.storage import Store, blocks
from widenet.model.weight import Part, TrunkWeight, WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.layout import Layout, Weight
from widenet.plan.machine import available_threads
from widenet.plan.tiles import Shards
from widenet.plan.weights import vectors_name
from widenet.randomness import stream
from widenet.sparse import SparseBatch
from widenet.spec.initializers import Constant, Drawn, FromFile, Gaussian, Initializer, Scaled, Uniform
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
        weight: The shard, float32 [rows, columns], in the host's memory or in a file.
        spec: The initializer; for that of a file, what it says of features that the file lacks.
        fan_in: Units that enter the whole weight.
        fan_out: Units that leave it.
        seed: Seed of the training.
        purpose: Name of the weight.
        shard: Number of the shard.
    """
    drawn = spec.otherwise if isinstance(spec, FromFile) else spec
    draw = stream(seed, f"weights/{purpose}", shard)
    rows = max(1, _BLOCK_NUMBERS // max(weight.shape[1], 1))
    for block in blocks(weight, rows, writes=True):
        _draw(block, drawn, fan_in, fan_out, draw)


def _draw(block: Tensor, spec: Drawn, fan_in: int, fan_out: int, draw: np.random.Generator) -> None:
    match spec:
        case Scaled(kind="xavier", scale=scale):
            _uniform(draw, block, scale * math.sqrt(6 / (fan_in + fan_out)))
        case Scaled(kind="caffe_xavier", scale=scale):
            _uniform(draw, block, scale * math.sqrt(3 / fan_out))
        case Scaled(kind="he", scale=scale):
            _gaussian(draw, block, scale * math.sqrt(2 / fan_in))
        case Gaussian(deviation=deviation):
            _gaussian(draw, block, deviation)
        case Uniform(limit=limit, low=low):
            _uniform(draw, block, limit, low)
        case Constant(value=value):
            block.fill_(value)
        case Scaled(kind="selu", scale=scale):
            _gaussian(draw, block, scale / math.sqrt(fan_in))
        case Scaled(kind="reciprocal", scale=scale):
            _gaussian(draw, block, scale / fan_in)


def _uniform(draw: np.random.Generator, block: Tensor, limit: float, low: float | None = None) -> None:
    least = -limit if low is None else low
    draw.random(out=block.numpy(), dtype=np.float32)
    block.mul_(limit - least).add_(least)


def _gaussian(draw: np.random.Generator, block: Tensor, deviation: float) -> None:
    draw.standard_normal(out=block.numpy(), dtype=np.float32)
    block.mul_(deviation)


_DRAWN_BYTES = 2**32
"""Bytes of first numbers for a device that the host holds at once, unless one shard has more."""


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
    device, spec = torch.device(device), layout.network
    made = _InitialWeights(layout, device, counts is None, elsewhere, in_8_bits)
    wide = {name: made.wide(name, layout.weights[name], exchange) for name in layout.sharded}
    trunk = {name: made.trunk(name, weight) for name, weight in layout.weights.items() if not weight.wide}
    factors = {}
    for layer in spec.inputs:
        if layer.popularity_damping:
            units = layout.units[layer.name]
            factors[layer.name] = (
                torch.empty(units) if counts is None else damping(layer, counts[layer.field], units)
            ).to(device)
    outputs = {output.name: _output(output, layout, wide, exchange) for output in spec.outputs}
    if counts is not None:
        _forget_unknown(layout, wide, outputs, counts)
    for output in spec.outputs:
        if output.sample is not None and counts is not None:
            weight, of_field = outputs[output.name].weight, counts.get(output.field)
            shards = outputs[output.name].known or weight.shards
            outputs[output.name].sampler = Sampler.of(
                output.sample,
                output.name,
                shards,
                list(weight.parts),
                None if of_field is None else of_field[: shards.width],
            )
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


def _forget_unknown(
    layout: Layout,
    wide: Mapping[str, WideWeight],
    outputs: Mapping[str, WideOutput],
    counts: Mapping[str, np.ndarray],
) -> None:
    """Leave features after the last one with training interactions out of losses, without own vectors.

    Their biases follow those of the others; see `WideOutput.set_unknown_biases`.
    """
    known = {name: last_known(counts[layout.rows_field(weight)]) for name, weight in layout.described.items()}
    for name, num_known in known.items():
        clear_unknown(wide[name], num_known)
    for name, output in outputs.items():
        weight = layout.links[name, ""].weight
        if weight in known:
            output.known = layout.shards(known[weight])


def _output(
    spec: OutputLayer, layout: Layout, wide: Mapping[str, WideWeight], exchange: Exchange
) -> WideOutput:
    """Return an output with its weight, which may be another layer's."""
    output = WideOutput(
        spec=spec,
        weight=wide[layout.links[spec.name, ""].weight],
        bias=wide.get(f"{spec.name} bias"),
        exchange=exchange,
        updates_at_once=not layout.waits(spec.name),
        half=layout.training.precision == "bfloat16"
        and not spec.weightless
        and not layout.of_output(spec.name).by_columns,
    )
    output.empty_lists()
    return output


class _InitialWeights:
    """Makes initial weights; `blank` leaves them undefined, for a checkpoint to fill."""

    def __init__(
        self,
        layout: Layout,
        device: torch.device,
        blank: bool,
        elsewhere: Store | None,
        in_8_bits: bool,
    ) -> None:
        self.layout, self.device, self.blank = layout, device, blank
        self.in_8_bits = in_8_bits
        self.store = elsewhere

    def wide(self, name: str, weight: Weight, exchange: Exchange) -> WideWeight:
        """Return a wide weight or bias, with the shards of this process."""
        shards, by_rows = self.layout.shards(weight.rows), not weight.by_tiles
        if weight.columns is None:
            layer = self.layout.network.layer(weight.layer)
            assert isinstance(layer, OutputLayer)
            wide = WideWeight(shards, {}, l2=layer.bias_l2, by_rows=by_rows)
        else:
            limit = None if weight.rows_are_features else weight.norm_limit
            wide = WideWeight(shards, {}, norm_limit=limit, by_rows=by_rows)
        wide.trained, wide.has_vectors = weight.trained, weight.has_vectors
        if self.device.type == "cpu" or weight.by_columns:
            parts = exchange.each(lambda shard: (shard, self._part(name, weight, shards.size(shard), shard)))
            wide.parts = dict(parts)
            return wide
        held = exchange.shards
        rows, columns = len(held) * shards.room, [] if weight.columns is None else [weight.columns]
        if self.store is not None and weight.has_vectors:
            wide.lay_out(Part(self.store.zeros((rows, *columns)), store=self.store), held)
        else:
            wide.lay_out(Part(torch.zeros(rows, *columns, device=self.device)), held)
        if not (self.blank and weight.columns is not None):
            for shard, first in self._drawn(name, weight, shards, held):
                wide.parts[shard].weight.copy_(first)
        return wide

    def _drawn(
        self, name: str, weight: Weight, shards: Shards, held: Sequence[int]
    ) -> Iterator[tuple[int, Tensor]]:
        """Yield first numbers of shards in the host's memory; a thread draws a shard at a time."""
        most = _DRAWN_BYTES // (4 * (weight.columns or 1) * max(1, shards.size(0)))
        num_threads = max(1, min(available_threads(), most))
        with ThreadPoolExecutor(num_threads, initializer=keep_to_one_thread) as pool:
            for place in range(0, len(held), num_threads):
                some = held[place : place + num_threads]
                draws = [pool.submit(self._first, name, weight, shards.size(shard), shard) for shard in some]
                for shard, draw in zip(some, draws, strict=True):
                    yield shard, draw.result()

    def _part(self, name: str, weight: Weight, rows: int, shard: int) -> Part:
        if self.in_8_bits and fits_in_8_bits(weight):
            assert weight.columns is not None
            return QuantizedPart.blank(rows, weight.columns)
        if self.store is not None and weight.has_vectors:
            assert weight.columns is not None
            tensor = self.store.zeros((rows, weight.columns))
            if not self.blank:
                self._fill(tensor, name, weight, shard)
            return Part(tensor, store=self.store if tensor.numel() else None)
        if not weight.by_columns:
            return Part(self._tensor(name, weight, rows, shard))
        turned_HR = roomy((weight.row_length, rows), device=self.device)
        if not self.blank:
            turned_HR.copy_(self._tensor(name, weight, rows, shard).T)
        return Part(turned_HR.T, by_columns=True)

    def trunk(self, name: str, weight: Weight) -> TrunkWeight:
        """Return a weight or bias of the trunk."""
        tensor = self._tensor(name, weight, weight.rows)
        return TrunkWeight(tensor, norm_limit=weight.norm_limit, trained=weight.trained)

    def _tensor(self, name: str, weight: Weight, rows: int, shard: int = 0) -> Tensor:
        if weight.columns is not None and (self.blank or not weight.columns):
            return roomy((rows, weight.columns), device=self.device)
        return self._first(name, weight, rows, shard).to(self.device)

    def _first(self, name: str, weight: Weight, rows: int, shard: int) -> Tensor:
        """Return the first numbers of a shard, in the host's memory."""
        if weight.columns is None:
            return _first_numbers(self.layout.network.layer(weight.layer), name, rows)
        first = roomy((rows, weight.columns))
        self._fill(first, name, weight, shard)
        return first

    def _fill(self, first: Tensor, name: str, weight: Weight, shard: int) -> None:
        """Draw the first numbers of a shard, in the host's memory or in a file."""
        if not weight.columns or weight.describes is not None:
            return
        layer: Any = self.layout.network.layer(weight.layer)
        fan_in, fan_out = weight.columns, weight.rows * weight.places
        if weight.rows_are_features:
            fan_in, fan_out = fan_out, fan_in
        if hasattr(layer, "sums"):
            fan_out = layer.units
        fill(first, layer.initializer, fan_in, fan_out, self.layout.training.seed, name, shard)


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
