"""Recognition and translation of DSSTNE's network documents."""

import re
from dataclasses import dataclass
from typing import Any

from widenet.dsstne.spec.layers import Dialect, Whole, layer
from widenet.dsstne.spec.neutral import with_settings
from widenet.dsstne.spec.settings import Settings
from widenet.dsstne.spec.wiring import rewired

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
_MARGINS = ("oneTarget", "zeroTarget", "oneScale", "zeroScale")
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
OLDEST_VERSION, VERSION = 0.6999, 0.9


@dataclass(frozen=True)
class Translation:
    """A DSSTNE document translated to widenet's form.

    Attributes:
        network: Plain values of a network document.
        training: Settings for a training document, "shuffle" and "schedule".
        notes: A sentence for each setting that was left out or works differently.
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


def translation(values: dict[str, Any], where: str = "network", dialect: Dialect = "dsstne") -> Translation:
    """Translate a DSSTNE network to a network document.

    Args:
        values: Plain values of DSSTNE's document.
        where: Beginning of error messages.
        dialect: "dsstne" reproduces what DSSTNE's code does. "widenet" takes the names of activations, losses
            and initializers by their mathematical definitions.

    Raises:
        DocumentError: DSSTNE would refuse the document too, or widenet lacks a feature; the message has the
            path.
    """
    settings = Settings(values, where, _KEYS)
    if settings.number("Version", VERSION) < OLDEST_VERSION:
        raise settings.wrong("Version", "must be at least 0.7")
    settings.choice("Kind", {"FeedForward": "", "AutoEncoder": ""}, "FeedForward")
    notes = ["WeightsData has no effect, as in DSSTNE; it was left out."] if "WeightsData" in settings else []
    penalty = settings.within("SparsenessPenalty", ("p", "beta"))
    normalization = settings.merged(("k", "n", "alpha", "beta"), "LRN", "LocalResponseNormalization")
    settings.within("Maxout", ("k",)).number("k", 2)
    whole = Whole(
        dialect=dialect,
        slope=settings.number(settings.spelled("RELUSlope", "Slope"), 1.0 if dialect == "dsstne" else 0.01),
        elu_alpha=settings.number("ELUAlpha", 1.0),
        selu_lambda=settings.number("SELULambda", 1.050701),
        denoising=settings.within("Denoising", ("p",)).number("p", 0, 0, 1),
        sparseness=(penalty.number("p", 0, 0, 1), penalty.number("beta", 0)),
        lrn={
            key: normalization.number(key, default)
            for key, default in (("k", 2), ("alpha", 1e-4), ("beta", 0.75))
        }
        | {"n": int(normalization.number("n", 5, 1))},
        outputs=_outputs(settings, dialect, notes),
        notes=notes,
    )
    raw_layers = settings.raw("Layers")
    layers = raw_layers if isinstance(raw_layers, list) else [raw_layers]
    if raw_layers is None or not layers:
        raise settings.wrong("Layers", "must be a list of layers")
    at = f"{where}: Layers"
    translated = [
        part
        for index, one in enumerate(layers)
        for part in layer(one, index, len(layers), f"{at}[{index}]", whole)
    ]
    translated = rewired(translated, whole.notes, at)
    _redirect_shared_weights(translated)
    _add_channels(translated)
    network = {"name": settings.text("Name"), "layers": translated}
    if dialect == "dsstne":
        network = with_settings(network)
    return Translation(network, _training(settings), tuple(whole.notes))


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
            if one["name"] in _sources(other, before)
        ]
        if (kernel_axes or [2])[0] == len(one["shape"]):
            one["shape"] = [1, *one["shape"]]


def _sources(layer: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """Return the sources of a layer with a kernel; an empty list for other layers."""
    named = layer.get("source", before["name"]) if "kernel" in layer else []
    return named if isinstance(named, list) else [named]


def _outputs(settings: Settings, dialect: Dialect, notes: list[str]) -> dict[str, Any]:
    """Return the settings that all outputs get from the network: loss and boost."""
    kind = settings.choice("ErrorFunction", _LOSSES, "CrossEntropy")
    output: dict[str, Any] = {"loss": kind}
    margins = settings.merged(_MARGINS, "ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy")
    if kind.endswith("scaled_marginal_cross_entropy"):
        defaults = {"oneTarget": 0.9, "zeroTarget": 0.1, "oneScale": 1.0, "zeroScale": 1.0}
        numbers = {
            key: margins.number(key, defaults[key], 0, 1 if key.endswith("Target") else None)
            for key in _MARGINS
        }
        names = {
            "oneTarget": "one_target",
            "zeroTarget": "zero_target",
            "oneScale": "one_scale",
            "zeroScale": "zero_scale",
        }
        output["loss"] = {"kind": kind, **{names[key]: value for key, value in numbers.items()}}
    if kind in _WITHOUT_VALUES and dialect == "dsstne":
        output["values"] = "ignore"
    boost = settings.within("DeltaBoost", ("one", "zero"))
    factors = {"target": boost.number("one", 1, 0), "other": boost.number("zero", 1, 0)}
    if set(factors.values()) != {1.0}:
        if kind in _BOOSTED:
            output["delta_boost"] = factors
        else:
            notes.append(
                f"DeltaBoost has no effect with {settings.text('ErrorFunction')}, as in DSSTNE; it was left"
                " out."
            )
    return output


def _training(settings: Settings) -> dict[str, Any]:
    training: dict[str, Any] = {"shuffle": settings.switch("ShuffleIndices", True)}
    decay = settings.number("Decay", 0, 0)
    return training | ({"schedule": {"kind": "inverse", "decay": decay}} if decay else {})
