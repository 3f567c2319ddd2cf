"""Binds a network document to the fields of a dataset, and checks the rules that concern both."""

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from widenet.errors import DocumentError, FitError, OptionError, did_you_mean
from widenet.plan.descriptions import weights_of_descriptions
from widenet.plan.layers import plan_of
from widenet.plan.layout import FieldFacts, Layout, is_sparse_input
from widenet.plan.picture_layers import layers_by_examples
from widenet.plan.sequence_layers import along_of
from widenet.plan.starting_vectors import file_vectors
from widenet.plan.weights import check_share, links_of, weights_of, windows_between, with_frozen
from widenet.plan.windows import Place, Shape
from widenet.spec.layers import InputLayer, Layer, OutputLayer, Trunk
from widenet.spec.metric_names import LARGER_IS_BETTER, check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def shapes_of(spec: NetworkSpec, ends: Mapping[str, int]) -> dict[str, Shape]:
    """The shape of every layer, by name; raises FitError where one does not fit what feeds it.

    ends: units of the inputs and outputs, by name.
    """
    found = {name: _end(spec, name, units) for name, units in ends.items()}
    for layer in spec.hidden:
        sources = {name: found[name] for name in spec.sources(layer)}
        found[layer.name] = plan_of(layer).shape(Place.find(spec, layer), layer, sources)
        _check_skip(spec, layer, found)
    return found


def _end(spec: NetworkSpec, name: str, units: int) -> Shape:
    layer = spec.layer(name)
    if not isinstance(layer, InputLayer) or layer.shape is None:
        return (units,)
    if prod(layer.shape) != units:
        rule = f'must multiply to the width of the field "{layer.field}", {units}'
        raise FitError(
            f"{rule}; got {list(layer.shape)}, which is {prod(layer.shape)}",
            place=Place.find(spec, layer).of("shape"),
        )
    return layer.shape


def _check_skip(spec: NetworkSpec, layer: Trunk, shapes: Mapping[str, Shape]) -> None:
    units = prod(shapes[layer.name])
    for name in layer.skip or ():
        if prod(shapes[name]) != units:
            rule = (
                f'must name layers of {units} units, as "{layer.name}" has; "{name}" has {prod(shapes[name])}'
            )
            raise FitError(rule, place=Place.find(spec, layer).of("skip"))


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
    names = [layer.name for layer in network.outputs]
    if evaluation.output is None and len(names) > 1:
        raise FitError(f"must name one of the outputs: {', '.join(names)}", place=f"{place}.output")
    output = next((layer for layer in network.outputs if layer.name == (evaluation.output or names[0])), None)
    if output is None:
        raise FitError(f"must be one of {', '.join(names)}", place=f"{place}.output", value=evaluation.output)
    try:
        k = check_metric(evaluation.metric)
    except OptionError as error:
        raise DocumentError(str(error), place=f"{place}.metric") from None
    if evaluation.metric.partition("@")[0] not in LARGER_IS_BETTER:
        rule = f"must be a metric that is better when larger ({', '.join(LARGER_IS_BETTER)})"
        raise DocumentError(rule, place=f"{place}.metric", value=evaluation.metric)
    return output, k


def bind(network: NetworkSpec, training: TrainingSpec, fields: Mapping[str, FieldFacts]) -> Layout:
    """Bind two documents to the fields of a dataset.

    Args:
        network: The network document.
        training: The training document; here, its shards and precision of weights matter.
        fields: Facts of the dataset's fields, by name.

    Raises:
        FitError: The network and the fields do not go together.
    """
    ends = _units_of_ends(network, fields)
    shapes = shapes_of(network, ends)
    windows = windows_between(network, shapes)
    for output in network.outputs:
        _check_weightless(output, network, ends, shapes)
    for layer in network.layers:
        _check_feeding(layer, network, fields)
        for share in getattr(layer, "weights", None) or ():
            check_share(layer, share, network, fields, shapes, windows)
    layout = Layout(
        network,
        training,
        fields,
        units={layer.name: prod(shapes[layer.name]) for layer in network.layers},
        shapes=shapes,
        windows=windows,
        links=links_of(network),
        along=along_of(network, fields),
        weights={},
    )
    layout = replace(layout, weights=weights_of(layout))
    layout = replace(layout, weights={**layout.weights, **weights_of_descriptions(layout)})
    layout = replace(layout, weights=with_frozen(layout))
    file_vectors(layout)
    for layer in network.hidden:
        plan_of(layer).check(layout, layer)
    return replace(layout, by_examples=layers_by_examples(layout))


