"""The output layer: a wide weight, its biases, and the logits of a tile."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels.bags import RowGradient, Touched, gather_sum
from widenet.kernels.best_units import Units
from widenet.kernels.neighbour_means import NeighbourLists
from widenet.kernels.reference import rounded
from widenet.model.operands import SHORTEST, matrix_product
from widenet.model.targets import Sampler
from widenet.model.weight import Part, QuantizedPart, WideWeight
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import PREDICTED_COLUMNS, Shards, as_slice
from widenet.sparse import SparseBatch
from widenet.spec.layers import OutputLayer


@dataclass
class WideOutput:
    """An output of L units in shards, fed by hidden vectors [E, H].

    updates_at_once: whether a tile may be updated as soon as its gradient is known: nobody shares the weight,
        and its rows are not described.
    known: shards of the units that take part in the loss, the first ones of all.
    half: a training step's matrix products take operands rounded to bfloat16.
    sampler: draws the units of a step; None if all take part, and outside training.
    kept_bytes: of a batch's logits, kept between passes; as of `plan.layout.Job`.
    lists: the neighbours of its units, by shard, for rankings alone; saved with the weights.
    features: the batch's, where it stands on a sparse input and not on hidden vectors, which are then [E, 0].
        touched: in training, the same by feature, for every shard at hand.
    ranked: the parts that `whole_shards` has packed, and what it returned.
    """

    spec: OutputLayer
    weight: WideWeight
    bias: WideWeight | None
    exchange: Exchange
    known: Shards
    updates_at_once: bool = True
    half: bool = False
    sampler: Sampler | None = None
    kept_bytes: int | None = None
    lists: dict[int, NeighbourLists] = field(default_factory=dict)
    features: SparseBatch | None = None
    touched: Mapping[int, Touched] | None = None
    ranked: tuple[Mapping[int, Part], list[Units] | None] | None = None

    @property
    def width(self) -> int:
        """L."""
        return self.weight.shards.width

    @property
    def where(self) -> str:
        """Name of the layer in messages about failed exchanges."""
        return f'output "{self.spec.name}"'

    @cached_property
    def is_closed(self) -> bool:
        """Whether its loss and slopes have the closed form of a softmax with a cross-entropy."""
        return self.spec.is_closed

    def direct(self, hidden_EH: Tensor, predicts: bool) -> Tensor:
        """The vector that meets the unit's vectors: as it is, or under "cosine" of length 1 / temperature.

        Differentiable.

        Args:
            hidden_EH: Incoming vectors, float32.
            predicts: Whether this is no step of a training, which has a temperature of its own.
        """
        cosine = self.spec.cosine
        if cosine is None:
            return hidden_EH
        return hidden_EH / lengths(hidden_EH) / (cosine.finished if predicts else cosine.temperature)

    def operand(self, values: Tensor) -> Tensor:
        """Float32 values as a training step's products take them."""
        return rounded(values) if self.half else values

    def empty_lists(self) -> None:
        """Make lists without neighbours, as many places as the layer says."""
        term, units, device = self.spec.neighbourhood, self.weight.shards.units, self.weight.device
        self.lists = {}
        if term is not None:
            places = term.neighbours
            self.lists = dict(
                self.exchange.each(lambda shard: (shard, NeighbourLists.blank(units(shard), places, device)))
            )

    def set_unknown_biases(self) -> None:
        """Give the units that take no part in the loss the smallest bias of the others.

        Their biases would stay zero, above those of most units that are known. All processes must call this.
        """
        if self.bias is None or not 0 < self.known.width < self.width:
            return
        parts, known = self.bias.parts, self.known

        def smallest(shard: int) -> Tensor:
            return pad(parts[shard].weight[: known.size(shard)], (0, 1), value=torch.inf).amin(dim=0)

        of_shards = self.exchange.gather(self.exchange.each(smallest), self.where)
        for shard, part in parts.items():
            part.weight[known.size(shard) :] = torch.stack(of_shards).amin() + 0.0  # never -0.0

    def units(self, shard: int, start: int, stop: int) -> Units:
        """The units [start, stop) of a shard, for the native library."""
        part, factor_T, directions = self.weight.parts[shard], None, self.spec.cosine is not None
        if isinstance(part, QuantizedPart):
            factor_T = (part.for_directions if directions else part.scale_R)[start:stop]
            vector_TH, directions = part.weight[start:stop], False
        else:
            vector_TH = part.rows(start, stop).weight
        bias_T = None if self.bias is None else self.bias.parts[shard].weight[start:stop]
        return Units(vector_TH, self.weight.shards.units(shard)[start:stop], factor_T, bias_T, directions)

    def whole_shards(self) -> list[Units] | None:
        """Return the units of each shard of this process, whose weights stay where they are; None: in files.

        They are packed once for the parts of a weight.
        """
        parts = self.weight.parts
        if self.ranked is None or self.ranked[0] is not parts:
            size, in_file = self.weight.shards.size, self.weight.store is not None
            units = None if in_file else [self.units(shard, 0, size(shard)) for shard in parts]
            self.ranked = parts, units
        return self.ranked[1]

    def tile(self, shard: int, start: int, stop: int, half: bool = False) -> "Tile":
        """The units [start, stop) of a shard. half: for products of operands in bfloat16."""
        kind = FeatureTile if self.features is not None else WeightlessTile if self.spec.weightless else Tile
        return kind(self, shard, start, stop, half)

    def vectors(self, shard: int, units_U: Tensor) -> Tensor:
        """The vectors of some units of a shard as a step's products take them."""
        vector_UH = self.weight.select(shard, units_U)
        return self.operand(vector_UH if self.spec.cosine is None else vector_UH / lengths(vector_UH))


