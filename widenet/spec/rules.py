"""The rules between layers and inside them: names, sources, and which settings go together.

All of them raise DocumentError, whose place is a JSON path.
"""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from widenet.errors import DocumentError, did_you_mean
from widenet.spec.activations import ROW_WISE
from widenet.spec.document import Rules
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.losses import CROSS_ENTROPIES
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
        rule = f"must not feed themselves; got {' -> '.join(error.args[1])}"
        raise DocumentError(rule, place="layers") from None
    placed: dict[str, Layer] = {}
    while len(placed) < len(layers):
        waiting = (layer for layer in layers if layer.name not in placed)
        layer = next(layer for layer in waiting if needs[layer.name] <= placed.keys())
        placed[layer.name] = layer
    return list(placed.values())


def check_layers(layers: Sequence[Layer]) -> None:
    """Raise DocumentError for the first broken rule of names and sources, and then inside a layer."""
    names, kinds = [layer.name for layer in layers], {layer.kind for layer in layers}
    owners = {f"{name} {suffix}": name for name in names for suffix in _OWN_NUMBERS}
    for index, layer in enumerate(layers):
        name = layer.name
        DocumentError.refuse(
            f"layers[{index}].{{}}".format,
            ("name", name in names[:index], "must be unique", name),
            ("name", name in owners, f'must not be that of numbers of the layer "{owners.get(name)}"', name),
            *_of_sources(layer, layers),
        )
    for kind in ("input", "output"):
        DocumentError.refuse(str, ("layers", kind not in kinds, f"must have a layer of the kind {kind}"))
    in_order(layers)
    used = {source for layer in layers for source in feeding(layers, layer)}
    used |= {layer.name for layer in layers if isinstance(layer, OutputLayer)}
    for index, name in enumerate(names):
        DocumentError.refuse(str, (f"layers[{index}]", name not in used, f'"{name}" feeds no other layer'))
    for index, layer in enumerate(layers):
        place, sources, shares = f"layers[{index}]", sources_of(layers, layer), layer.shares
        served = [share.source or sources[0] for share in shares]
        rules = layer.rules(len(sources))
        if isinstance(layer, OutputLayer):
            rules += _of_output(layer, layers)
        rules += _of_description(layer)
        for number, share in enumerate(shares):
            rules += _of_share(f"weights[{number}]" if len(shares) > 1 else "weights", layer, share, layers)
        rules.append(("weights", *_once(served, "must serve each source once")))
        DocumentError.refuse(f"{place}.{{}}".format, *rules)


def _of_sources(layer: Layer, layers: Sequence[Layer]) -> Rules:
    if isinstance(layer, InputLayer):
        return []
    sources, names = sources_of(layers, layer), [other.name for other in layers]
    outputs = {other.name for other in layers if isinstance(other, OutputLayer)}
    read = [("source", source) for source in sources] + [("skip", name) for name in layer.skipped]
    is_alone = layer.skipped and not layer.shares and getattr(layer, "weight_norm", None) is None
    empty = "may be empty only beside skip, without weights and weight_norm"
    return [
        ("source", layer.source == () and not is_alone, empty),
        ("source", layer.source is None and not sources, "is missing, and no layer is before this one"),
        *(
            (key, True, f'must name a layer, not "{name}".{did_you_mean(name, names)}')
            for key, name in read
            if name not in names
        ),
        *((key, name in outputs, "must not be an output layer", name) for key, name in read),
        ("source", *_once(sources, "must name each layer once")),
        ("skip", *_once(layer.skipped, "must name each layer once")),
    ]


