"""The settings of a network document that reproduce DSSTNE's arithmetic."""

from typing import Any

from widenet.errors import DocumentError
from widenet.spec.activations import RESTING
from widenet.spec.mistakes import shown

OPTIMIZER = {"floor": 1e-9, "step_offset": 1}
"""DSSTNE's smallest argument of a square root, and its Adam correction, which starts at t = 2."""
_DIALECTS = ("widenet", "dsstne")


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


def has_dialect(values: object) -> bool:
    """Return whether a document names a dialect, as those of earlier widenet versions do."""
    return isinstance(values, dict) and "dialect" in values


def without_dialect(values: dict[str, Any], where: str) -> dict[str, Any]:
    """Replace "dialect" in a document by settings; raises DocumentError for an unknown dialect."""
    rest = {key: value for key, value in values.items() if key != "dialect"}
    if values["dialect"] not in _DIALECTS:
        raise DocumentError(
            f'{where}: dialect must be "widenet" or "dsstne"; got {shown(values["dialect"])}. Remove it.'
        )
    is_network = isinstance(rest.get("layers"), list)
    return with_settings(rest) if values["dialect"] == "dsstne" and is_network else rest
