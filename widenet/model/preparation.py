"""A batch as a network takes it: what asks no weight, and so may be done ahead of a step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels import Touched
from widenet.model.draws import Draws
from widenet.model.layers.input import hide, scaled, scaled_dense
from widenet.model.layers.output import WideOutput
from widenet.model.positions import Positions
from widenet.model.sample import Choice
from widenet.model.sharding import split
from widenet.model.targets import Targets
from widenet.plan.shards import Shards
from widenet.sparse import SparseBatch
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import InputLayer

Values = SparseBatch | Tensor
"""A field of a batch: sparse, a sequence (its entries in order), or dense float32 [E, width]."""


@dataclass
class Prepared:
    """A batch as the input layers see it: sparse inputs cut into shards, sequences too, one example a
    position; dense ones as they enter.

    features: of every output on a sparse input, all that the batch has of it. positions: of every input of a
    sequence.
    taken: of every output along a sequence, the positions it takes, int64; N: zeros instead.
    asked: in training, what each output is asked for; sparse ones as they are where the output drifts,
    together with a sample where it has one, else as the tiles need them.
    touched: in training on CUDA, what `Network.touched` gives.
    """

    sparse: dict[str, list[SparseBatch]]
    dense: dict[str, Tensor]
    asked: dict[str, SparseBatch | Choice | Targets]
    features: dict[str, SparseBatch] = field(default_factory=dict)
    positions: dict[str, Positions] = field(default_factory=dict)
    taken: dict[str, Tensor] = field(default_factory=dict)
    touched: dict[str, dict[int, Touched]] = field(default_factory=dict)


@dataclass(frozen=True)
class Ends:
    """The ends of a network, and what reads its inputs.

    shards: of every input whose rows of weights are gathered, how they are cut.
    standing: of every input, the outputs that stand on it.
    along: of every layer that goes along a sequence the input of it. damping: factors of an input's features.
    """

    inputs: Sequence[InputLayer]
    outputs: Mapping[str, WideOutput]
    shards: Mapping[str, Shards]
    standing: Mapping[str, Sequence[str]]
    along: Mapping[str, str]
    damping: Mapping[str, Tensor]


def prepared(ends: Ends, fields: Mapping[str, Values], draws: Draws | None) -> Prepared:
    """See `Network.prepare`."""
    found, hidden = Prepared({}, {}, {}), dict[str, SparseBatch]()
    for layer in ends.inputs:
        values = fields[layer.field]
        if isinstance(values, Tensor):
            found.dense[layer.name] = scaled_dense(layer, values, draws)
            continue
        if layer.denoise and draws is not None:
            values, hidden[layer.field] = hide(layer, values, draws)
        elif layer.values == "ignore":
            values = values.with_values(None)
        _take(ends, layer, values, draws is not None, found)
    for name, output in ends.outputs.items():
        positions = found.positions.get(ends.along.get(name, ""))
        asks_next = draws is not None and output.spec.predict == "next"
        if positions is not None:
            found.taken[name] = positions.asking_M if asks_next else positions.ends_E
        if draws is not None:
            asked = (
                hidden[output.spec.field] if output.spec.predict == "hidden" else fields[output.spec.field]
            )
            found.asked[name] = _asked(
                output, positions.next if positions is not None and asks_next else asked, draws
            )
    return found


def _take(ends: Ends, layer: InputLayer, values: SparseBatch, in_training: bool, found: Prepared) -> None:
    """Add what an input layer makes of its sparse field: for those who gather rows of weights by it, and
    for outputs on it.
    """
    if layer.name in ends.along:
        found.positions[layer.name] = Positions.of(
            values, layer.newest, in_training and _all_predict_next(ends, layer)
        )
        values = found.positions[layer.name].features
    batch = scaled(layer, values, ends.damping.get(layer.name))
    found.features |= dict.fromkeys(ends.standing.get(layer.name, ()), batch)
    if layer.name in ends.shards:
        found.sparse[layer.name] = split(batch, ends.shards[layer.name])


def _all_predict_next(ends: Ends, layer: InputLayer) -> bool:
    """Whether every output along a sequence asks for what is next, so that nobody reads a vector at its
    end.
    """
    return all(
        output.spec.predict == "next"
        for name, output in ends.outputs.items()
        if ends.along.get(name) == layer.name
    )


def _asked(output: WideOutput, values: Values, draws: Draws) -> SparseBatch | Choice | Targets:
    """Values of a field as an output's loss takes them."""
    if isinstance(values, Tensor):
        if output.spec.activation.kind in ROW_WISE and output.loss.slope_of_logit:
            return Targets.of_dense_as_sparse(values, output.weight.shards)
        room = output.width - values.shape[1]
        return Targets.of_dense(pad(values, (0, room)) if room else values)
    if output.spec.values == "ignore":
        values = values.with_values(None)
    if output.sampler is not None:
        return output.sampler.choice(values, draws)
    return values if output.drift is not None else Targets.of_sparse(values, output.weight.shards)
