"""Binds a network document to the fields of a dataset, and checks the rules that concern both."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from widenet.errors import FitError, did_you_mean
from widenet.plan.descriptions import file_vectors, weights_of_descriptions
from widenet.plan.layout import FieldFacts, Layout, is_sparse_input
from widenet.plan.picture_layers import layers_by_examples
from widenet.plan.sequence_layers import along_of
from widenet.plan.weights import check_share, check_split, links_of, weights_of, windows_between, with_frozen
from widenet.plan.windows import Place, Shape, times, windows_of
from widenet.spec.layers import HiddenLayer, InputLayer, Layer, OutputLayer, Trunk
from widenet.spec.network import NetworkSpec
from widenet.spec.rules import Rules
from widenet.spec.sequential import AttentionLayer
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer
from widenet.spec.training import TrainingSpec


def bind(network: NetworkSpec, training: TrainingSpec, fields: Mapping[str, FieldFacts]) -> Layout:
    """Bind two documents to the fields of a dataset.

    Args:
        network: The network document.
        training: The training document; here, its shards and precision of weights matter.
        fields: Facts of the dataset's fields, by name.

    Raises:
        FitError: The network and the fields do not go together.
    """
    shapes = shapes_of(network, _units_of_ends(network, fields))
    units, windows = {name: prod(shape) for name, shape in shapes.items()}, windows_between(network, shapes)
    for layer in network.layers:
        FitError.refuse(Place.find(network, layer).of, *_of_sources(layer, network, fields, units))
    layout = Layout(
        network,
        training,
        fields,
        units={layer.name: units[layer.name] for layer in network.layers},
        shapes=shapes,
        windows=windows,
        links=links_of(network),
        along=along_of(network, fields),
        weights={},
    )
    for layer in network.layers:
        for share in layer.shares:
            check_share(layout, layer, share)
    layout = replace(layout, weights=weights_of(layout))
    layout = replace(layout, weights={**layout.weights, **weights_of_descriptions(layout)})
    layout = replace(layout, weights=with_frozen(layout))
    file_vectors(layout)
    for hidden in network.hidden:
        if isinstance(hidden, HiddenLayer):
            check_split(layout, hidden)
    return replace(layout, by_examples=layers_by_examples(layout))


def shapes_of(spec: NetworkSpec, ends: Mapping[str, int]) -> dict[str, Shape]:
    """Return the shape of every layer, by name.

    Args:
        spec: The network document.
        ends: Units of the inputs and outputs, by name.

    Raises:
        FitError: A shape does not fit what feeds it.
    """
    shapes: dict[str, Shape] = {name: (units,) for name, units in ends.items()}
    for source in spec.inputs:
        shape, wanted = source.shape or shapes[source.name], ends[source.name]
        rule = f'must multiply to the width of the field "{source.field}", {wanted}'
        Place.find(spec, source).refuse("shape", prod(shape) != wanted, rule, value=list(shape))
        shapes[source.name] = shape
    for layer in spec.hidden:
        at = Place.find(spec, layer)
        shapes[layer.name] = _shape(at, layer, {name: shapes[name] for name in spec.sources(layer)})
        units = prod(shapes[layer.name])
        rule = f'must name layers of {units} units, as "{layer.name}" has'
        FitError.refuse(at.of, *(("skip", prod(shapes[name]) != units, rule, name) for name in layer.skipped))
    return shapes


def _shape(place: Place, layer: Trunk, sources: Mapping[str, Shape]) -> Shape:
    """Return a layer's shape, given those of its sources by name."""
    match layer:
        case AttentionLayer():
            return tuple(map(prod, sources.values()))
        case ConvolutionLayer():
            positions = {name: windows_of(place, layer, name, sources[name]).positions for name in sources}
            shape, *_ = positions.values()
            rule = f"must each give as many positions, {times(shape)}"
            FitError.refuse(place.of, *(("source", positions[name] != shape, rule, name) for name in sources))
            return layer.filters, *shape
        case PoolingLayer():
            return _pooled_shape(place, layer, sources)
    return (layer.units,)


def _pooled_shape(place: Place, layer: PoolingLayer, sources: Mapping[str, Shape]) -> Shape:
    (first, shape), *_ = sources.items()
    if layer.function.kind == "lrn":
        place.refuse("source", len(shape) == 1, f'needs channels; "{first}" is flat')
        return shape
    if layer.kernel is not None:
        windows = windows_of(place, layer, first, shape)
        return windows.channels, *windows.positions
    units = {name: prod(other) for name, other in sources.items()}
    place.refuse("source", len(set(units.values())) > 1, "must have equally many units", value=units)
    if layer.function.kind == "maxout":
        return shape if all(other == shape for other in sources.values()) else (units[first],)
    return (len(sources) - 1,)


