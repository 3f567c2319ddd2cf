"""DSSTNE's network document as a whole: known when it is met, and said in this project's words."""

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
"""Losses under which every listed target counts as one, whatever its value."""
_BOOSTED = ("l1", "l2", "cross_entropy")
"""Losses whose gradients DSSTNE boosts."""
_MARGINS = ("oneTarget", "zeroTarget", "oneScale", "zeroScale")
_TEXT_OR_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
OLDEST_VERSION, VERSION = 0.6999, 0.9


@dataclass(frozen=True)
class Translation:
    """A DSSTNE document in this project's words.

    network: plain values of a network document. training: what belongs in a training document, "shuffle" and
    "schedule".
    notes: sentences on what was left out, or is not what it seems.
    """

    network: dict[str, Any]
    training: dict[str, Any]
    notes: tuple[str, ...]


def is_dsstne(values: object) -> bool:
    """Whether plain values are a DSSTNE network: some layer has the key DataSet, in any case, and none has
    "field".
    """
    if not isinstance(values, dict):
        return False
    layers = next(
        (value for key, value in values.items() if isinstance(key, str) and key.lower() == "layers"), None
    )
    objects = [one for one in (layers if isinstance(layers, list) else [layers]) if isinstance(one, dict)]
    keys = [{str(key).lower() for key in one} for one in objects]
    return any("dataset" in found for found in keys) and not any("field" in found for found in keys)


def without_comments(text: str) -> str:
    """JSON text without its // and /* */ comments, every line where it was."""
    return _TEXT_OR_COMMENT.sub(
        lambda found: found[0] if found[0][0] == '"' else re.sub(r"[^\n]", " ", found[0]), text
    )


def translation(values: dict[str, Any], where: str = "network", dialect: Dialect = "dsstne") -> Translation:
    """A DSSTNE network in this project's words.

    dialect: dsstne does what DSSTNE's code does; widenet takes its names by what they say: activations,
    losses and initializers of their mathematics. Raises DocumentError, with the path of what DSSTNE would not
    take either, or this project cannot do.
    """
    found = Settings(values, where, _KEYS)
    if found.number("Version", VERSION) < OLDEST_VERSION:
        raise found.wrong("Version", "must be at least 0.7")
    found.choice("Kind", {"FeedForward": "", "AutoEncoder": ""}, "FeedForward")
    notes = ["WeightsData is never read, in DSSTNE as here: left out."] if "WeightsData" in found else []
    penalty = found.within("SparsenessPenalty", ("p", "beta"))
    normalization = found.merged(("k", "n", "alpha", "beta"), "LRN", "LocalResponseNormalization")
    found.within("Maxout", ("k",)).number("k", 2)
    whole = Whole(
        dialect=dialect,
        slope=found.number(found.spelled("RELUSlope", "Slope"), 1.0 if dialect == "dsstne" else 0.01),
        elu_alpha=found.number("ELUAlpha", 1.0),
        selu_lambda=found.number("SELULambda", 1.050701),
        denoising=found.within("Denoising", ("p",)).number("p", 0, 0, 1),
        sparseness=(penalty.number("p", 0, 0, 1), penalty.number("beta", 0)),
        lrn={
            key: normalization.number(key, usual)
            for key, usual in (("k", 2), ("alpha", 1e-4), ("beta", 0.75))
        }
        | {"n": int(normalization.number("n", 5, 1))},
        outputs=_outputs(found, dialect, notes),
        notes=notes,
    )
    given = found.raw("Layers")
    layers = given if isinstance(given, list) else [given]
    if given is None or not layers:
        raise found.wrong("Layers", "must be a list of layers")
    at = f"{where}: Layers"
    spoken = [
        said
        for index, one in enumerate(layers)
        for said in layer(one, index, len(layers), f"{at}[{index}]", whole)
    ]
    spoken = rewired(spoken, whole.notes, at)
    _share_of_parts(spoken)
    _add_channels(spoken)
    network = {"name": found.text("Name"), "layers": spoken}
    if dialect == "dsstne":
        network = with_settings(network)
    return Translation(network, _training(found), tuple(whole.notes))


def _share_of_parts(layers: list[dict[str, Any]]) -> None:
    """Let layers that share the weights of an output in two parts share those of the part that has them."""
    parts = {one["name"]: one["source"] for one in layers if one.get("weightless")}
    parts = {name: source[0] if isinstance(source, list) else source for name, source in parts.items()}
    for one in layers:
        shared = one.get("weights", [])
        for each in shared if isinstance(shared, list) else [shared]:
            if each.get("layer") in parts:
                each["layer"] = parts[each["layer"]]


def _add_channels(layers: list[dict[str, Any]]) -> None:
    """Give one channel to inputs whose sides are all axes of the kernel that moves over them; else the
    last side counts the channels.
    """
    for one in (one for one in layers if "shape" in one):
        takers = [
            len(other["kernel"])
            for other, before in zip(layers[1:], layers, strict=False)
            if one["name"] in _sources(other, before)
        ]
        if (takers or [2])[0] == len(one["shape"]):
            one["shape"] = [1, *one["shape"]]


def _sources(layer: dict[str, Any], before: dict[str, Any]) -> list[str]:
    """The sources of a layer that has a kernel; none of others."""
    named = layer.get("source", before["name"]) if "kernel" in layer else []
    return named if isinstance(named, list) else [named]


def _outputs(found: Settings, dialect: Dialect, notes: list[str]) -> dict[str, Any]:
    """What every output has of the network: its loss."""
    kind = found.choice("ErrorFunction", _LOSSES, "CrossEntropy")
    spoken: dict[str, Any] = {"loss": kind}
    margins = found.merged(_MARGINS, "ScaledMarginalCrossEntropy", "DataScaledMarginalCrossEntropy")
    if kind.endswith("scaled_marginal_cross_entropy"):
        usual = {"oneTarget": 0.9, "zeroTarget": 0.1, "oneScale": 1.0, "zeroScale": 1.0}
        numbers = {
            key: margins.number(key, usual[key], 0, 1 if key.endswith("Target") else None) for key in _MARGINS
        }
        words = {
            "oneTarget": "one_target",
            "zeroTarget": "zero_target",
            "oneScale": "one_scale",
            "zeroScale": "zero_scale",
        }
        spoken["loss"] = {"kind": kind, **{words[key]: value for key, value in numbers.items()}}
    if kind in _WITHOUT_VALUES and dialect == "dsstne":
        spoken["values"] = "ignore"
    boost = found.within("DeltaBoost", ("one", "zero"))
    factors = {"target": boost.number("one", 1, 0), "other": boost.number("zero", 1, 0)}
    if set(factors.values()) != {1.0}:
        if kind in _BOOSTED:
            spoken["delta_boost"] = factors
        else:
            notes.append(
                f"DeltaBoost has no effect under {found.text('ErrorFunction')}, in DSSTNE as here: left out."
            )
    return spoken


def _training(found: Settings) -> dict[str, Any]:
    spoken: dict[str, Any] = {"shuffle": found.switch("ShuffleIndices", True)}
    decay = found.number("Decay", 0, 0)
    return spoken | ({"schedule": {"kind": "inverse", "decay": decay}} if decay else {})
