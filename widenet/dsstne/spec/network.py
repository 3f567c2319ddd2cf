"""Recognition and translation of DSSTNE's network documents.

In a network document an output feeds no layer, and every other layer feeds an output.
"""

import re
from dataclasses import dataclass
from typing import Any

from widenet.dsstne.spec.layers import Whole, layers_of
from widenet.dsstne.spec.settings import Names, Settings
from widenet.errors import DocumentError
from widenet.spec.activations import RESTING

_KEYS = (
    "Version",
    "Name",
    "Kind",
    "WeightsData",
    "LRN",
    "LocalResponseNormalization",
    "Maxout",
    "SparsenessPenalty",
    "Denoising",
    "DeltaBoost",
    "ScaledMarginalCrossEntropy",
    "DataScaledMarginalCrossEntropy",
    "ShuffleIndices",
    "RELUSlope",
    "Slope",
    "ELUAlpha",
    "SELULambda",
    "Decay",
    "ErrorFunction",
    "Layers",
)
_LOSSES = {
    "L1": "l1",
    "L2": "l2",
    "L2Hinge": "l2_hinge",
    "Hinge": "hinge",
    "CrossEntropy": "cross_entropy",
    "Cross Entropy": "cross_entropy",
    "ScaledMarginalCrossEntropy": "scaled_marginal_cross_entropy",
    "DataScaledMarginalCrossEntropy": "data_scaled_marginal_cross_entropy",
}
_WITHOUT_VALUES = ("l1", "cross_entropy", "scaled_marginal_cross_entropy")
"""Losses that ignore the values of targets."""
_BOOSTED = ("l1", "l2", "cross_entropy")
"""Losses that DeltaBoost applies to."""
MARGINS = {
    "oneTarget": ("one_target", 0.9, 1),
    "zeroTarget": ("zero_target", 0.1, 1),
    "oneScale": ("one_scale", 1.0, None),
    "zeroScale": ("zero_scale", 1.0, None),
}
"""Settings of the scaled marginal cross-entropy, with DSSTNE's defaults and the largest values."""
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
OLDEST_VERSION, VERSION = 0.6999, 0.9


OPTIMIZER = {"floor": 1e-9, "step_offset": 1}
"""DSSTNE's smallest argument of a square root, and its Adam correction, which starts at t = 2."""
Layers = list[dict[str, Any]]


@dataclass(frozen=True)
class Translation:
    """A DSSTNE document translated to widenet's form.

    Attributes:
        network: Plain values of a network document.
        training: Settings for a training document, "shuffle" and "schedule".
        notes: A sentence for each difference from what DSSTNE does.
    """

    network: dict[str, Any]
    training: dict[str, Any]
    notes: tuple[str, ...]


def is_dsstne(values: object) -> bool:
    """Return whether plain values are a DSSTNE network.

    At least one of its layers has the key DataSet, in upper or lower case, and none has "field".
    """
    if not isinstance(values, dict):
        return False
    layers = next(
        (value for key, value in values.items() if isinstance(key, str) and key.lower() == "layers"), None
    )
    objects = [one for one in (layers if isinstance(layers, list) else [layers]) if isinstance(one, dict)]
    keys = [{str(key).lower() for key in one} for one in objects]
    return any("dataset" in names for names in keys) and not any("field" in names for names in keys)


def without_comments(text: str) -> str:
    """Remove // and /* */ comments from JSON text; line numbers stay the same."""
    return _TEXT_OR_COMMENT.sub(
        lambda match: match[0] if match[0][0] == '"' else re.sub(r"[^\n]", " ", match[0]), text
    )


