"""The attributes of layers in DSSTNE's model files, from those of a network document."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from widenet.dsstne.model_file import (
    ACTIVATIONS,
    BATCH_NORMALIZATION,
    DENOISING,
    FUNCTIONS,
    LAYER_KINDS,
    SIDES,
    SPARSE,
    TYPES,
)
from widenet.dsstne.spec.layers import INITIALIZERS
from widenet.plan.layout import Shape, Windows
from widenet.spec.activations import WINDOWED
from widenet.spec.layers import ConvolutionLayer, HiddenLayer, InputLayer, Layer, OutputLayer, PoolingLayer
from widenet.spec.network import NetworkSpec

LOSSES = {
    "l1": "L1",
    "l2": "L2",
    "cross_entropy": "CrossEntropy",
    "scaled_marginal_cross_entropy": "ScaledMarginalCrossEntropy",
    "data_scaled_marginal_cross_entropy": "DataScaledMarginalCrossEntropy",
    "hinge": "Hinge",
    "l2_hinge": "L2Hinge",
}
_ACTIVATIONS = {
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "relu": "RectifiedLinear",
    "linear": "Linear",
    "softmax": "SoftMax",
    "elu": "ExponentialLinear",
    "selu": "ScaledExponentialLinear",
    "leaky_relu": "LeakyRectifiedLinear",
}
"""The activations that DSSTNE computes by their usual definition."""
_FUNCTIONS = {
    "max": "Max",
    "average": "Average",
    "lrn": "LRN",
    "maxout": "Maxout",
    "dot_product": "DotProduct",
    "cosine": "Cosine",
}
_SELU = {"ELUAlpha": 1.6732632423543772, "SELULambda": 1.0507009873554805}
_MAX_SOURCES = 4
_OUTPUT_ATTRIBUTES = ("name", "kind", "dataSet", "activation", "RELUSlope", "ELUAlpha", "SELULambda")
"""Attributes that an output keeps when it is merged with the layer that computes its units."""
_EPSILON = 1e-5
"""The number that cuDNN adds to a variance."""
_DEFAULT_FLOATS = {
    "pDropout": 0.0,
    "biasInit": 0.0,
    "weightNorm": 0.0,
    "deltaNorm": 0.0,
    "sparsenessPenalty_p": 0.0,
    "sparsenessPenalty_beta": 0.0,
    "weightInitScale": 1.0,
    "RELUSlope": 1.0,
    "ELUAlpha": 1.0,
    "SELULambda": 1.050701,
}
_NEUTRAL = {"scale": "none", "popularity_damping": 0.0, "cosine": None}
"""Settings of layers that change a prediction, with the value under which DSSTNE predicts the same."""


def problems_of(spec: NetworkSpec, layer: Layer) -> list[str]:
    """Return the settings of a layer that DSSTNE would compute differently, or not at all."""
    name = f'of layer "{layer.name}"'
    problems = [
        f'"{key}" {name}' for key, neutral in _NEUTRAL.items() if getattr(layer, key, neutral) != neutral
    ]
    if isinstance(layer, InputLayer):
        return [*problems, *[f'"values": "ignore" {name}'] * (layer.values == "ignore")]
    if len(spec.sources(layer)) > _MAX_SOURCES and not isinstance(layer, PoolingLayer):
        problems.append(f"more than {_MAX_SOURCES} sources {name}")
    if not spec.sources(layer):
        problems.append(f'an empty "source" {name}')
    if isinstance(layer, OutputLayer) and layer.loss.kind not in LOSSES:
        problems.append(f'"loss": "{layer.loss.kind}" {name}')
    if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer):
        if layer.activation.kind not in _ACTIVATIONS:
            problems.append(f'"activation": "{layer.activation.kind}" {name}')
    elif not isinstance(layer, PoolingLayer):
        problems.append(f'"kind": "{layer.kind}" {name}')
    normalization = getattr(layer, "batch_normalization", None)
    if normalization is not None and normalization.epsilon != _EPSILON:
        problems.append(f'an "epsilon" other than {_EPSILON:g} {name}')
    return problems


def merged_sources(spec: NetworkSpec) -> dict[str, Layer]:
    """Return the layers that DSSTNE merges with a weightless output, by the output's name.

    DSSTNE has both as one layer if no other layer uses the units, and they have no activation of their own.
    """
    merged: dict[str, Layer] = {}
    for output in (output for output in spec.outputs if output.weightless):
        source = spec.layer(spec.sources(output)[0])
        others = (other for other in spec.layers if not isinstance(other, InputLayer))
        uses = sum(source.name in (*spec.sources(other), *other.skipped) for other in others)
        if uses == 1 and _can_merge(source, output):
            merged[output.name] = source
    return merged


def _can_merge(source: Layer, output: OutputLayer) -> bool:
    """Return whether DSSTNE's output can apply its activation directly to the units of a layer."""
    if isinstance(source, PoolingLayer):
        return bool(output.activation.kind == "linear")
    if not isinstance(source, HiddenLayer | ConvolutionLayer):
        return False
    plain = (
        not source.dropout
        and source.batch_normalization is None
        and getattr(source, "sparseness", None) is None
    )
    return bool(plain and source.activation.kind == "linear")


