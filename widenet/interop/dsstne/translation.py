"""DSSTNE's network of fully connected layers in this project's words."""

from math import prod
from typing import Any

from widenet.errors import DataError

_ACTIVATIONS = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "RectifiedLinear": "relu",
    "Linear": "linear",
    "SoftPlus": "linear",
    "SoftSign": "linear",
    "SoftMax": "softmax",
    "RELUMax": "linear",
    "LinearMax": "linear",
}
_LOSSES = {
    "L1": "l1",
    "L2": "l2",
    "CrossEntropy": "cross_entropy",
    "ScaledMarginalCrossEntropy": "scaled_marginal_cross_entropy",
    "DataScaledMarginalCrossEntropy": "data_scaled_marginal_cross_entropy",
    "Hinge": "hinge",
    "L2Hinge": "l2_hinge",
}


def translated(network: dict[str, Any], place: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The network document and what belongs in the training document; raises DataError naming every layer that cannot be said."""
    others = [f"{each['Name']} ({each['Type']})" for each in network["Layers"] if each["Type"] != "FullyConnected"]
    others += [f"{each['Name']} (BatchNormalization)" for each in network["Layers"] if each.get("BatchNormalization")]
    others += [f"{each['Name']} (Skip)" for each in network["Layers"] if each.get("Skip")]
    if others:
        raise DataError(f"{place}: layers must be fully connected, without batch normalization and Skip; got {', '.join(others)}.")
    return {"layers": [_layer(network, each, place) for each in network["Layers"]]}, {"shuffle": network["ShuffleIndices"]}


def _layer(network: dict[str, Any], layer: dict[str, Any], place: str) -> dict[str, Any]:
    spoken: dict[str, Any] = {"name": layer["Name"], "kind": layer["Kind"].lower(), "units": prod(layer["N"])}
    if layer["Kind"] != "Hidden":
        spoken["field"] = layer["DataSet"] or layer["Name"]
    if layer["Kind"] == "Input":
        denoise = network.get("Denoising", {}).get("p", 0.0)
        if layer["Sparse"] and denoise:
            spoken |= {"denoise": denoise, "denoise_rescale": True}
        return spoken | ({} if layer["Sparse"] else {"dropout": layer["pDropout"]})
    spoken |= {"source": layer["Source"], "activation": _activation(layer, place)}
    if share := layer.get("SharedWeights"):
        spoken["weights"] = {"layer": share["SourceOutputLayer"], "layer_source": share["SourceInputLayer"], "source": share["InputLayer"]}
        spoken["weights"]["transposed"] = share["Transposed"]
    if layer["Kind"] == "Output":
        margins = {"one_target": "oneTarget", "zero_target": "zeroTarget", "one_scale": "oneScale", "zero_scale": "zeroScale"}
        loss: dict[str, Any] = {"kind": _LOSSES[network["ErrorFunction"]]}
        if "scaled" in loss["kind"]:
            loss |= {name: network["ScaledMarginalCrossEntropy"][key] for name, key in margins.items()}
        return spoken | {"loss": loss}
    return spoken | {"dropout": layer["pDropout"]}


def _activation(layer: dict[str, Any], place: str) -> Any:
    name = layer["Activation"]
    if name == "LeakyRectifiedLinear" and layer["RELUSlope"] <= 1:
        return {"kind": "leaky_relu", "slope": layer["RELUSlope"]} if layer["RELUSlope"] < 1 else "linear"
    if name == "ExponentialLinear":
        return {"kind": "elu", "alpha": layer["ELUAlpha"]}
    if name not in _ACTIVATIONS:
        raise DataError(f"{place}: the activation of layer {layer['Name']!r} must be one that widenet has; got {name}.")
    return _ACTIVATIONS[name]
