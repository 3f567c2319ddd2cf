"""Finds the layers along a sequence: they have one vector per position instead of one per example."""

from collections.abc import Mapping

from widenet.plan.layout import FieldFacts
from widenet.plan.windows import Place
from widenet.spec.layers import InputLayer, OutputLayer
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
        place, (first, *others) = Place.find(spec, layer), feeding(spec.layers, layer)
        along = along_by_layer.get(first)
        for other in others:
            place.refuse(
                "source",
                along_by_layer.get(other) != along,
                f'must all go along one sequence, or none; "{first}" and "{other}" do not',
            )
        place.refuse(
            "source",
            layer.goes_along and along is None,
            f"must lead to an input of a sequence field, for {layer.words} goes along one",
        )
        if isinstance(layer, OutputLayer):
            read = {source.name: source.field for source in spec.inputs}.get(along or "")
            _check_next(place, layer, read, fields[layer.field].kind)
        if along is not None:
            along_by_layer[layer.name] = along
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


def _check_next(place: Place, layer: OutputLayer, read: str | None, kind: str) -> None:
    """Refuse "next" without a sequence, or behind another one.

    Args:
        place: The output's place.
        layer: The output.
        read: Field of the sequence that its sources go along.
        kind: Kind of the output's field.
    """
    is_next, got = layer.predict == "next", "no sequence" if read is None else f'the sequence "{read}"'
    place.refuse(
        "predict",
        is_next != (kind == "sequence"),
        f'"next" goes with a sequence, and nothing else; the field "{layer.field}" is {kind}',
        value=layer.predict,
    )
    place.refuse(
        "predict",
        is_next and read != layer.field,
        f'"next" must follow an input of the same field, "{layer.field}"; its sources read {got}',
    )
