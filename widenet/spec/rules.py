"""The rules between layers and inside them: names, sources, and which settings go together.

All of them raise DocumentError, whose place is a JSON path.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from widenet.errors import DocumentError, did_you_mean
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.losses import CROSS_ENTROPIES, CrossEntropy
from widenet.spec.parts import Share

_OWN_NUMBERS = (
    "bias",
    "normalization scale",
    "normalization shift",
    "normalization mean",
    "normalization variance",
    "description",
)
"""Endings of the names of numbers that each unit of a layer has."""


def sources_of(layers: Sequence[Layer], layer: Layer) -> tuple[str, ...]:
    """Return the names of a layer's sources; by default, the layer before it."""
    if isinstance(layer, InputLayer):
        return ()
    if layer.source is not None:
        return layer.source
    position = next(index for index, other in enumerate(layers) if other is layer)
    return (layers[position - 1].name,) if position else ()


def feeding(layers: Sequence[Layer], layer: Layer) -> tuple[str, ...]:
    """Return the names of the layers that a layer needs: its sources and its `skip` layers."""
    return sources_of(layers, layer) + layer.skipped


def in_order(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers, each after all that feed it; ties in document order.

    Raises:
        DocumentError: The layers form a cycle.
    """
    needs = {layer.name: set(feeding(layers, layer)) for layer in layers}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise DocumentError(f"must not feed themselves; got {circle}", place="layers") from None
    placed: dict[str, Layer] = {}
    while len(placed) < len(layers):
        ready = (layer for layer in layers if layer.name not in placed and needs[layer.name] <= placed.keys())
        layer = next(ready)
        placed[layer.name] = layer
    return list(placed.values())


def check_wiring(layers: Sequence[Layer]) -> None:
    """Raise DocumentError for the first broken rule of names and sources."""
    names = [layer.name for layer in layers]
    for index, layer in enumerate(layers):
        place, name = f"layers[{index}]", layer.name
        DocumentError.require(names.index(name) == index, "must be unique", place=f"{place}.name", value=name)
        for suffix in _OWN_NUMBERS:
            owner = name.removesuffix(f" {suffix}")
            rule = f'must not be that of numbers of the layer "{owner}"'
            DocumentError.require(
                owner == name or owner not in names, rule, place=f"{place}.name", value=name
            )
        if not isinstance(layer, InputLayer):
            _check_sources(place, layer, layers)
    for kind in ("input", "output"):
        DocumentError.require(
            any(layer.kind == kind for layer in layers),
            f"must have a layer of the kind {kind}",
            place="layers",
        )
    in_order(layers)
    used = {source for layer in layers for source in feeding(layers, layer)}
    for index, layer in enumerate(layers):
        feeds = isinstance(layer, OutputLayer) or layer.name in used
        DocumentError.require(feeds, f'"{layer.name}" feeds no other layer', place=f"layers[{index}]")


def _check_sources(place: str, layer: Layer, layers: Sequence[Layer]) -> None:
    sources, by_name = sources_of(layers, layer), {other.name: other for other in layers}
    if getattr(layer, "source", None) == ():
        weighed = layer.shares or getattr(layer, "weight_norm", None) is not None
        rule = "may be empty only beside skip, without weights and weight_norm"
        DocumentError.require(layer.skipped and not weighed, rule, place=f"{place}.source")
    else:
        DocumentError.require(sources, "is missing, and no layer is before this one", place=f"{place}.source")
    for key, named in (("source", sources), ("skip", layer.skipped)):
        for source in named:
            if source not in by_name:
                rule = f'must name a layer, not "{source}".{did_you_mean(source, list(by_name))}'
                raise DocumentError(rule, place=f"{place}.{key}")
            is_output = isinstance(by_name[source], OutputLayer)
            DocumentError.require(
                not is_output, "must not be an output layer", place=f"{place}.{key}", value=source
            )
        _require_once(named, f"{place}.{key}", "must name each layer once")


def _require_once(names: Sequence[str], place: str, rule: str) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DocumentError(rule, place=place, value=twice[0])


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise DocumentError for the first broken rule inside a layer."""
    for index, layer in enumerate(layers):
        place, sources, shares = f"layers[{index}]", sources_of(layers, layer), layer.shares
        if isinstance(layer, OutputLayer):
            _check_output(place, layer, layers)
        layer.check(place, len(sources))
        if getattr(layer, "described_by", None) is not None:
            _check_described(place, layer)
        for number, share in enumerate(shares):
            key = f"weights[{number}]" if len(shares) > 1 else "weights"
            _check_share(place, key, layer, share, layers)
        served = [share.source or sources[0] for share in shares]
        _require_once(served, f"{place}.weights", "must serve each source once")


def _check_output(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    activation, loss, at_loss = layer.activation.kind, layer.loss.kind, f"{place}.loss"
    by_unit, single = activation not in ROW_WISE, "needs an activation of single units"
    if loss in CROSS_ENTROPIES:
        rule = f'"{loss}" needs the activation sigmoid or softmax'
        DocumentError.require(activation in ("sigmoid", "softmax"), rule, place=at_loss, value=activation)
    if loss in ("hinge", "l2_hinge"):
        DocumentError.require(by_unit, f'"{loss}" {single}', place=at_loss, value=activation)
    if isinstance(layer.loss, CrossEntropy) and layer.loss.targets == "sum":
        rule = '"sum" needs the activation softmax'
        DocumentError.require(activation == "softmax", rule, place=f"{at_loss}.targets", value=activation)
    DocumentError.require(
        layer.others == "use" or by_unit, f'"ignore" {single}', place=f"{place}.others", value=activation
    )
    if layer.sample is not None:
        is_known = by_unit or (activation == "softmax" and loss in CROSS_ENTROPIES)
        rule = "needs a cross-entropy, or an activation of single units"
        DocumentError.require(is_known, rule, place=f"{place}.sample", value=activation)
        DocumentError.require(
            layer.others == "use", '"ignore" leaves nothing to sample', place=f"{place}.others"
        )
        DocumentError.require(
            layer.weight_norm is None, "must be unset beside sample", place=f"{place}.weight_norm"
        )
    if layer.weightless:
        sources, rule = sources_of(layers, layer), "of a weightless output must be one layer"
        DocumentError.require(len(sources) == 1, rule, place=f"{place}.source", value=list(sources))
        DocumentError.require(not layer.bias, "of a weightless output must be false", place=f"{place}.bias")
        for key in ("cosine", "sample", "weights", "weight_norm"):
            DocumentError.require(
                getattr(layer, key) is None, "must be unset beside weightless", place=f"{place}.{key}"
            )
    if layer.predict == "hidden":
        _check_hiding(place, layer, layers)
    if layer.neighbourhood is not None:
        is_read = any(isinstance(other, InputLayer) and other.field == layer.field for other in layers)
        DocumentError.require(
            is_read, f'needs an input layer of the field "{layer.field}"', place=f"{place}.neighbourhood"
        )
    if layer.repeats is not None:
        DocumentError.require(
            layer.predict == "next", 'needs predict "next"', place=f"{place}.repeats", value=layer.predict
        )


def _check_described(place: str, layer: Layer) -> None:
    """Check that a described layer owns the weights that are described, and that nothing shortens them."""
    at = f"{place}.described_by"
    _require_once(getattr(layer, "described_by"), at, "must name each description once")  # noqa: B009
    for share in layer.shares:
        raise DocumentError(f'belongs to the layer that owns the weights, "{share.layer}"', place=at)
    is_free = getattr(layer, "weight_norm", None) is None
    DocumentError.require(is_free, "must be unset beside described_by", place=f"{place}.weight_norm")
    DocumentError.require(
        not getattr(layer, "weightless", False), "must be unset beside weightless", place=at
    )


def _check_hiding(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    """Check that exactly one input hides the features to predict, and that none shows them."""
    at, of_field = f"{place}.predict", [other for other in layers if isinstance(other, InputLayer)]
    of_field = [other for other in of_field if other.field == layer.field]
    hiding = [other for other in of_field if other.denoise > 0]
    rule = f'"hidden" needs one input layer of the field "{layer.field}" with denoise above 0'
    DocumentError.require(len(hiding) == 1, rule, place=at)
    behind = {layer.name}
    for other in reversed(in_order(layers)):
        if other.name in behind:
            behind.update(feeding(layers, other))
    rule = f'"hidden" must not be fed by an input that shows all of "{layer.field}"'
    for other in of_field:
        DocumentError.require(other.name not in behind or other in hiding, rule, place=at, value=other.name)


def _check_share(place: str, key_of_share: str, layer: Layer, share: Share, layers: Sequence[Layer]) -> None:
    here = f"{place}.{key_of_share}"
    owners = {other.name: other for other in layers if other.shares_with == layer.shares_with != ""}
    owner = owners.get(share.layer)
    if owner is None or owner is layer:
        known = [name for name in owners if name != layer.name]
        rule = f'must name another {layer.shares_with}, not "{share.layer}".'
        raise DocumentError(f"{rule}{did_you_mean(share.layer, known)}", place=f"{here}.layer")
    can_turn = layer.transposes or not share.transposed
    DocumentError.require(can_turn, f"must be false for a {layer.kind}", place=f"{here}.transposed")
    for borrowed in owner.shares:
        rule = f'must own its weights; "{share.layer}" has those of "{borrowed.layer}"'
        raise DocumentError(rule, place=f"{here}.layer")
    for key, value, other in (("source", share.source, layer), ("layer_source", share.layer_source, owner)):
        sources = sources_of(layers, other)
        rule = f'is missing: "{other.name}" has several sources'
        DocumentError.require(value is not None or len(sources) <= 1, rule, place=f"{here}.{key}")
        if value is not None and value not in sources:
            rule = f'must be a source of "{other.name}", not "{value}".{did_you_mean(value, sources)}'
            raise DocumentError(rule, place=f"{here}.{key}")
    for other in (layer, owner):
        is_single = not isinstance(other, OutputLayer) or len(sources_of(layers, other)) <= 1
        DocumentError.require(is_single, f'needs one source in the output layer "{other.name}"', place=here)
    is_free = getattr(layer, "weight_norm", None) is None
    rule = f'belongs to the layer that owns the weights, "{share.layer}"'
    DocumentError.require(is_free, rule, place=f"{place}.weight_norm")