def is_placed(layer: Layer) -> bool:
    """Return whether a layer reads channels and positions, as convolutions and most poolings do."""
    return isinstance(layer, ConvolutionLayer) or (
        isinstance(layer, PoolingLayer) and layer.function.kind in (*WINDOWED, "lrn")
    )


def padding_problems(layer: Layer, windows: Windows) -> list[str]:
    """Return whether cuDNN would compute a layer's windows differently, as a list of problems.

    cuDNN pads both ends of an axis by the same amount, and places as many windows as fit.
    """
    assert isinstance(layer, ConvolutionLayer | PoolingLayer)
    even = [
        (axis.places + 2 * axis.before - axis.kernel) // axis.stride + 1 == axis.positions
        for axis in windows.axes
    ]
    return (
        []
        if all(even) or layer.padding == "dsstne"
        else [f'"padding" that is not the same on both sides of layer "{layer.name}"']
    )


def merged_attributes(
    spec: NetworkSpec, output: OutputLayer, source: Layer, shape: Shape, windows: Windows | None = None
) -> dict[str, Any]:
    """Return the attributes of an output that is merged with its source, by name.

    The smaller of their two gradient limits counts.

    Args:
        spec: The network.
        output: The weightless output.
        source: The layer whose units it takes.
        shape: Shape of the source.
        windows: Windows of the source, if it is a convolution or a pooling.
    """
    own = attributes_of(spec, output, shape)
    merged = attributes_of(spec, source, shape, windows=windows)
    merged |= {name: own[name] for name in _OUTPUT_ATTRIBUTES}
    limits = [limit for limit in (own["deltaNorm"], merged["deltaNorm"]) if limit]  # 0 means no limit
    return merged | ({"deltaNorm": min(limits)} if limits else {})


def attributes_of(
    spec: NetworkSpec,
    layer: Layer,
    shape: Shape,
    *,
    windows: Windows | None = None,
    is_sparse: bool = False,
    has_places: bool = False,
) -> dict[str, Any]:
    """Return the attributes of a layer, by name.

    Args:
        spec: The network.
        layer: One of its layers.
        shape: Channels first, then axes, slowest first; (units,) for a flat layer.
        windows: Windows of a convolution or a pooling.
        is_sparse: Whether an input's data are sparse.
        has_places: Whether windows move over an input; DSSTNE gives axes only to Convolutional inputs.
    """
    whole = _default_numbers([*shape[:0:-1], shape[0]] if len(shape) > 1 or not has_places else [*shape, 1])
    floats = _DEFAULT_FLOATS | {"pDropout": getattr(layer, "dropout", 0.0)}
    texts = {
        "name": layer.name,
        "dataSet": layer.field if isinstance(layer, InputLayer | OutputLayer) else "",
    }
    if isinstance(layer, InputLayer):
        whole["type"] = TYPES.index("Convolutional" if has_places else "FullyConnected")
        whole["attributes"] = SPARSE * is_sparse | DENOISING * (layer.denoise > 0)
    else:
        for name, others in (("source", spec.sources(layer)), ("skip", layer.skipped)):
            texts |= {f"{name}{place}": other for place, other in enumerate(others)}
            whole[f"{name}s"] = len(others)
    whole["kind"] = _kind(layer)
    if isinstance(layer, ConvolutionLayer | PoolingLayer):
        whole |= _window(layer, windows)
    if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer):
        _add_weight_settings(layer, whole, floats)
    return (
        texts
        | {name: np.uint32(value) for name, value in whole.items()}
        | {name: np.float32(value) for name, value in floats.items()}
    )


