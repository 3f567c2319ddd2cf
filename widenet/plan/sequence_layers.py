"""Finds the layers along a sequence: they have one vector per position instead of one per example."""

from collections.abc import Mapping

from widenet.errors import FitError
from widenet.plan.layout import FieldFacts
from widenet.plan.windows import Place
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.rules import feeding, in_order


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
        place = Place.find(spec, layer)
        sources = feeding(spec.layers, layer)
        along = [along_by_layer.get(source) for source in sources]
        if len(set(along)) > 1:
            odd = next(source for source, other in zip(sources, along, strict=True) if other != along[0])
            rule = f'must all go along one sequence, or none; "{sources[0]}" and "{odd}" do not'
            raise FitError(rule, place=place.of("source"))
        _check(place, layer, along[0], spec, fields)
        if along[0] is not None:
            along_by_layer[layer.name] = along[0]
    return along_by_layer


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


def _check(
    place: Place, layer: Layer, along: str | None, spec: NetworkSpec, fields: Mapping[str, FieldFacts]
) -> None:
    if layer.goes_along and along is None:
        raise FitError(
            f"must lead to an input of a sequence field, for {layer.words} goes along one",
            place=place.of("source"),
        )
    if not isinstance(layer, OutputLayer):
        return
    is_sequence = fields[layer.field].kind == "sequence"
    if is_sequence != (layer.predict == "next"):
        rule = f'must be "next" where the field is a sequence, as "{layer.field}" is; got "{layer.predict}"'
        if not is_sequence:
            rule = f'"next" needs a sequence; the field "{layer.field}" is {fields[layer.field].kind}'
        raise FitError(rule, place=place.of("predict"))
    if not is_sequence:
        return
    read = next((source.field for source in spec.inputs if source.name == along), None)
    if read != layer.field:
        got = "no sequence" if read is None else f'the sequence "{read}"'
        raise FitError(
            f'"next" must follow an input of the same field, "{layer.field}"; its sources read {got}',
            place=place.of("predict"),
        )
