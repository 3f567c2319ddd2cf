"""The rules between layers and inside them: names, sources, and which settings go together.

All of them raise DocumentError, whose place is a JSON path.
"""

from collections.abc import Sequence

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
    return sources_of(layers, layer) + (getattr(layer, "skip", None) or ())


def in_order(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers, each after all that feed it; ties in document order.

    Raises:
        DocumentError: The layers form a cycle.
    """
    placed: dict[str, Layer] = {}
    pending = list(layers)
    while pending:
        ready = next(
            (layer for layer in pending if all(source in placed for source in feeding(layers, layer))), None
        )
        if ready is None:
            circle = " -> ".join(_circle(pending, layers))
            raise DocumentError(f"must not feed themselves; got {circle}", place="layers")
        placed[ready.name] = ready
        pending.remove(ready)
    return list(placed.values())


def _circle(pending: Sequence[Layer], layers: Sequence[Layer]) -> list[str]:
    """The names along a cycle, in the direction of flow; the last name is the first."""
    waiting = {layer.name: layer for layer in pending}
    path = [pending[0].name]
    while path[-1] not in path[:-1]:
        path.append(next(source for source in feeding(layers, waiting[path[-1]]) if source in waiting))
    return path[path.index(path[-1]) :][::-1]


def check_wiring(layers: Sequence[Layer]) -> None:
    """Raise DocumentError for the first broken rule of names and sources."""
    names = [layer.name for layer in layers]
    for index, layer in enumerate(layers):
        place = f"layers[{index}]"
        if names.index(layer.name) < index:
            raise DocumentError("must be unique", place=f"{place}.name", value=layer.name)
        for suffix in _OWN_NUMBERS:
            owner = layer.name.removesuffix(f" {suffix}")
            if owner != layer.name and owner in names:
                rule = f'must not be that of numbers of the layer "{owner}"'
                raise DocumentError(rule, place=f"{place}.name", value=layer.name)
        if not isinstance(layer, InputLayer):
            _check_sources(layers, index, names)
    for kind in ("input", "output"):
        if all(layer.kind != kind for layer in layers):
            raise DocumentError(f"must have a layer of the kind {kind}", place="layers")
    in_order(layers)
    used = {source for layer in layers for source in feeding(layers, layer)}
    for index, layer in enumerate(layers):
        if not isinstance(layer, OutputLayer) and layer.name not in used:
            raise DocumentError(f'"{layer.name}" feeds no other layer', place=f"layers[{index}]")


def _check_sources(layers: Sequence[Layer], index: int, names: list[str]) -> None:
    layer, place = layers[index], f"layers[{index}]"
    assert not isinstance(layer, InputLayer)
    sources = sources_of(layers, layer)
    if layer.source == ():
        given = [key for key in ("weights", "weight_norm") if getattr(layer, key, None) is not None]
        if not getattr(layer, "skip", None) or given:
            rule = "may be empty only beside skip, without weights and weight_norm"
            raise DocumentError(rule, place=f"{place}.source")
    elif not sources:
        raise DocumentError("is missing, and no layer is before this one", place=f"{place}.source")
    for key, named in (("source", sources), ("skip", getattr(layer, "skip", None) or ())):
        for source in named:
            if source not in names:
                rule = f'must name a layer, not "{source}".{did_you_mean(source, names)}'
                raise DocumentError(rule, place=f"{place}.{key}")
            if isinstance(layers[names.index(source)], OutputLayer):
                raise DocumentError("must not be an output layer", place=f"{place}.{key}", value=source)
        if len(set(named)) < len(named):
            raise DocumentError("must name each layer once", place=f"{place}.{key}", value=list(named))


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise DocumentError for the first broken rule inside a layer."""
    for index, layer in enumerate(layers):
        place = f"layers[{index}]"
        sources, shares = sources_of(layers, layer), getattr(layer, "weights", None) or ()
        if isinstance(layer, OutputLayer):
            _check_output(place, layer, layers)
        layer.check(place, len(sources))
        if getattr(layer, "described_by", None) is not None:
            _check_described(place, layer, shares)
        for number, share in enumerate(shares):
            key = f"weights[{number}]" if len(shares) > 1 else "weights"
            _check_share(place, key, layer, share, layers)
        served = [share.source or sources[0] for share in shares]
        twice = next((source for source in served if served.count(source) > 1), None)
        if twice is not None:
            raise DocumentError("must serve each source once", place=f"{place}.weights", value=twice)


def _check_output(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    activation, loss = layer.activation.kind, layer.loss.kind
    if loss in CROSS_ENTROPIES and activation not in ("sigmoid", "softmax"):
        rule = f'"{loss}" needs the activation sigmoid or softmax'
        raise DocumentError(rule, place=f"{place}.loss", value=activation)
    if loss in ("hinge", "l2_hinge", "cosine_contrastive") and activation in ROW_WISE:
        rule = f'"{loss}" needs an activation of single units'
        raise DocumentError(rule, place=f"{place}.loss", value=activation)
    if loss == "cosine_contrastive" and layer.cosine is not None and layer.cosine.temperature != 1:
        rule = '"cosine_contrastive" needs the temperature 1'
        raise DocumentError(rule, place=f"{place}.loss", value=layer.cosine.temperature)
    if isinstance(layer.loss, CrossEntropy) and layer.loss.targets == "sum" and activation != "softmax":
        rule = '"sum" needs the activation softmax'
        raise DocumentError(rule, place=f"{place}.loss.targets", value=activation)
    if layer.others == "ignore" and activation in ROW_WISE:
        rule = '"ignore" needs an activation of single units'
        raise DocumentError(rule, place=f"{place}.others", value=activation)
    if layer.sample is not None:
        _check_sample(place, layer)
    if layer.weightless:
        _check_weightless(place, layer, sources_of(layers, layer))
    if layer.predict == "hidden":
        _check_hiding(place, layer, layers)
    read = [other.field for other in layers if isinstance(other, InputLayer)]
    if layer.neighbourhood is not None and layer.field not in read:
        rule = f'needs an input layer of the field "{layer.field}"'
        raise DocumentError(rule, place=f"{place}.neighbourhood")
    if layer.repeats is not None and layer.predict != "next":
        raise DocumentError('needs predict "next"', place=f"{place}.repeats", value=layer.predict)


def _check_weightless(place: str, layer: OutputLayer, sources: Sequence[str]) -> None:
    if len(sources) != 1:
        rule = "of a weightless output must be one layer"
        raise DocumentError(rule, place=f"{place}.source", value=list(sources))
    if layer.bias:
        raise DocumentError("of a weightless output must be false", place=f"{place}.bias")
    for key in ("cosine", "sample", "weights", "weight_norm"):
        if getattr(layer, key) is not None:
            raise DocumentError("must be unset beside weightless", place=f"{place}.{key}")


def _check_described(place: str, layer: Layer, shares: Sequence[Share]) -> None:
    """Check that a described layer owns the weights that are described, and that nothing shortens them."""
    names = getattr(layer, "described_by")  # noqa: B009
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DocumentError("must name each description once", place=f"{place}.described_by", value=twice)
    if shares:
        rule = f'belongs to the layer that owns the weights, "{shares[0].layer}"'
        raise DocumentError(rule, place=f"{place}.described_by")
    if getattr(layer, "weight_norm", None) is not None:
        raise DocumentError("must be unset beside described_by", place=f"{place}.weight_norm")
    if getattr(layer, "weightless", False):
        raise DocumentError("must be unset beside weightless", place=f"{place}.described_by")


def _check_hiding(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    """Check that exactly one input hides the features to predict, and that none shows them."""
    of_field = [other for other in layers if isinstance(other, InputLayer) and other.field == layer.field]
    hiding = [other for other in of_field if other.denoise > 0]
    if len(hiding) != 1:
        rule = f'"hidden" needs one input layer of the field "{layer.field}" with denoise above 0'
        raise DocumentError(rule, place=f"{place}.predict")
    behind = _feeding_layers(layers, layer)
    telling = next((other for other in of_field if other in behind and other not in hiding), None)
    if telling is not None:
        rule = f'"hidden" must not be fed by an input that shows all of "{layer.field}"'
        raise DocumentError(rule, place=f"{place}.predict", value=telling.name)


def _check_sample(place: str, layer: OutputLayer) -> None:
    activation = layer.activation.kind
    if activation in ROW_WISE and not (activation == "softmax" and layer.loss.kind in CROSS_ENTROPIES):
        rule = "needs a cross-entropy, or an activation of single units"
        raise DocumentError(rule, place=f"{place}.sample", value=activation)
    if layer.others == "ignore":
        raise DocumentError('"ignore" leaves nothing to sample', place=f"{place}.others")
    if layer.weight_norm is not None:
        raise DocumentError("must be unset beside sample", place=f"{place}.weight_norm")


def _feeding_layers(layers: Sequence[Layer], layer: Layer) -> list[Layer]:
    """Return the layers that feed a layer, directly or through others."""
    behind: list[Layer] = []
    pending = [layer]
    while pending:
        names = feeding(layers, pending.pop())
        fresh = [other for other in layers if other.name in names and other not in behind]
        behind += fresh
        pending += fresh
    return behind


def _check_share(place: str, key_of_share: str, layer: Layer, share: Share, layers: Sequence[Layer]) -> None:
    here = f"{place}.{key_of_share}"
    owners = {other.name: other for other in layers if other.shares_with == layer.shares_with != ""}
    owner = owners.get(share.layer)
    if owner is None or owner is layer:
        known = [name for name in owners if name != layer.name]
        rule = f'must name another {layer.shares_with}, not "{share.layer}".'
        raise DocumentError(f"{rule}{did_you_mean(share.layer, known)}", place=f"{here}.layer")
    if share.transposed and not layer.transposes:
        raise DocumentError(f"must be false for a {layer.kind}", place=f"{here}.transposed")
    owned = getattr(owner, "weights", None)
    if owned is not None:
        rule = f'must own its weights; "{share.layer}" has those of "{owned[0].layer}"'
        raise DocumentError(rule, place=f"{here}.layer")
    for key, value, other in (("source", share.source, layer), ("layer_source", share.layer_source, owner)):
        sources = sources_of(layers, other)
        if value is not None and value not in sources:
            rule = f'must be a source of "{other.name}", not "{value}".{did_you_mean(value, sources)}'
            raise DocumentError(rule, place=f"{here}.{key}")
        if value is None and len(sources) > 1:
            raise DocumentError(f'is missing: "{other.name}" has several sources', place=f"{here}.{key}")
    for other in (layer, owner):
        if isinstance(other, OutputLayer) and len(sources_of(layers, other)) > 1:
            rule = f'needs one source in the output layer "{other.name}"'
            raise DocumentError(rule, place=here)
    if getattr(layer, "weight_norm", None) is not None:
        rule = f'belongs to the layer that owns the weights, "{share.layer}"'
        raise DocumentError(rule, place=f"{place}.weight_norm")