def _default_numbers(sides: Sequence[int]) -> dict[str, int]:
    """Return the whole numbers of a layer without windows, sources and weights.

    Args:
        sides: Axes, fastest first, then channels.
    """
    whole = {
        "kind": 0,
        **dict.fromkeys(SIDES, 1),
        "dimensions": len(sides),
        "type": 0,
        "poolingfunction": 0,
        "weightInit": 0,
        "activation": 0,
        "sources": 0,
        "skips": 0,
        "attributes": 0,
        "kernelDimensions": 1,
    }
    whole |= dict(zip(SIDES, sides, strict=False))
    for axis in "XYZ":
        whole |= {f"kernel{axis}": 1, f"kernelStride{axis}": 1, f"kernelPadding{axis}": 0}
    return whole


def _kind(layer: Layer) -> int:
    return LAYER_KINDS.index(
        layer.kind.capitalize() if isinstance(layer, InputLayer | OutputLayer) else "Hidden"
    )


def _window(layer: ConvolutionLayer | PoolingLayer, windows: Windows | None) -> dict[str, int]:
    """Return type, function, kernel, strides and padding, x first."""
    is_pooling = isinstance(layer, PoolingLayer)
    numbers = {"type": TYPES.index("Pooling" if is_pooling else "Convolutional")}
    if isinstance(layer, PoolingLayer):
        numbers["poolingfunction"] = FUNCTIONS.index(_FUNCTIONS[layer.function.kind])
    if windows is not None:
        numbers["kernelDimensions"] = len(windows.axes)
        for name, axis in zip("XYZ", windows.axes[::-1], strict=False):
            numbers |= {
                f"kernel{name}": axis.kernel,
                f"kernelStride{name}": axis.stride,
                f"kernelPadding{name}": axis.before,
            }
    return numbers


def _add_weight_settings(
    layer: HiddenLayer | ConvolutionLayer | OutputLayer, whole: dict[str, int], floats: dict[str, float]
) -> None:
    """Add the settings of a layer with weights: activation, initial weights, limits, penalties."""
    activation = layer.activation
    scheme, scale = _scheme(layer.initializer)
    name = (
        "ScaledExponentialLinear" if getattr(activation, "scale", 1.0) != 1 else _ACTIVATIONS[activation.kind]
    )
    whole |= {"activation": ACTIVATIONS.index(name), "weightInit": list(INITIALIZERS).index(scheme)}
    floats |= {
        "weightInitScale": scale,
        "biasInit": layer.bias_start,
        "weightNorm": getattr(layer, "weight_norm", None) or 0.0,
        "deltaNorm": layer.delta_norm or 0.0,
        "RELUSlope": getattr(activation, "slope", 1.0),
        "ELUAlpha": getattr(activation, "alpha", 1.0),
        "SELULambda": getattr(activation, "scale", 1.050701),
    }
    if activation.kind == "selu":
        floats |= _SELU
    if getattr(layer, "batch_normalization", None) is not None:
        whole["attributes"] |= BATCH_NORMALIZATION
    sparseness = getattr(layer, "sparseness", None)
    if sparseness is not None:
        whole["attributes"] |= SPARSE
        floats |= {"sparsenessPenalty_p": sparseness.target, "sparsenessPenalty_beta": sparseness.weight}


def _scheme(initializer: Any) -> tuple[str, float]:
    """Return DSSTNE's scheme and scale of an initializer.

    Initializers that DSSTNE lacks become Xavier, since the file has trained weights anyway.
    """
    for scheme, (drawn, setting, factor) in INITIALIZERS.items():
        if (initializer.kind, getattr(initializer, "low", None)) == (drawn["kind"], drawn.get("low")):
            return scheme, getattr(initializer, setting) / factor
    return "Xavier", 1.0
