"""The rules inside a layer: which settings go together."""

from collections.abc import Sequence

from widenet.errors import did_you_mean
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.losses import CROSS_ENTROPIES, CrossEntropy
from widenet.spec.parts import Share
from widenet.spec.wiring import feeding, sources_of


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise ValueError, with a JSON path, for the first broken rule."""
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
        _check_served(place, layer, shares, sources)


def _check_output(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    activation, loss = layer.activation.kind, layer.loss.kind
    if loss in CROSS_ENTROPIES and activation not in ("sigmoid", "softmax"):
        raise ValueError(
            f'{place}.loss "{loss}" needs the activation "sigmoid" or "softmax"; got "{activation}".'
        )
    if loss in ("hinge", "l2_hinge", "cosine_contrastive") and activation in ROW_WISE:
        raise ValueError(
            f'{place}.loss "{loss}" needs an activation of single units, such as "linear"; got'
            f' "{activation}".'
        )
    if loss == "cosine_contrastive" and layer.cosine is not None and layer.cosine.temperature != 1:
        raise ValueError(
            f'{place}.loss "cosine_contrastive" compares cosines with 1 and a margin. Set "cosine":'
            ' {"temperature": 1}.'
        )
    if isinstance(layer.loss, CrossEntropy) and layer.loss.targets == "sum" and activation != "softmax":
        raise ValueError(
            f'{place}.loss.targets "sum" belongs to the activation "softmax"; got "{activation}". Remove it.'
        )
    if layer.others == "ignore" and activation in ROW_WISE:
        raise ValueError(
            f'{place}.others "ignore" needs an activation of single units, such as "sigmoid"; got'
            f' "{activation}".'
        )
    if layer.sample is not None:
        _check_sample(place, layer)
    if layer.weightless:
        _check_weightless(place, layer, sources_of(layers, layer))
    if layer.predict == "hidden":
        _check_hiding(place, layer, layers)
    if layer.neighbourhood is not None:
        _check_neighbourhood(place, layer, layers)
    if layer.repeats is not None and layer.predict != "next":
        raise ValueError(f'{place}.repeats needs "predict": "next"; got "{layer.predict}". Remove it.')


def _check_weightless(place: str, layer: OutputLayer, sources: Sequence[str]) -> None:
    if len(sources) != 1:
        raise ValueError(
            f"{place}.source of a weightless output must be one layer; got {', '.join(sources)}. Pool them,"
            " or remove it."
        )
    if layer.bias:
        raise ValueError(f'{place}.bias of a weightless output must be false; got true. Add "bias": false.')
    extra = [key for key in ("cosine", "sample", "weights", "weight_norm") if getattr(layer, key) is not None]
    if extra:
        raise ValueError(f'{place}.{extra[0]} needs weights, which "weightless" takes away. Remove one.')


def _check_described(place: str, layer: Layer, shares: Sequence[Share]) -> None:
    """Check that a described layer owns the weights that are described, and that nothing shortens them."""
    names = getattr(layer, "described_by")  # noqa: B009
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f'{place}.described_by must name each description once; got "{twice}" twice.')
    if shares:
        raise ValueError(
            f"{place}.described_by belongs to the layer that owns the weights. Move it to"
            f' "{shares[0].layer}".'
        )
    if getattr(layer, "weight_norm", None) is not None:
        raise ValueError(f"{place}.weight_norm must be unset beside described_by. Remove one of them.")
    if getattr(layer, "weightless", False):
        raise ValueError(
            f'{place}.described_by needs weights, which "weightless" takes away. Remove one of them.'
        )


def _check_neighbourhood(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    """Check that the network reads the output's field, whose features occur together."""
    read = [other.field for other in layers if isinstance(other, InputLayer)]
    if layer.field not in read:
        rule = f'needs an input layer of the field "{layer.field}"; the inputs read {", ".join(read)}'
        raise ValueError(f"{place}.neighbourhood {rule}. Remove it, or add such an input.")


