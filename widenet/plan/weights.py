"""The weights of a network: their shapes, who shares them, and which are wide."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from widenet.plan.binding import FieldFacts, bind, is_sparse_input
from widenet.plan.place import Place
from widenet.plan.positions import along_of
from widenet.plan.shapes import shapes_of
from widenet.plan.windows import Shape, Windows, windows_of
from widenet.spec.layers import HiddenLayer, InputLayer, OutputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.recurrent import RecurrentLayer
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

TRAINED, FOLLOWING = ("scale", "shift"), ("mean", "variance")
"""What a batch normalization keeps: weights, and running statistics."""


@dataclass(frozen=True)
class Link:
    """A weight seen from the layer that uses it."""

    weight: str
    transposed: bool = False


@dataclass(frozen=True)
class Weight:
    """A weight [rows, columns] or bias [rows] of the layer that owns it.

    wide: its rows are the units of a sparse input or of an output, and cut into shards; otherwise every
    process has it whole.
    trained: it has a gradient; otherwise it follows the batches.
    places: of a convolution's kernel; a row is a filter, a column one of its numbers, channel by channel.
    by_tiles: an output uses it, all its units in every step, and so every row has a gradient; otherwise,
        where it is wide, only rows that a batch touches or an output's sample holds.
    input: the sparse input whose features its rows are, or where it is by columns its columns; None where
    units of no input meet it singly.
    by_columns: of an output on a sparse input; only the columns that a batch has are touched.
    """

    layer: str
    rows: int
    columns: int | None
    wide: bool
    by_tiles: bool = False
    trained: bool = True
    places: int = 1
    input: str | None = None
    by_columns: bool = False

    @property
    def rows_are_features(self) -> bool:
        """Whether a row belongs to a feature of a sparse input, and so holds what it gives to every unit;
        else a row is a unit's.
        """
        return self.input is not None and not self.by_columns

    @property
    def incoming(self) -> int:
        """Numbers of a vector that meets the rows; none where a batch's features do, one for each row that
        has no weights.
        """
        return 0 if self.by_columns else self.row_length or self.rows

    @property
    def row_length(self) -> int:
        """Numbers in a row: the columns, of a bias 1."""
        return 1 if self.columns is None else self.columns

    @property
    def numbers(self) -> int:
        """Numbers in all rows."""
        return self.rows * self.row_length

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, float32."""
        return 4 * self.row_length


@dataclass(frozen=True)
class Weights:
    """All weights of a network over known widths.

    units, shapes: of every layer, by name. links: the weight of every (layer, source); of an output (layer,
        ""). A recurrent layer is a source of its own.
    weights: by name: "LAYER/SOURCE" of a hidden or recurrent layer, "LAYER" of an output, "LAYER bias" of
        any, and of a batch normalization "LAYER normalization scale", "... shift", "... mean" and "...
        variance".
    windows: how the kernel moves, by (layer, source) of convolutions and of pooling layers that have one.
    along: of every layer that goes along a sequence the input of it.
    """

    units: dict[str, int]
    shapes: dict[str, Shape]
    windows: dict[tuple[str, str], Windows]
    links: dict[tuple[str, str], Link]
    weights: dict[str, Weight]
    along: dict[str, str]

    def of_output(self, output: str) -> Weight:
        """The weight that an output uses, its own or a shared one."""
        return self.weights[self.links[output, ""].weight]

    def is_shared(self, output: str) -> bool:
        """Whether others use an output's weight too."""
        return self.users(self.links[output, ""].weight) > 1

    def owns(self, output: str) -> bool:
        """Whether an output has its weight for itself: it is its own, and no other layer uses it."""
        return self.links[output, ""].weight == output and not self.is_shared(output)

    def users(self, weight: str) -> int:
        """How many layers and sources use a weight."""
        return sum(link.weight == weight for link in self.links.values())


