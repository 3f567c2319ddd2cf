"""Binds a network document to the fields of a dataset, and checks the rules that concern both."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod

from widenet.errors import FitError, did_you_mean
from widenet.plan.layout import (
    Axis,
    FieldFacts,
    Key,
    Layout,
    Shape,
    Windows,
    place_of,
    times,
)
from widenet.plan.weights import (
    check_share,
    check_split,
    layers_by_examples,
    links_of,
    weights_of,
)
from widenet.spec.document import Rules
from widenet.spec.layers import (
    AttentionLayer,
    ConvolutionLayer,
    HiddenLayer,
    InputLayer,
    Layer,
    OutputLayer,
    PoolingLayer,
    Trunk,
)
from widenet.spec.network import NetworkSpec
from widenet.spec.rules import feeding, in_order
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
    shapes, windows = shapes_of(network, _units_of_ends(network, fields))
    units = {layer.name: prod(shapes[layer.name]) for layer in network.layers}
    layout = Layout(
        network,
        training,
        fields,
        units=units,
        shapes=shapes,
        windows=windows,
        links=links_of(network),
        along=along_of(network, fields),
        weights={},
    )
    for layer in network.layers:
        FitError.refuse(place_of(network, layer), *_of_sources(layer, layout))
        for share in layer.shares:
            check_share(layout, layer, share)
    layout = replace(layout, weights=weights_of(layout))
    for hidden in network.hidden:
        if isinstance(hidden, HiddenLayer):
            check_split(layout, hidden)
    return replace(layout, by_examples=layers_by_examples(layout))


def shapes_of(spec: NetworkSpec, ends: Mapping[str, int]) -> tuple[dict[str, Shape], dict[Key, Windows]]:
    """Return the shape of every layer, by name, and how kernels move, by (layer, source).

    Args:
        spec: The network document.
        ends: Units of the inputs and outputs, by name.

    Raises:
        FitError: A shape does not fit what feeds it.
    """
    shapes: dict[str, Shape] = {name: (units,) for name, units in ends.items()}
    windows: dict[Key, Windows] = {}
    for source in spec.inputs:
        shape, wanted = source.shape or shapes[source.name], ends[source.name]
        rule = f'must multiply to the width of the field "{source.field}", {wanted}'
        FitError.refuse(place_of(spec, source), ("shape", prod(shape) != wanted, rule, list(shape)))
        shapes[source.name] = shape
    for layer in spec.hidden:
        at, sources = place_of(spec, layer), {name: shapes[name] for name in spec.sources(layer)}
        own = dict[str, Windows]()
        if isinstance(layer, ConvolutionLayer | PoolingLayer) and layer.kernel is not None:
            own = {name: windows_of(at, layer, name, sources[name]) for name in sources}
        windows |= {(layer.name, name): each for name, each in own.items()}
        shapes[layer.name] = _shape(at, layer, sources, own)
        units = prod(shapes[layer.name])
        rule = f'must name layers of {units} units, as "{layer.name}" has'
        FitError.refuse(at, *(("skip", prod(shapes[name]) != units, rule, name) for name in layer.skipped))
    return shapes, windows


def _shape(
    at: Callable[[str], str], layer: Trunk, sources: Mapping[str, Shape], windows: Mapping[str, Windows]
) -> Shape:
    """Return a layer's shape, given the shapes of its sources, and how kernels move over them, by name."""
    match layer:
        case AttentionLayer():
            return tuple(map(prod, sources.values()))
        case ConvolutionLayer():
            shape, *_ = (each.positions for each in windows.values())
            rule = f"must each give as many positions, {times(shape)}"
            others = (("source", each.positions != shape, rule, name) for name, each in windows.items())
            FitError.refuse(at, *others)
            return layer.filters, *shape
        case PoolingLayer():
            return _pooled_shape(at, layer, sources, windows)
    return (layer.units,)


