"""The settings of a network document that reproduce DSSTNE's arithmetic."""

from typing import Any

from widenet.spec.activations import RESTING

OPTIMIZER = {"floor": 1e-9, "step_offset": 1}
"""DSSTNE's smallest argument of a square root, and its Adam correction, which starts at t = 2."""


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