def lengths(vectors: Tensor) -> Tensor:
    """The lengths [N, 1] that turn vectors [N, H] into directions, or into zeros where there is none."""
    length_N1: Tensor = vectors.norm(dim=-1, keepdim=True)
    return torch.where(length_N1 <= SHORTEST, torch.inf, length_N1)


def through_length(gradient: Tensor, direction: Tensor, length: Tensor) -> None:
    """Turn a gradient to directions [..., H] into that to the vectors of a length, in place."""
    along = (gradient * direction).sum(dim=-1, keepdim=True)
    gradient.addcmul_(along, direction, value=-1).div_(length)


class Tile:
    """Some units of a shard of an output.

    Attributes:
        output: The output.
        shard: Their shard.
        start: The first of them in a shard.
        stop: The end of them in a shard.
        half: Whether products take operands rounded to bfloat16. The incoming vectors and the deltas are
            rounded once for all products.
        vector_TH: Their vectors, float32 [T, H]; directions under "cosine".
        length_T1: Lengths of the vectors, float32 [T, 1], under "cosine".
        operand: The vectors as the products take them.
        bias_T: Their biases, float32 [T].
    """

    def __init__(self, output: WideOutput, shard: int, start: int, stop: int, half: bool) -> None:
        self.output, self.shard, self.start, self.stop, self.half = output, shard, start, stop, half
        self.vector_TH = output.weight.rows(shard, start, stop).weight
        self.length_T1 = None if output.spec.cosine is None else lengths(self.vector_TH)
        if self.length_T1 is not None:
            self.vector_TH = self.vector_TH / self.length_T1
        self.operand = rounded(self.vector_TH) if half else self.vector_TH
        self.bias_T = None if output.bias is None else output.bias.rows(shard, start, stop).weight

    def wide_enough(self) -> "Tile":
        """The tile with units of zeros after its own, if they are too few for a product outside training."""
        missing = PREDICTED_COLUMNS - len(self.operand)
        if missing > 0:
            self.operand = pad(self.operand, (0, 0, 0, missing))
            self.bias_T = None if self.bias_T is None else pad(self.bias_T, (0, missing))
        return self

    def products(self, direct_EH: Tensor) -> Tensor:
        """The logits without the biases, float32 [E, T]."""
        return matrix_product(direct_EH, self.operand.T)

    def logits(self, direct_EH: Tensor) -> Tensor:
        """float32 [E, T]."""
        logits_ET = self.products(direct_EH)
        return logits_ET if self.bias_T is None else logits_ET.add_(self.bias_T)

    def add_direct_gradient(self, total_EH: Tensor, delta_ET: Tensor) -> None:
        """Add the gradient to the incoming vectors to a running total."""
        total_EH.add_(matrix_product(delta_ET, self.operand))

    def weight_gradient(self, direct_EH: Tensor, delta_ET: Tensor) -> Tensor | RowGradient:
        """Return the gradient to the units' weights, float32 [T, H]; under "cosine", through their length."""
        gradient_TH = matrix_product(delta_ET.T, direct_EH)
        if self.length_T1 is not None:
            through_length(gradient_TH, self.vector_TH, self.length_T1)
        return gradient_TH


class FeatureTile(Tile):
    """Some units of an output on a sparse input, whose vectors have each column contiguous."""

    def products(self, direct_EH: Tensor) -> Tensor:
        """The logits without the biases, float32 [E, T]."""
        features, columns_FT = self.output.features, self.vector_TH.T
        assert features is not None
        # Of a part of a shard. Kernels would copy all columns, not those of the batch alone.
        if not columns_FT.is_contiguous():
            units_U, indices_Z = torch.unique(features.indices, return_inverse=True)
            features = SparseBatch(features.indptr, indices_Z, features.values)
            columns_FT = columns_FT.index_select(0, units_U)
        return gather_sum(features, columns_FT)

    def add_direct_gradient(self, total_EH: Tensor, delta_ET: Tensor) -> None:
        """Nothing: no hidden vector comes in."""

    def weight_gradient(self, direct_EH: Tensor, delta_ET: Tensor) -> RowGradient:
        """The gradient to the columns that the batch touches, as rows [T]."""
        assert self.output.touched is not None
        return self.output.touched[self.shard].by(delta_ET)


class WeightlessTile(Tile):
    """Some units of an output that takes its source's units [E, L]; its weight is empty, float32 [T, 0]."""

    @property
    def units(self) -> slice:
        """Their places among the source's units."""
        return as_slice(self.output.weight.shards.units(self.shard)[self.start : self.stop])

    def products(self, direct_EH: Tensor) -> Tensor:
        """Return the logits [E, T]: a copy, because slopes replace logits, and backward needs the source."""
        return direct_EH[:, self.units].clone(memory_format=torch.contiguous_format)

    def add_direct_gradient(self, total_EH: Tensor, delta_ET: Tensor) -> None:
        """Add the gradient to the source's units to a running total."""
        total_EH[:, self.units] += delta_ET

    def weight_gradient(self, direct_EH: Tensor, delta_ET: Tensor) -> Tensor:
        """Nothing, [T, 0]."""
        return delta_ET.new_zeros(delta_ET.shape[1], 0)