def _pooled_shape(
    at: Callable[[str], str],
    layer: PoolingLayer,
    sources: Mapping[str, Shape],
    windows: Mapping[str, Windows],
) -> Shape:
    (first, shape), *_ = sources.items()
    units = {name: prod(other) for name, other in sources.items()}
    is_lrn, is_equal = layer.function.kind == "lrn", len(set(units.values())) == 1
    FitError.refuse(
        at,
        ("source", is_lrn and len(shape) == 1, f'needs channels; "{first}" is flat'),
        ("source", not is_equal, "must have equally many units", units),
    )
    if first in windows:
        return windows[first].channels, *windows[first].positions
    if is_lrn:
        return shape
    if layer.function.kind == "maxout":
        return shape if all(other == shape for other in sources.values()) else (units[first],)
    return (len(sources) - 1,)


def windows_of(
    at: Callable[[str], str], layer: ConvolutionLayer | PoolingLayer, name: str, source: Shape
) -> Windows:
    """Return how a layer's kernel moves over a source; raises FitError if it does not fit."""
    is_flat, kernel = len(source) == 1, layer.kernel
    is_line = isinstance(kernel, tuple) and len(kernel) == 1
    FitError.refuse(at, ("source", is_flat and not is_line, f'needs channels and axes, but "{name}" is flat'))
    channels, *sizes = (1, *source) if is_flat else source
    stride = kernel if layer.stride is None else layer.stride
    settings = {
        key: value if isinstance(value, tuple) else (value,) * len(sizes)
        for key, value in {"kernel": kernel, "stride": stride, "padding": layer.padding}.items()
    }
    rule = f'must have one number for each of the {len(sizes)} axes of "{name}"'
    FitError.refuse(
        at, *((key, len(values) != len(sizes), rule, len(values)) for key, values in settings.items())
    )
    axes: tuple[Axis, ...] = tuple(map(axis_of, sizes, *settings.values()))
    for number, axis in enumerate(axes):
        most = f'must be at most axis {number} of "{name}", {axis.places} and its padding; got {axis.kernel}'
        FitError.refuse(at, ("kernel", axis.positions < 1, most))
    return Windows(
        channels,
        axes,
        places=tuple(sizes),
        kernel=tuple(axis.kernel for axis in axes),
        positions=tuple(axis.positions for axis in axes),
        inputs=channels * prod(axis.kernel for axis in axes),
    )