def _check_hiding(place: str, layer: OutputLayer, layers: Sequence[Layer]) -> None:
    """Check that exactly one input hides the features to predict, and that none shows them."""
    of_field = [other for other in layers if isinstance(other, InputLayer) and other.field == layer.field]
    hiding = [other for other in of_field if other.denoise > 0]
    if len(hiding) != 1:
        raise ValueError(
            f'{place}.predict "hidden" needs one input layer of the field "{layer.field}" with "denoise"'
            " above 0."
        )
    behind = _feeding_layers(layers, layer)
    telling = next((other for other in of_field if other in behind and other not in hiding), None)
    if telling is not None:
        rule = (
            f'{place}.predict "hidden" must not be fed by an input that shows all of "{layer.field}"; got'
            f' "{telling.name}"'
        )
        raise ValueError(f'{rule}. Take it from the sources, or set "predict": "all".')


def _check_sample(place: str, layer: OutputLayer) -> None:
    activation = layer.activation.kind
    if activation in ROW_WISE and not (activation == "softmax" and layer.loss.kind in CROSS_ENTROPIES):
        rule = "needs a cross-entropy, or an activation of single units"
        raise ValueError(
            f'{place}.sample {rule}; got the loss "{layer.loss.kind}" under "{activation}". Remove "sample"'
            " or change one."
        )
    if layer.others == "ignore":
        raise ValueError(f'{place}.others "ignore" leaves nothing to "sample". Remove one.')
    if layer.weight_norm is not None:
        raise ValueError(
            f'{place}.weight_norm must be unset beside "sample", which leaves most rows alone; got'
            f" {layer.weight_norm:g}. Remove one."
        )


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


def _check_served(place: str, layer: Layer, shares: Sequence[Share], sources: Sequence[str]) -> None:
    served = [share.source or sources[0] for share in shares]
    twice = next((source for source in served if served.count(source) > 1), None)
    if twice is not None:
        raise ValueError(
            f'{place}.weights must serve each source of "{layer.name}" once; got two for "{twice}". Remove'
            " one."
        )


def _check_share(place: str, key_of_share: str, layer: Layer, share: Share, layers: Sequence[Layer]) -> None:
    here = f"{place}.{key_of_share}"
    owners = {other.name: other for other in layers if other.shares_with == layer.shares_with != ""}
    owner = owners.get(share.layer)
    if owner is None or owner is layer:
        known = [name for name in owners if name != layer.name]
        named = next((other for other in layers if other.name == share.layer), None)
        why = f", {named.words}, {named.unshared}" if named is not None and named.unshared else ""
        rule = f'name another {layer.shares_with}; got "{share.layer}"{why}'
        raise ValueError(f"{here}.layer must {rule}.{did_you_mean(share.layer, known)}")
    if share.transposed and not layer.transposes:
        raise ValueError(f"{here}.transposed must be false for a {layer.kind}; got true. Remove it.")
    owned = getattr(owner, "weights", None)
    if owned is not None:
        raise ValueError(
            f'{here}.layer must own its weights; "{share.layer}" shares its own. Name "{owned[0].layer}".'
        )
    for key, value, other in (("source", share.source, layer), ("layer_source", share.layer_source, owner)):
        sources = sources_of(layers, other)
        if value is not None and value not in sources:
            raise ValueError(
                f'{here}.{key} must be a source of "{other.name}"; got'
                f' "{value}".{did_you_mean(value, sources)}'
            )
        if value is None and len(sources) > 1:
            raise ValueError(
                f'{here}.{key} is missing: "{other.name}" has several sources. Name one of'
                f" {', '.join(sources)}."
            )
    for other in (layer, owner):
        if isinstance(other, OutputLayer) and len(sources_of(layers, other)) > 1:
            raise ValueError(
                f'{here}: an output layer that shares weights must have one source; "{other.name}" has'
                " several."
            )
    if getattr(layer, "weight_norm", None) is not None:
        raise ValueError(
            f'{place}.weight_norm belongs to the layer that owns the weights. Move it to "{share.layer}".'
        )