def _once(names: Sequence[str], rule: str) -> tuple[bool, str, str]:
    """Return whether a name repeats, the rule that it then breaks, and the name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    return twice is not None, rule, f"{twice}"


def _of_output(layer: OutputLayer, layers: Sequence[Layer]) -> Rules:
    activation, loss, sources = layer.activation.kind, layer.loss.kind, sources_of(layers, layer)
    is_row_wise, single = activation in ROW_WISE, "needs an activation of single units"
    is_entropy, is_sampled = loss in CROSS_ENTROPIES, layer.sample is not None
    is_closed = is_entropy and activation in ("sigmoid", "softmax")
    is_single = loss in ("hinge", "l2_hinge")
    is_sum = getattr(layer.loss, "targets", "share") == "sum"
    inputs = [other for other in layers if isinstance(other, InputLayer) and other.field == layer.field]
    is_next, is_term = layer.predict == "next", layer.neighbourhood is not None
    own = ("cosine", "sample", "weights", "weight_norm") if layer.weightless else ()
    return [
        (
            "loss",
            is_entropy and not is_closed,
            f'"{loss}" needs the activation sigmoid or softmax',
            activation,
        ),
        ("loss", is_single and is_row_wise, f'"{loss}" {single}', activation),
        (
            "loss.targets",
            is_sum and activation != "softmax",
            '"sum" needs the activation softmax',
            activation,
        ),
        ("others", layer.others == "ignore" and is_row_wise, f'"ignore" {single}', activation),
        ("sample", is_sampled and is_row_wise and not is_closed, "needs a cross-entropy"),
        ("others", is_sampled and layer.others == "ignore", '"ignore" leaves nothing to sample'),
        ("delta_norm", is_sampled and layer.delta_norm is not None, "must be unset beside sample"),
        ("weight_norm", is_sampled and layer.weight_norm is not None, "must be unset beside sample"),
        ("source", own and len(sources) != 1, "of a weightless output must be one layer", list(sources)),
        ("bias", own and layer.bias, "of a weightless output must be false"),
        *((key, getattr(layer, key) is not None, "must be unset beside weightless") for key in own),
        *(_of_hiding(layer, layers, inputs) if layer.predict == "hidden" else []),
        ("neighbourhood", is_term and not inputs, f'needs an input layer of the field "{layer.field}"'),
        ("repeats", layer.repeats is not None and not is_next, 'needs predict "next"', layer.predict),
    ]


def _of_hiding(layer: OutputLayer, layers: Sequence[Layer], inputs: Sequence[InputLayer]) -> Rules:
    """Return the rules by which one input hides the features to predict, and none that is read shows them."""
    hiding, behind = [source for source in inputs if source.denoise > 0], {layer.name}
    for other in reversed(in_order(layers)):
        behind.update(feeding(layers, other) if other.name in behind else ())
    needs = f'"hidden" needs one input layer of the field "{layer.field}" with denoise above 0'
    shows = f'"hidden" must not be fed by an input that shows all of "{layer.field}"'
    shown = [source.name for source in inputs if source not in hiding]
    return [
        ("predict", len(hiding) != 1, needs),
        *(("predict", name in behind, shows, name) for name in shown),
    ]


def _of_description(layer: Layer) -> Rules:
    """Return the rules by which a described layer owns its weights, and nothing shortens them."""
    names: Sequence[str] = getattr(layer, "described_by", None) or ()
    is_limited = getattr(layer, "weight_norm", None) is not None
    is_weightless = getattr(layer, "weightless", False)
    return [
        ("described_by", *_once(names, "must name each description once")),
        ("described_by", names and layer.shares, "belongs to the layer that owns the weights"),
        ("weight_norm", names and is_limited, "must be unset beside described_by"),
        ("described_by", names and is_weightless, "must be unset beside weightless"),
    ]


def _of_share(key: str, layer: Layer, share: Share, layers: Sequence[Layer]) -> Rules:
    partners = [other for other in layers if other.shares_with == layer.shares_with != ""]
    owners = {other.name: other for other in partners if other is not layer}
    if share.layer not in owners:
        rule = f'must name another {layer.shares_with}, not "{share.layer}".'
        return [(f"{key}.layer", True, f"{rule}{did_you_mean(share.layer, owners)}")]
    owner = owners[share.layer]
    is_limited = getattr(layer, "weight_norm", None) is not None
    is_turned = share.transposed and layer.kind == "convolution"
    rules: Rules = [
        (f"{key}.transposed", is_turned, "must be false for a convolution"),
        (f"{key}.layer", owner.shares, f'must own its weights; "{owner.name}" shares them'),
        ("weight_norm", is_limited, f'belongs to the layer that owns the weights, "{owner.name}"'),
    ]
    for name, value, other in (("source", share.source, layer), ("layer_source", share.layer_source, owner)):
        sources, place = sources_of(layers, other), f"{key}.{name}"
        is_several = len(sources) > 1
        single = f'needs one source in the output layer "{other.name}"'
        rules += [
            (place, value is None and is_several, f'is missing: "{other.name}" has several sources'),
            (
                place,
                value not in (None, *sources),
                f"must be one of the sources, {', '.join(sources)}",
                value,
            ),
            (key, isinstance(other, OutputLayer) and is_several, single),
        ]
    return rules
