"""The weights of a network: their shapes, who shares them, and which are wide."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from widenet.plan.binding import FieldFacts, bind, is_sparse_input
from widenet.plan.positions import positions_of
from widenet.spec.layers import HiddenLayer, OutputLayer, RecurrentLayer
from widenet.spec.network import NetworkSpec


@dataclass(frozen=True)
class Link:
    """A weight seen from the layer that uses it."""

    weight: str
    transposed: bool = False


@dataclass(frozen=True)
class Weight:
    """A weight [rows, columns] or bias [rows] of the layer that owns it.

    wide: its rows are the units of a sparse input or of an output, and cut into shards; otherwise every process has it whole.
    by_tiles: an output uses it, all its units in every step, and so every row has a gradient; otherwise, where it is wide, only rows that
        a batch touches or an output's sample holds.
    """

    layer: str
    rows: int
    columns: int | None
    wide: bool
    by_tiles: bool = False

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, float32."""
        return 4 * (self.columns or 1)


@dataclass(frozen=True)
class Weights:
    """All weights of a network over known widths.

    units: of every layer, by name. links: the weight of every (layer, source); of an output (layer, ""). A recurrent layer is a source of
        its own.
    weights: by name: "LAYER/SOURCE" of a hidden or recurrent layer, "LAYER" of an output, "LAYER bias" of any.
    positions: of every layer that goes along a sequence the input of it, by name.
    """

    units: dict[str, int]
    links: dict[tuple[str, str], Link]
    weights: dict[str, Weight]
    positions: dict[str, str]

    def owns(self, output: str) -> bool:
        """Whether an output has its weight for itself: it is its own, and no other layer uses it."""
        return self.links[output, ""].weight == output and self.users(output) == 1

    def users(self, weight: str) -> int:
        """How many layers and sources use a weight."""
        return sum(link.weight == weight for link in self.links.values())


def weights_of(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> Weights:
    """The weights of a network over a dataset's fields, outputs' last; raises FitError where the two do not go together."""
    units = bind(spec, fields)
    links: dict[tuple[str, str], Link] = {}
    found: dict[str, Weight] = {}
    for layer in spec.hidden:
        for source in spec.sources(layer):
            links[layer.name, source] = link = _link(spec, layer, source)
            if link.weight == f"{layer.name}/{source}":
                found[link.weight] = _between(layer.name, units[source], units[layer.name], is_sparse_input(spec, source, fields))
        if layer.bias:
            found[f"{layer.name} bias"] = Weight(layer.name, units[layer.name], None, wide=False)
    for cell in spec.recurrent:
        for source in (*spec.sources(cell), cell.name):
            name = f"{cell.name}/{source}"
            links[cell.name, source] = Link(name)
            found[name] = _between(cell.name, units[source], cell.sums, source != cell.name and is_sparse_input(spec, source, fields))
        if cell.bias:
            found[f"{cell.name} bias"] = Weight(cell.name, 4 * cell.units, None, wide=False)
    for output in spec.outputs:
        links[output.name, ""] = link = _link(spec, output, spec.sources(output)[0]) if output.weights else Link(output.name)
        if link.weight == output.name:
            columns = sum(units[source] for source in spec.sources(output))
            found[output.name] = Weight(output.name, units[output.name], columns, wide=True)
        if output.bias:
            found[f"{output.name} bias"] = Weight(output.name, units[output.name], None, wide=True, by_tiles=output.sample is None)
    stepped = {links[output.name, ""].weight for output in spec.outputs if output.sample is None}
    weights = {name: replace(weight, by_tiles=weight.by_tiles or name in stepped) for name, weight in found.items()}
    return Weights(units, links, weights, positions_of(spec, fields))


def _between(layer: str, source_units: int, sums: int, is_sparse: bool) -> Weight:
    """The weight from a source to the sums of a layer: a row a feature of a sparse input, else a row a sum."""
    return Weight(layer, source_units, sums, wide=True) if is_sparse else Weight(layer, sums, source_units, wide=False)


def _link(spec: NetworkSpec, layer: HiddenLayer | OutputLayer, source: str) -> Link:
    """The weight that a layer uses for a source: its own, or the one it shares."""
    own = layer.name if isinstance(layer, OutputLayer) else f"{layer.name}/{source}"
    share = layer.weights
    if share is None or (share.source or spec.sources(layer)[0]) != source:
        return Link(own)
    owner = spec.layer(share.layer)
    assert not isinstance(owner, RecurrentLayer)
    if isinstance(owner, OutputLayer):
        return Link(owner.name, share.transposed)
    return Link(f"{owner.name}/{share.layer_source or spec.sources(owner)[0]}", share.transposed)
