"""Binds a network document to the fields of a dataset, and checks the rules that concern both."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from widenet.errors import DocumentError, FitError, OptionError, did_you_mean
from widenet.plan.descriptions import weights_of_descriptions
from widenet.plan.layout import FieldFacts, Layout, is_sparse_input
from widenet.plan.picture_layers import layers_by_examples
from widenet.plan.sequence_layers import along_of
from widenet.plan.starting_vectors import file_vectors
from widenet.plan.weights import check_share, check_split, links_of, weights_of, windows_between, with_frozen
from widenet.plan.windows import Place, Shape, times, windows_of
from widenet.spec.layers import HiddenLayer, InputLayer, Layer, OutputLayer, Trunk
from widenet.spec.metric_names import LARGER_IS_BETTER, check_metric
from widenet.spec.network import NetworkSpec
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
    for output in network.outputs:
        _check_weightless(output, network, units)
    for layer in network.layers:
        _check_feeding(layer, network, fields)
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
        if source.shape is not None:
            shapes[source.name], wanted, got = source.shape, ends[source.name], prod(source.shape)
            rule = f'must multiply to the width of the field "{source.field}", {wanted}'
            rule += f"; got {list(source.shape)}, which is {got}"
            Place.find(spec, source).refuse("shape", got != wanted, rule)
    for layer in spec.hidden:
        place = Place.find(spec, layer)
        shapes[layer.name] = _shape(place, layer, {name: shapes[name] for name in spec.sources(layer)})
        units = prod(shapes[layer.name])
        for name in layer.skip or ():
            has = prod(shapes[name])
            place.refuse(
                "skip",
                has != units,
                f'must name layers of {units} units, as "{layer.name}" has; "{name}" has {has}',
            )
    return shapes


def _shape(place: Place, layer: Trunk, sources: Mapping[str, Shape]) -> Shape:
    """Return a layer's shape, given those of its sources by name."""
    match layer:
        case AttentionLayer():
            return tuple(map(prod, sources.values()))
        case ConvolutionLayer():
            positions = {name: windows_of(place, layer, name, sources[name]).positions for name in sources}
            first, shape = next(iter(positions.items()))
            for name, other in positions.items():
                rule = f'must each give as many positions as "{first}", {times(shape)}; "{name}" gives'
                place.refuse("source", other != shape, f"{rule} {times(other)}")
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
    units = prod(shape)
    for name, other in sources.items():
        place.refuse(
            "source",
            prod(other) != units,
            f'must have equally many units; "{first}" has {units}, "{name}" {prod(other)}',
        )
    if layer.function.kind == "maxout":
        return shape if all(other == shape for other in sources.values()) else (units,)
    return (len(sources) - 1,)


def check_evaluation(network: NetworkSpec, training: TrainingSpec) -> tuple[OutputLayer, int] | None:
    """Return the output to rank, and the k of the metric; None without an evaluation.

    Raises:
        DocumentError: The metric is unknown, or less of it is better.
        FitError: The network has no such output, or several without a choice.
    """
    evaluation = training.evaluation
    if evaluation is None:
        return None
    place = f"{training.where}: evaluation"
    outputs = {layer.name: layer for layer in network.outputs}
    if evaluation.output is None and len(outputs) > 1:
        raise FitError(f"must name one of the outputs: {', '.join(outputs)}", place=f"{place}.output")
    name = evaluation.output or next(iter(outputs))
    if name not in outputs:
        raise FitError(f"must be one of {', '.join(outputs)}", place=f"{place}.output", value=name)
    try:
        k = check_metric(evaluation.metric)
    except OptionError as error:
        raise DocumentError(str(error), place=f"{place}.metric") from None
    if evaluation.metric.partition("@")[0] not in LARGER_IS_BETTER:
        rule = f"must be a metric that is better when larger ({', '.join(LARGER_IS_BETTER)})"
        raise DocumentError(rule, place=f"{place}.metric", value=evaluation.metric)
    return outputs[name], k