def translation(values: dict[str, Any], where: str = "network") -> Translation:
    """Translate a DSSTNE network to a network document that computes what DSSTNE's code does.

    Args:
        values: Plain values of DSSTNE's document.
        where: Beginning of error messages.

    Raises:
        DocumentError: DSSTNE would refuse the document too, or widenet lacks a feature; the message has the
            path.
    """
    settings = Settings(values, where, _KEYS)
    settings.require(settings.number("Version", VERSION) >= OLDEST_VERSION, "Version", "must be at least 0.7")
    settings.choice("Kind", {"FeedForward": "", "AutoEncoder": ""}, "FeedForward")
    penalty = settings.within("SparsenessPenalty", ("p", "beta"))
    normalization = settings.within("LRN", ("k", "n", "alpha", "beta"))
    settings.within("Maxout", ("k",)).number("k", 2)
    whole = Whole(
        slope=settings.number("RELUSlope", 1.0),
        elu_alpha=settings.number("ELUAlpha", 1.0),
        selu_lambda=settings.number("SELULambda", 1.050701),
        denoising=settings.within("Denoising", ("p",)).number("p", 0, 0, 1),
        sparseness=(penalty.number("p", 0, 0, 1), penalty.number("beta", 0)),
        lrn={
            key: normalization.number(key, default)
            for key, default in (("k", 2), ("alpha", 1e-4), ("beta", 0.75))
        }
        | {"n": int(normalization.number("n", 5, 1))},
        outputs=_outputs(settings),
    )
    raw_layers = settings.raw("Layers")
    layers = raw_layers if isinstance(raw_layers, list) else [raw_layers]
    settings.require(raw_layers is not None and layers, "Layers", "must be a list of layers")
    at = f"{where}: Layers"
    translated = [
        part
        for index, one in enumerate(layers)
        for part in layers_of(one, index, len(layers), f"{at}[{index}]", whole)
    ]
    translated = rewired(_with_plain_names(translated, whole.notes), whole.notes, at)
    _redirect_shared_weights(translated)
    _add_channels(translated)
    network = with_settings({"name": settings.text("Name"), "layers": translated})
    training: dict[str, Any] = {"shuffle": settings.switch("ShuffleIndices", True)}
    decay = settings.number("Decay", 0, 0)
    if decay:
        training["schedule"] = {"kind": "inverse", "decay": decay}
    return Translation(network, training, tuple(whole.notes))


def _with_plain_names(layers: Layers, notes: list[str]) -> Layers:
    """Give the layers names that network documents allow."""
    names = Names()

    def plain(values: dict[str, Any], *keys: str) -> dict[str, Any]:
        own = {key: values[key] for key in keys if key in values}
        return values | {
            key: [names[each] for each in value] if isinstance(value, list) else names[value]
            for key, value in own.items()
        }

    layers = [plain(layer, "name", "source", "skip") for layer in layers]
    for layer in layers:
        shares = layer.get("weights", [])
        for share in shares if isinstance(shares, list) else [shares]:
            share |= plain(share, "layer", "layer_source", "source")
    notes += names.notes
    return layers


def _redirect_shared_weights(layers: list[dict[str, Any]]) -> None:
    """Point layers that share the weights of a weightless output to its source, which has the weights."""
    parts = {one["name"]: one["source"] for one in layers if one.get("weightless")}
    parts = {name: source[0] if isinstance(source, list) else source for name, source in parts.items()}
    for one in layers:
        shared = one.get("weights", [])
        for each in shared if isinstance(shared, list) else [shared]:
            if each.get("layer") in parts:
                each["layer"] = parts[each["layer"]]


def _add_channels(layers: list[dict[str, Any]]) -> None:
    """Add a channel of 1 to inputs whose shape has as many axes as the kernel that moves over them.

    Otherwise the last side already counts the channels.
    """
    for one in (one for one in layers if "shape" in one):
        kernel_axes = [
            len(other["kernel"])
            for other, before in zip(layers[1:], layers, strict=False)
            if one["name"] in _kernel_sources(other, before)
        ]
        if (kernel_axes or [2])[0] == len(one["shape"]):
            one["shape"] = [1, *one["shape"]]