def axis_of(places: int, kernel: int, stride: int, padding: int | str) -> Axis:
    """Return a window's movement along one axis; it has no position if it does not fit."""
    match padding:
        case "same":
            positions = -(-places // stride)
            before = max(0, (positions - 1) * stride + kernel - places) // 2
        case "dsstne":
            positions = 1 if places <= kernel else places if stride == 1 else (places - kernel) // stride + 1
            before = (kernel - places + 1) // 2 if places <= kernel else kernel // 2 if stride == 1 else 0
        case _:
            before = padding if isinstance(padding, int) else 0
            positions = (places + 2 * before - kernel) // stride + 1
    return Axis(
        places, kernel, stride, positions, before, max(0, (positions - 1) * stride + kernel - places - before)
    )


def along_of(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> dict[str, str]:
    """Return, for every layer along a sequence, the input of the sequence.

    An input of a sequence field goes along itself, any other layer along the sequence of its sources. So does
    an output: with "next" it reads all their vectors in training, otherwise each example's last one.

    Raises:
        FitError: A layer's sources go along different sequences, or a layer needs a sequence and has none.
    """
    along_by_layer: dict[str, str] = {}
    for layer in in_order(spec.layers):
        if isinstance(layer, InputLayer):
            if fields[layer.field].kind == "sequence":
                along_by_layer[layer.name] = layer.name
            continue
        first, *others = feeding(spec.layers, layer)
        along = along_by_layer.get(first)
        one, needs = "must all go along one sequence, or none", "must lead to an input of a sequence field"
        FitError.refuse(
            place_of(spec, layer),
            *(
                ("source", along_by_layer.get(other) != along, f'{one}; "{first}" and "{other}" do not')
                for other in others
            ),
            ("source", layer.goes_along and along is None, f"{needs}, for {layer.words} goes along one"),
            *(_of_next(layer, spec, fields, along) if isinstance(layer, OutputLayer) else []),
        )
        if along is not None:
            along_by_layer[layer.name] = along
    return along_by_layer


def _of_next(
    layer: OutputLayer, spec: NetworkSpec, fields: Mapping[str, FieldFacts], along: str | None
) -> Rules:
    """Return the rules by which "next", and nothing else, follows the sequence that an output predicts."""
    read = {source.name: source.field for source in spec.inputs}.get(along or "")
    is_next, kind = layer.predict == "next", fields[layer.field].kind
    rule = f'"next" goes with a sequence, and nothing else; the field "{layer.field}" is {kind}'
    got = "no sequence" if read is None else f'the sequence "{read}"'
    other = f'"next" must follow an input of the same field, "{layer.field}"; its sources read {got}'
    return [
        ("predict", is_next != (kind == "sequence"), rule, layer.predict),
        ("predict", is_next and read != layer.field, other),
    ]


def sequences_of(spec: NetworkSpec) -> set[str]:
    """Return the fields that must be sequences, by the document alone.

    A recurrent or attention layer goes along them, or a layer has "predict": "next" or "last".
    """
    along: set[str] = set()
    for layer in reversed(in_order(spec.layers)):
        if layer.goes_along or layer.name in along:
            along.update(feeding(spec.layers, layer))
    read = {layer.field for layer in spec.inputs if layer.name in along or layer.last is not None}
    return read | {layer.field for layer in spec.outputs if layer.predict == "next"}


def check_evaluation(network: NetworkSpec, training: TrainingSpec) -> OutputLayer | None:
    """Return the output to rank; None without an evaluation.

    Raises:
        FitError: The network has no such output, or several without a choice.
    """
    evaluation, outputs = training.evaluation, {layer.name: layer for layer in network.outputs}
    if evaluation is None:
        return None
    name = evaluation.output or (network.outputs[0].name if len(outputs) == 1 else None)
    rule, place = f"must be one of the outputs, {', '.join(outputs)}", f"{training.where}: evaluation.output"
    FitError.require(name in outputs, rule, place=place, value=name)
    return outputs[name or ""]


def _units_of_ends(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> dict[str, int]:
    """Return the units of inputs and outputs, by name; check their settings against their fields."""
    units = {}
    ends: list[InputLayer | OutputLayer] = [*spec.inputs, *spec.outputs]
    for layer in ends:
        at, name = place_of(spec, layer), layer.field
        rule = f'the dataset has no field "{name}".{did_you_mean(name, fields)}'
        FitError.require(name in fields, rule, place=at("field"))
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


def _of_sources(layer: Layer, layout: Layout) -> Rules:
    """Return the rules of what a layer reads.

    Most layers need every unit of their sources. An output may read one input of a sparse field directly, if
    that is its only source, but then lacks some settings.
    """
    spec, units = layout.network, layout.units
    sources, own = spec.sources(layer), units[layer.name]
    is_output, is_weightless = isinstance(layer, OutputLayer), getattr(layer, "weightless", False)
    given = units[sources[0]] if is_weightless else own
    first = spec.layer(sources[0]) if is_output and not is_weightless and len(sources) == 1 else None
    is_direct = isinstance(first, InputLayer) and layout.fields[first.field].kind == "sparse"
    shared = {share.layer for other in spec.layers for share in other.shares}
    read = [("source", name) for name in sources if not (layer.takes_features or is_direct)]
    read += [("skip", name) for name in layer.skipped]
    between = "needs a hidden layer between the output and the sparse input"
    settings = ("cosine", "sample", "weight_norm", "weights") if is_direct else ()
    return [
        *(
            (key, name in layout.features, f"{layer.words} cannot take a sparse input", name)
            for key, name in read
        ),
        *((key, getattr(layer, key) is not None, between) for key in settings),
        ("source", is_direct and layer.name in shared, f"shares weights with others, and {between}"),
        ("units", given != own, f"of a weightless output must be as many as its source has, {given}", own),
    ]