def check_evaluation(network: NetworkSpec, training: TrainingSpec) -> OutputLayer | None:
    """Return the output to rank; None without an evaluation.

    Raises:
        FitError: The network has no such output, or several without a choice.
    """
    evaluation, outputs = training.evaluation, {layer.name: layer for layer in network.outputs}
    if evaluation is None:
        return None
    name = evaluation.output or (network.outputs[0].name if len(outputs) == 1 else None)
    if name not in outputs:
        place = f"{training.where}: evaluation.output"
        raise FitError(f"must be one of the outputs, {', '.join(outputs)}", place=place, value=name)
    return outputs[name]


def _units_of_ends(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> dict[str, int]:
    """Return the units of inputs and outputs, by name; check their settings against their fields."""
    units = {}
    ends: list[InputLayer | OutputLayer] = [*spec.inputs, *spec.outputs]
    for layer in ends:
        at, name = Place.find(spec, layer).of, layer.field
        if name not in fields:
            rule = f'the dataset has no field "{name}".{did_you_mean(name, fields)}'
            raise FitError(rule, place=at("field"))
        facts = fields[name]
        own = units[layer.name] = facts.width if layer.units == "auto" else layer.units
        rules = _of_input(layer, facts) if isinstance(layer, InputLayer) else _of_output(layer, facts, own)
        rule = f'must be at least the width of the field "{name}", {facts.width}'
        FitError.refuse(at, ("units", own < facts.width, rule, own), *rules)
    return units


_KINDS_OF_FIELDS = {
    "last": ("sequence",),
    "denoise": ("sparse",),
    "popularity_damping": ("sparse", "sequence"),
    "dropout": ("dense",),
    "shape": ("dense",),
}
"""The kinds of fields for which an input may have a setting."""


def _of_input(layer: InputLayer, facts: FieldFacts) -> Rules:
    kind, width = f'; "{layer.field}" is {facts.kind}', facts.width
    is_scaled = facts.kind == "sequence" and layer.scale != "none"
    is_wider = facts.kind == "dense" and layer.units not in ("auto", width)
    return [
        *(
            (key, getattr(layer, key) and facts.kind not in able, f"needs a field that is {able[0]}{kind}")
            for key, able in _KINDS_OF_FIELDS.items()
        ),
        ("scale", is_scaled, 'must be "none" over a sequence, which has one feature at each position'),
        ("units", is_wider, f"of a dense field must be its width, {width}", layer.units),
    ]


def _of_output(layer: OutputLayer, facts: FieldFacts, units: int) -> Rules:
    is_dense, needs = facts.kind == "dense", f'needs a sparse field; "{layer.field}" is {facts.kind}'
    chosen, low, high = 0 if layer.sample is None else layer.sample.units, facts.min_value, facts.max_value
    has_values, term = is_dense or layer.values != "ignore", layer.neighbourhood
    is_binary = (layer.activation.kind, layer.loss.kind) == ("sigmoid", "cross_entropy")
    is_ordered = term is not None and term.in_order and facts.kind != "sequence"
    return [
        ("others", is_dense and layer.others == "ignore", f'"ignore" {needs}'),
        ("sample", is_dense and chosen, needs),
        ("sample.units", chosen > units, f"must be at most the width, {units}", chosen),
        ("neighbourhood", is_dense and term is not None, needs),
        ("neighbourhood.order", is_ordered, f'needs a sequence; "{layer.field}" is {facts.kind}'),
        ("loss", has_values and is_binary and low < 0, "needs targets from 0 to 1", low),
        ("loss", has_values and is_binary and high > 1, "needs targets from 0 to 1", high),
        ("loss", has_values and layer.is_closed and low < 0, "needs targets of at least 0", low),
    ]


def _of_sources(
    layer: Layer, spec: NetworkSpec, fields: Mapping[str, FieldFacts], units: Mapping[str, int]
) -> Rules:
    """Return the rules of what a layer reads.

    Most layers need every unit of their sources. An output may read one input of a sparse field directly, if
    that is its only source, but then lacks some settings.
    """
    sources, own = spec.sources(layer), units[layer.name]
    features = {name for name in (*sources, *layer.skipped) if is_sparse_input(spec, name, fields)}
    is_output, is_weightless = isinstance(layer, OutputLayer), getattr(layer, "weightless", False)
    given = units[sources[0]] if is_weightless else own
    first = spec.layer(sources[0]) if is_output and not is_weightless and len(sources) == 1 else None
    is_direct = isinstance(first, InputLayer) and fields[first.field].kind == "sparse"
    shared = {share.layer for other in spec.layers for share in other.shares}
    read = [("source", name) for name in sources if not (layer.takes_features or is_direct)]
    read += [("skip", name) for name in layer.skipped]
    between = "needs a hidden layer between the output and the sparse input"
    settings = ("cosine", "sample", "weight_norm", "weights") if is_direct else ()
    return [
        *((key, name in features, f"{layer.words} cannot take a sparse input", name) for key, name in read),
        *((key, getattr(layer, key) is not None, between) for key in settings),
        ("source", is_direct and layer.name in shared, f"shares weights with others, and {between}"),
        ("units", given != own, f"of a weightless output must be as many as its source has, {given}", own),
    ]