def _kernel_sources(layer: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return the sources of a layer with a kernel; an empty list for other layers."""
    named = layer.get("source", before["name"]) if "kernel" in layer else []
    return named if isinstance(named, list) else [named]


def _outputs(settings: Settings) -> dict[str, Any]:
    """Return the settings that all outputs get from the network: loss and boost."""
    kind = settings.choice("ErrorFunction", _LOSSES, "CrossEntropy")
    output: dict[str, Any] = {"loss": kind}
    margins = settings.within("ScaledMarginalCrossEntropy", tuple(MARGINS))
    if kind.endswith("scaled_marginal_cross_entropy"):
        output["loss"] = {"kind": kind} | {
            name: margins.number(key, default, 0, most) for key, (name, default, most) in MARGINS.items()
        }
    if kind in _WITHOUT_VALUES:
        output["values"] = "ignore"
    boost = settings.within("DeltaBoost", ("one", "zero"))
    factors = {"target": boost.number("one", 1, 0), "other": boost.number("zero", 1, 0)}
    if set(factors.values()) != {1.0} and kind in _BOOSTED:
        output["delta_boost"] = factors
    return output


def with_settings(network: dict[str, Any]) -> dict[str, Any]:
    """Return a network document that trains as DSSTNE does; its own settings take precedence."""
    layers = [_with_settings(layer) if isinstance(layer, dict) else layer for layer in network["layers"]]
    shares = any(isinstance(layer, dict) and layer.get("weights") for layer in layers)
    settings = {"optimizer": OPTIMIZER} | ({"shared_gradient": "mean"} if shares else {})
    name = {"name": network["name"]} if "name" in network else {}
    return {**name, **settings, **network, "layers": layers}


def _with_settings(layer: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if layer.get("dropout") and layer.get("kind", "hidden") in ("hidden", "convolution"):
        activation = layer.get("activation", "sigmoid")
        kind = activation.get("kind") if isinstance(activation, dict) else activation
        if kind in RESTING:
            settings["dropout_form"] = "rest"
    if isinstance(layer.get("sparseness"), dict):
        settings["sparseness"] = {"after_dropout": True, "pull_outside": True, **layer["sparseness"]}
    return {**layer, **settings}


def rewired(layers: Layers, notes: list[str], where: str) -> Layers:
    """Rewire the layers so that no output feeds a layer, and every other layer feeds an output.

    - An output that feeds layers is split: a hidden layer computes the sums, and a second one computes the
      activation for those layers.
    - Layers that feed no output are removed.
    - If there is no output, layers that feed nothing become outputs.

    Layers stay unchanged if one names an unknown layer, or two have the same name; the checks of network
    documents report that.

    Args:
        layers: Translated layers.
        notes: Receives a sentence for each change.
        where: Beginning of error messages.

    Raises:
        DocumentError: An output feeds layers but has no number of units.
    """
    sources = {layer["name"]: sources_of(layers, place) for place, layer in enumerate(layers)}
    feeding = {name for layer in layers for name in _feeding(layer, sources)}
    if not feeding <= sources.keys() or len(sources) < len(layers):
        return layers
    outputs = [layer["name"] for layer in layers if layer.get("kind") == "output"]
    if (
        outputs
        and not feeding & set(outputs)
        and all(layer["name"] in feeding or layer["name"] in outputs for layer in layers)
    ):
        return layers
    changed = [layer | ({"source": named} if (named := sources[layer["name"]]) else {}) for layer in layers]
    if not outputs:
        ends = [layer for layer in changed if layer["name"] not in feeding and layer.get("kind") != "input"]
        for layer in ends:
            notes.append(
                f'The network has no output; "{layer["name"]}" feeds nothing and becomes an output with a'
                " data set of its name."
            )
        changed += [_weightless_output(layer) for layer in ends]
        outputs = [layer["name"] for layer in changed if layer.get("kind") == "output"]
    for name in [name for name in outputs if name in feeding]:
        notes.append(
            f'The output "{name}" feeds other layers; they get its units, and their gradients include the'
            " derivative of its activation."
        )
        changed = _split_output(changed, name, where)
    return _only_used(changed, notes)


def sources_of(layers: Layers, place: int) -> list[str]:
    """Return the sources of a layer: those it names, or the layer before it."""
    layer = layers[place]
    if layer.get("kind") == "input":
        return []
    before = [layers[place - 1]["name"]] if place else []
    named = layer.get("source", before)
    return list(named) if isinstance(named, list) else [str(named)]


def _feeding(layer: dict[str, Any], sources: dict[str, list[str]]) -> list[str]:
    skip = layer.get("skip", [])
    return [*sources[layer["name"]], *(skip if isinstance(skip, list) else [skip])]


def _weightless_output(layer: dict[str, Any]) -> dict[str, Any]:
    """Return an output that takes the units of a layer unchanged."""
    settings = {
        "kind": "output",
        "field": layer["name"],
        "units": layer.get("units", "auto"),
        "activation": "linear",
        "loss": "l2",
    }
    return {
        "name": f"{layer['name']} units",
        **settings,
        "source": [layer["name"]],
        "bias": False,
        "weightless": True,
    }


def separated(output: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a hidden layer that computes an output's sums, and the weightless output that takes them."""
    own = {key: output[key] for key in ("units", "source", *_OF_WEIGHTS) if key in output}
    summed = {"name": f"{output['name']} summed", "activation": "linear", **own}
    rest = {key: value for key, value in output.items() if key not in _OF_WEIGHTS}
    return summed, rest | {"source": [summed["name"]], "bias": False, "weightless": True}


_OF_WEIGHTS = ("initializer", "bias_start", "weight_norm", "weights")


def _split_output(layers: Layers, name: str, where: str) -> Layers:
    """Split an output into a hidden layer for its sums, one for its activation, and a weightless output.

    Layers that the output fed get the hidden layer's units instead.
    """
    place = next(place for place, layer in enumerate(layers) if layer["name"] == name)
    output, before = layers[place], []
    DocumentError.require(
        output["units"] != "auto" or (output.get("weightless") and output["activation"] == "linear"),
        f'the output "{name}" feeds other layers, so its N must be the number of units',
        place=where,
    )
    if not output.get("weightless"):
        summed, output = separated(output)
        before.append(summed)
    (sums,) = output["source"]
    units = sums
    if output["activation"] != "linear":
        units = f"{name} units"
        own = {"activation": output["activation"], "source": [], "skip": sums, "bias": False}
        before.append({"name": units, "units": output["units"], **own})
    parts = [*before, output]
    return [
        *(_renamed(layer, name, units) for layer in layers[:place]),
        *parts,
        *(_renamed(one, name, units) for one in layers[place + 1 :]),
    ]


def _renamed(layer: dict[str, Any], name: str, other: str) -> dict[str, Any]:
    """Return the layer with every reference to `name` replaced by `other`."""
    renamed = dict(layer)
    for key in ("source", "skip"):
        if key in renamed:
            named = renamed[key] if isinstance(renamed[key], list) else [renamed[key]]
            renamed[key] = [other if one == name else one for one in named]
    shares = renamed.get("weights", [])
    for share in shares if isinstance(shares, list) else [shares]:
        for key in ("source", "layer_source"):
            if share.get(key) == name:
                share[key] = other
    return renamed


def _only_used(layers: Layers, notes: list[str]) -> Layers:
    """Return the outputs and the layers that feed one."""
    used = {layer["name"] for layer in layers if layer.get("kind") == "output"}
    before = 0
    while len(used) > before:
        before = len(used)
        for layer in layers:
            if layer["name"] in used:
                used.update(_feeding(layer, {layer["name"]: layer.get("source", [])}))
    if not any(layer.get("kind") == "input" for layer in layers if layer["name"] in used):
        # The checks of network documents report the cycle or the missing input.
        return layers
    for layer in layers:
        if layer["name"] not in used:
            notes.append(f'The layer "{layer["name"]}" feeds no output; it was left out.')
    return [layer for layer in layers if layer["name"] in used]