def weights_of(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> Weights:
    """The weights of a network over a dataset's fields, hidden layers' first; raises FitError where the
    two do not go together.
    """
    units = bind(spec, fields)
    ends: list[InputLayer | OutputLayer] = [*spec.inputs, *spec.outputs]
    shapes = shapes_of(spec, {layer.name: units[layer.name] for layer in ends})
    bound = Weights(
        units, shapes, dict(_windows(spec, shapes)), dict(_links(spec)), {}, along_of(spec, fields)
    )
    return replace(bound, weights=_Found(spec, fields, bound).all())


@dataclass(frozen=True)
class _Found:
    """The weights that the layers of a network own. bound: what else is known of it."""

    spec: NetworkSpec
    fields: Mapping[str, FieldFacts]
    bound: Weights

    def all(self) -> dict[str, Weight]:
        """Every weight by its name; those by tiles are known when all outputs are."""
        found = dict(pair for layer in self.spec.hidden for pair in self._of_hidden(layer))
        found |= dict(pair for output in self.spec.outputs for pair in self._of_output(output))
        stepped = {
            self.bound.links[output.name, ""].weight for output in self.spec.outputs if output.sample is None
        }
        return {
            name: replace(each, by_tiles=not each.by_columns and (each.by_tiles or name in stepped))
            for name, each in found.items()
        }

    def _of_hidden(self, layer: Trunk) -> Iterator[tuple[str, Weight]]:
        """One for each source whose weights are its own, and those of which it has a number for each unit."""
        for source in (
            *self.spec.sources(layer),
            *([layer.name] if isinstance(layer, RecurrentLayer) else []),
        ):
            name, link = f"{layer.name}/{source}", self.bound.links.get((layer.name, source))
            if link is not None and link.weight == name:
                yield name, self._between(layer, source)
        if isinstance(layer, RecurrentLayer):
            if layer.bias:
                yield f"{layer.name} bias", Weight(layer.name, 4 * layer.units, None, wide=False)
        elif not isinstance(layer, PoolingLayer):
            yield from _per_channel(layer, self.bound.shapes[layer.name][0])

    def _between(self, layer: Trunk, source: str) -> Weight:
        """The weight from a source to the sums of a layer: a row a feature of a sparse input, else a row a
        sum or a filter.
        """
        if isinstance(layer, ConvolutionLayer):
            windows = self.bound.windows[layer.name, source]
            return Weight(layer.name, layer.filters, windows.inputs, wide=False, places=prod(windows.kernel))
        units, sums = (
            self.bound.units[source],
            (layer.sums if isinstance(layer, RecurrentLayer) else self.bound.units[layer.name]),
        )
        if is_sparse_input(self.spec, source, self.fields):
            return Weight(layer.name, units, sums, wide=True, input=source)
        return Weight(layer.name, sums, units, wide=False)

    def _of_output(self, output: OutputLayer) -> Iterator[tuple[str, Weight]]:
        """Its own weight, to all sources together, if it shares none; and its biases."""
        sources, units = self.spec.sources(output), self.bound.units
        if self.bound.links[output.name, ""].weight == output.name:
            columns = 0 if output.weightless else sum(units[source] for source in sources)
            features = sources[0] if is_sparse_input(self.spec, sources[0], self.fields) else None
            own = Weight(
                output.name,
                units[output.name],
                columns,
                wide=True,
                input=features,
                by_columns=features is not None,
            )
            yield output.name, own
        if output.bias:
            yield (
                f"{output.name} bias",
                Weight(output.name, units[output.name], None, wide=True, by_tiles=output.sample is None),
            )


def _per_channel(layer: HiddenLayer | ConvolutionLayer, channels: int) -> Iterator[tuple[str, Weight]]:
    """The numbers of which a layer has one for each unit, a convolution one for each filter."""
    parts = (
        [f"normalization {part}" for part in (*TRAINED, *FOLLOWING)]
        if layer.batch_normalization is not None
        else []
    )
    for kind in [*["bias"] * layer.bias, *parts]:
        yield (
            f"{layer.name} {kind}",
            Weight(layer.name, channels, None, wide=False, trained=not kind.endswith(FOLLOWING)),
        )


def _windows(spec: NetworkSpec, shapes: Mapping[str, Shape]) -> Iterator[tuple[tuple[str, str], Windows]]:
    for layer in spec.hidden:
        if isinstance(layer, ConvolutionLayer | PoolingLayer) and layer.kernel is not None:
            for source in spec.sources(layer):
                yield (layer.name, source), windows_of(Place.find(spec, layer), layer, source, shapes[source])


def _links(spec: NetworkSpec) -> Iterator[tuple[tuple[str, str], Link]]:
    """The weight of every layer and source, in the order in which they are computed."""
    for layer in spec.hidden:
        if isinstance(layer, RecurrentLayer):
            for source in (*spec.sources(layer), layer.name):
                yield (layer.name, source), Link(f"{layer.name}/{source}")
        elif not isinstance(layer, PoolingLayer):
            for source in spec.sources(layer):
                yield (layer.name, source), _link(spec, layer, source)
    for output in spec.outputs:
        yield (
            (output.name, ""),
            (_link(spec, output, spec.sources(output)[0]) if output.weights else Link(output.name)),
        )


def _link(spec: NetworkSpec, layer: HiddenLayer | ConvolutionLayer | OutputLayer, source: str) -> Link:
    """The weight that a layer uses for a source: its own, or the one it shares."""
    own = layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"
    share = next(
        (share for share in layer.weights or () if (share.source or spec.sources(layer)[0]) == source), None
    )
    if share is None:
        return Link(own)
    owner = spec.layer(share.layer)
    if isinstance(owner, OutputLayer):
        return Link(owner.name, share.transposed)
    return Link(f"{owner.name}/{share.layer_source or spec.sources(owner)[0]}", share.transposed)