def _units_of_ends(spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> dict[str, int]:
    """Return the units of inputs and outputs, by name; check their settings against their fields."""
    units = {}
    ends: list[InputLayer | OutputLayer] = [*spec.inputs, *spec.outputs]
    for layer in ends:
        place = Place.find(spec, layer)
        if layer.field not in fields:
            raise FitError(
                f'the dataset has no field "{layer.field}".{did_you_mean(layer.field, fields)}',
                place=place.of("field"),
            )
        facts = fields[layer.field]
        if layer.units != "auto" and layer.units < facts.width:
            rule = f'must be at least the width of the field "{layer.field}", {facts.width}'
            raise FitError(rule, place=place.of("units"), value=layer.units)
        units[layer.name] = facts.width if layer.units == "auto" else layer.units
        if isinstance(layer, InputLayer):
            _check_input(place, layer, facts)
        else:
            _check_output(place, layer, facts, units[layer.name])
    return units


def _check_input(place: Place, layer: InputLayer, facts: FieldFacts) -> None:
    if facts.kind == "sequence":
        _check_sequence(place, layer)
    elif layer.last is not None:
        raise FitError(f'needs a sequence field; "{layer.field}" is {facts.kind}', place=place.of("last"))
    sparse_only = {"denoise": layer.denoise, "popularity_damping": layer.popularity_damping}
    for name, value in sparse_only.items():
        if value and facts.kind == "dense":
            raise FitError(f'needs a sparse field; "{layer.field}" is dense', place=place.of(name))
    if layer.dropout and facts.kind == "sparse":
        raise FitError(f'needs a dense field; "{layer.field}" is sparse', place=place.of("dropout"))
    if layer.shape is not None and facts.kind != "dense":
        raise FitError(f'needs a dense field; "{layer.field}" is {facts.kind}', place=place.of("shape"))
    if facts.kind == "dense" and layer.units != "auto" and layer.units != facts.width:
        raise FitError(
            f"of a dense field must be its width, {facts.width}", place=place.of("units"), value=layer.units
        )


def _check_sequence(place: Place, layer: InputLayer) -> None:
    for name, value in {"denoise": layer.denoise, "dropout": layer.dropout}.items():
        if value:
            raise FitError(f'does not go with a sequence field; "{layer.field}" is one', place=place.of(name))
    if layer.scale != "none":
        raise FitError(
            'must be "none" over a sequence, which has one feature at each position',
            place=place.of("scale"),
            value=layer.scale,
        )


def _check_output(place: Place, layer: OutputLayer, facts: FieldFacts, units: int) -> None:
    if layer.others == "ignore" and facts.kind == "dense":
        raise FitError(f'"ignore" needs a sparse field; "{layer.field}" is dense', place=place.of("others"))
    if layer.sample is not None and facts.kind == "dense":
        raise FitError(f'needs a sparse field; "{layer.field}" is dense', place=place.of("sample"))
    if layer.sample is not None and layer.sample.units > units:
        raise FitError(
            f"must be at most the width, {units}", place=place.of("sample.units"), value=layer.sample.units
        )
    if layer.neighbourhood is not None and facts.kind == "dense":
        raise FitError(
            f'needs a sparse field or a sequence; "{layer.field}" is dense', place=place.of("neighbourhood")
        )
    if layer.neighbourhood is not None and layer.neighbourhood.in_order and facts.kind != "sequence":
        order = layer.neighbourhood.order
        rule = f'"{order}" needs a sequence field; "{layer.field}" is {facts.kind}'
        raise FitError(rule, place=place.of("neighbourhood.order"))
    if layer.values == "ignore" and facts.kind != "dense":
        return
    low, high = facts.min_value, facts.max_value
    if (
        layer.loss.kind == "cross_entropy"
        and layer.activation.kind == "sigmoid"
        and not 0 <= low <= high <= 1
    ):
        raise FitError(
            f"cross_entropy under a sigmoid needs targets from 0 to 1; got {low:g} to {high:g}",
            place=place.of("loss"),
        )
    if layer.activation.kind == "softmax" and layer.loss.kind.endswith("cross_entropy") and low < 0:
        raise FitError(
            f"{layer.loss.kind} under a softmax needs targets of at least 0",
            place=place.of("loss"),
            value=low,
        )


def _check_feeding(layer: Layer, spec: NetworkSpec, fields: Mapping[str, FieldFacts]) -> None:
    """Refuse sparse inputs where a layer needs every unit of its source.

    An output may read one sparse input directly, if that is its only source.
    """
    sources = spec.sources(layer)
    has_weights = isinstance(layer, OutputLayer) and not layer.weightless
    is_direct = has_weights and len(sources) == 1 and _field_kind(spec, sources[0], fields) == "sparse"
    if isinstance(layer, OutputLayer) and is_direct:
        _check_direct(layer, sources[0], spec)
    keys = {} if is_direct or layer.takes_features else dict.fromkeys(sources, "source")
    keys |= dict.fromkeys(getattr(layer, "skip", None) or (), "skip")
    kind = "an output" if isinstance(layer, OutputLayer) else layer.words
    for source, key in keys.items():
        if is_sparse_input(spec, source, fields):
            beside = " beside other sources" if isinstance(layer, OutputLayer) and len(sources) > 1 else ""
            cannot = f'{kind} cannot take the sparse input "{source}" directly{beside}'
            raise FitError(cannot, place=Place.find(spec, layer).of(key))


def _check_weightless(
    layer: OutputLayer, spec: NetworkSpec, units: Mapping[str, int], shapes: Mapping[str, Shape]
) -> None:
    """Check that an output without weights has as many units as its source."""
    source = spec.sources(layer)[0]
    if layer.weightless and prod(shapes[source]) != units[layer.name]:
        rule = (
            f'of a weightless output must be as many as "{source}" has, {prod(shapes[source])}; got'
            f" {units[layer.name]}"
        )
        raise FitError(rule, place=Place.find(spec, layer).of("units"))


def _field_kind(spec: NetworkSpec, name: str, fields: Mapping[str, FieldFacts]) -> str | None:
    layer = spec.layer(name)
    return fields[layer.field].kind if isinstance(layer, InputLayer) else None


def _check_direct(layer: OutputLayer, source: str, spec: NetworkSpec) -> None:
    """Refuse settings that an output on a sparse input does not support."""
    place = Place.find(spec, layer)
    for name in ("cosine", "sample", "weight_norm", "weights"):
        if getattr(layer, name) is not None:
            raise FitError(
                f'needs a hidden layer between the output and the sparse input "{source}"',
                place=place.of(name),
            )
    if any(
        share.layer == layer.name for other in spec.layers for share in getattr(other, "weights", None) or ()
    ):
        rule = (
            "shares weights with others, and so needs a hidden layer between it and the sparse input"
            f' "{source}"'
        )
        raise FitError(rule, place=place.of("source"))