def _units_of_ends(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> dict[str, int]:
    """Return the units of inputs and outputs, by name; check their settings against their fields."""
    units = {}
    ends: list[InputLayer | OutputLayer] = [*spec.inputs, *spec.outputs]
    for layer in ends:
        place = Place.find(spec, layer)
        place.refuse(
            "field",
            layer.field not in fields,
            f'the dataset has no field "{layer.field}".{did_you_mean(layer.field, fields)}',
        )
        facts = fields[layer.field]
        units[layer.name] = facts.width if layer.units == "auto" else layer.units
        place.refuse(
            "units",
            units[layer.name] < facts.width,
            f'must be at least the width of the field "{layer.field}", {facts.width}',
            value=layer.units,
        )
        if isinstance(layer, InputLayer):
            _check_input(place, layer, facts)
        else:
            _check_output(place, layer, facts, units[layer.name])
    return units


def _check_input(place: Place, layer: InputLayer, facts: FieldFacts) -> None:
    needs = {"last": "sequence", "denoise": "sparse", "popularity_damping": "sparse", "dropout": "dense"}
    for key, kind in {**needs, "shape": "dense"}.items():
        is_right = facts.kind == kind or (key == "popularity_damping" and facts.kind == "sequence")
        place.refuse(
            key,
            getattr(layer, key) and not is_right,
            f'needs a {kind} field; "{layer.field}" is {facts.kind}',
        )
    place.refuse(
        "scale",
        facts.kind == "sequence" and layer.scale != "none",
        'must be "none" over a sequence, which has one feature at each position',
        value=layer.scale,
    )
    is_wider = facts.kind == "dense" and layer.units not in ("auto", facts.width)
    place.refuse("units", is_wider, f"of a dense field must be its width, {facts.width}", value=layer.units)


def _check_output(place: Place, layer: OutputLayer, facts: FieldFacts, units: int) -> None:
    is_kind, is_dense, sample = f'"{layer.field}" is {facts.kind}', facts.kind == "dense", layer.sample
    place.refuse("others", is_dense and layer.others == "ignore", f'"ignore" needs a sparse field; {is_kind}')
    place.refuse("sample", is_dense and sample is not None, f"needs a sparse field; {is_kind}")
    chosen, rule = 0 if sample is None else sample.units, f"must be at most the width, {units}"
    place.refuse("sample.units", chosen > units, rule, value=chosen)
    if layer.neighbourhood is not None:
        place.refuse("neighbourhood", is_dense, f"needs a sparse field or a sequence; {is_kind}")
        is_wrong = layer.neighbourhood.in_order and facts.kind != "sequence"
        place.refuse(
            "neighbourhood.order",
            is_wrong,
            f'"{layer.neighbourhood.order}" needs a sequence field; {is_kind}',
        )
    if is_dense or layer.values != "ignore":
        low, high = facts.min_value, facts.max_value
        is_wrong = (layer.activation.kind, layer.loss.kind) == ("sigmoid", "cross_entropy")
        is_wrong = is_wrong and not 0 <= low <= high <= 1
        place.refuse(
            "loss",
            is_wrong,
            f"cross_entropy under a sigmoid needs targets from 0 to 1; got {low:g} to {high:g}",
        )
        place.refuse(
            "loss",
            layer.is_closed and low < 0,
            f"{layer.loss.kind} under a softmax needs targets of at least 0",
            value=low,
        )


def _check_weightless(layer: OutputLayer, spec: NetworkSpec, units: Mapping[str, int]) -> None:
    """Check that an output without weights has as many units as its source."""
    (source, *_), own = spec.sources(layer), units[layer.name]
    is_wrong = layer.weightless and units[source] != own
    Place.find(spec, layer).refuse(
        "units",
        is_wrong,
        f'of a weightless output must be as many as "{source}" has, {units[source]}; got {own}',
    )


def _check_feeding(layer: Layer, spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> None:
    """Refuse sparse inputs where a layer needs every unit of its source.

    An output may read one input of a sparse field directly, if that is its only source.
    """
    place, sources = Place.find(spec, layer), spec.sources(layer)
    keys = {} if layer.takes_features else dict.fromkeys(sources, "source")
    if isinstance(layer, OutputLayer) and not layer.weightless and len(sources) == 1:
        first = spec.layer(sources[0])
        if isinstance(first, InputLayer) and fields[first.field].kind == "sparse":
            _check_direct(place, layer, first.name, spec)
            keys = {}
    keys |= dict.fromkeys(getattr(layer, "skip", None) or (), "skip")
    for source, key in keys.items():
        kind = "an output" if isinstance(layer, OutputLayer) else layer.words
        place.refuse(
            key,
            is_sparse_input(spec, source, fields),
            f'{kind} cannot take the sparse input "{source}" directly',
        )


def _check_direct(place: Place, layer: OutputLayer, source: str, spec: NetworkSpec) -> None:
    """Refuse settings that an output on a sparse input does not support."""
    for key in ("cosine", "sample", "weight_norm", "weights"):
        place.refuse(
            key,
            getattr(layer, key) is not None,
            f'needs a hidden layer between the output and the sparse input "{source}"',
        )
    shares = [share for other in spec.layers for share in getattr(other, "weights", None) or ()]
    place.refuse(
        "source",
        any(share.layer == layer.name for share in shares),
        f'shares weights with others, and needs a hidden layer over the sparse input "{source}"',
    )
