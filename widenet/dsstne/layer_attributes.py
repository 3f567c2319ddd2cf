"""Layers of a network document as DSSTNE's model files describe them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from widenet.dsstne.model_file import (
    ACTIVATIONS,
    BATCH_NORMALIZATION,
    DENOISING,
    FUNCTIONS,
    LAYER_KINDS,
    SCHEMES,
    SIDES,
    SPARSE,
    TYPES,
)
from widenet.plan.windows import Shape, Windows
from widenet.spec.layers import HiddenLayer, InputLayer, Layer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.pooling import WINDOWED
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer

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
"""The activations that DSSTNE computes as they are defined."""
_FUNCTIONS = {
    "max": "Max",
    "average": "Average",
    "lrn": "LRN",
    "maxout": "Maxout",
    "dot_product": "DotProduct",
    "cosine": "Cosine",
}
_SELU = {"ELUAlpha": 1.6732632423543772, "SELULambda": 1.0507009873554805}
_MOST_SOURCES = 4
_OF_OUTPUT = ("name", "kind", "dataSet", "activation", "RELUSlope", "ELUAlpha", "SELULambda")
"""What an output says of itself where it takes the units of another layer, with which it is one layer
there.
"""
_EPSILON = 1e-5
"""What cuDNN adds to a variance."""
_USUAL_FLOATS = {
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
_USUAL = {"scale": "none", "popularity_damping": 0.0, "cosine": None}
"""Settings of layers that change a prediction, and the value under which DSSTNE predicts alike."""


def problems_of(spec: NetworkSpec, layer: Layer) -> list[str]:
    """What DSSTNE would compute otherwise of a layer, or not at all."""
    name = f'of layer "{layer.name}"'
    found = [f'"{key}" {name}' for key, usual in _USUAL.items() if getattr(layer, key, usual) != usual]
    if isinstance(layer, InputLayer):
        return [*found, *[f'"values": "ignore" {name}'] * (layer.values == "ignore")]
    if len(spec.sources(layer)) > _MOST_SOURCES and not isinstance(layer, PoolingLayer):
        found.append(f"more than {_MOST_SOURCES} sources {name}")
    if not spec.sources(layer):
        found.append(f'an empty "source" {name}')
    if isinstance(layer, OutputLayer) and layer.loss.kind not in LOSSES:
        found.append(f'"loss": "{layer.loss.kind}" {name}')
    if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer):
        if layer.activation.kind not in _ACTIVATIONS:
            found.append(f'"activation": "{layer.activation.kind}" {name}')
    elif not isinstance(layer, PoolingLayer):
        found.append(f'"kind": "{layer.kind}" {name}')
    normalization = getattr(layer, "batch_normalization", None)
    if normalization is not None and normalization.epsilon != _EPSILON:
        found.append(f'an "epsilon" other than {_EPSILON:g} {name}')
    return found


def taken_by(spec: NetworkSpec) -> dict[str, Layer]:
    """By weightless output the layer whose units it takes, where DSSTNE has both as one: nobody else takes
    them, and they are bare.
    """
    found: dict[str, Layer] = {}
    for output in (output for output in spec.outputs if output.weightless):
        source = spec.layer(spec.sources(output)[0])
        others = (other for other in spec.layers if not isinstance(other, InputLayer))
        uses = sum(
            source.name in (*spec.sources(other), *(getattr(other, "skip", None) or ())) for other in others
        )
        if uses == 1 and _is_bare(source, output):
            found[output.name] = source
    return found


def _is_bare(source: Layer, output: OutputLayer) -> bool:
    """Whether a layer gives sums or what it pools, to which DSSTNE's output can apply the activation."""
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
    """Whether a layer looks at channels and places of its sources, as convolutions and most functions of
    pooling do.
    """
    return isinstance(layer, ConvolutionLayer) or (
        isinstance(layer, PoolingLayer) and layer.function.kind in (*WINDOWED, "lrn")
    )


def padding_problems(layer: Layer, windows: Windows) -> list[str]:
    """What cuDNN would compute otherwise of a layer's windows: it pads both ends of an axis alike, and
    goes as far as that lets it.
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


def attributes_of_both(
    spec: NetworkSpec, output: OutputLayer, taken: Layer, shape: Shape, windows: Windows | None = None
) -> dict[str, Any]:
    """The attributes of an output that is one layer with what it takes, by name, with the smaller of their
    limits.

    shape, windows: of the latter.
    """
    own = attributes_of(spec, output, shape)
    found = attributes_of(spec, taken, shape, windows=windows) | {name: own[name] for name in _OF_OUTPUT}
    limits = [limit for limit in (own["deltaNorm"], found["deltaNorm"]) if limit]  # 0 is none
    return found | ({"deltaNorm": min(limits)} if limits else {})


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
        shape: Channels first, then axes, slowest first; (units,) of a flat layer.
        windows: How a convolution or a pooling moves.
        is_sparse: Whether an input's data are sparse.
        has_places: Whether windows move over an input; DSSTNE gives axes to Convolutional ones.
    """
    whole = _usual_numbers([*shape[:0:-1], shape[0]] if len(shape) > 1 or not has_places else [*shape, 1])
    floats = _USUAL_FLOATS | {"pDropout": getattr(layer, "dropout", 0.0)}
    texts = {
        "name": layer.name,
        "dataSet": layer.field if isinstance(layer, InputLayer | OutputLayer) else "",
    }
    if isinstance(layer, InputLayer):
        whole["type"] = TYPES.index("Convolutional" if has_places else "FullyConnected")
        whole["attributes"] = SPARSE * is_sparse | DENOISING * (layer.denoise > 0)
    else:
        for name, others in (("source", spec.sources(layer)), ("skip", getattr(layer, "skip", None) or ())):
            texts |= {f"{name}{place}": other for place, other in enumerate(others)}
            whole[f"{name}s"] = len(others)
    whole["kind"] = _kind(layer)
    if isinstance(layer, ConvolutionLayer | PoolingLayer):
        whole |= _window(layer, windows)
    if isinstance(layer, HiddenLayer | ConvolutionLayer | OutputLayer):
        _add_learnt(layer, whole, floats)
    return (
        texts
        | {name: np.uint32(value) for name, value in whole.items()}
        | {name: np.float32(value) for name, value in floats.items()}
    )


def _usual_numbers(sides: Sequence[int]) -> dict[str, int]:
    """The whole numbers of a layer without windows, sources and weights.

    Args:
        sides: Axes, fastest first, and channels.
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
    """Type, function, kernel, strides and padding, x first."""
    is_pooling = isinstance(layer, PoolingLayer)
    found = {"type": TYPES.index("Pooling" if is_pooling else "Convolutional")}
    if isinstance(layer, PoolingLayer):
        found["poolingfunction"] = FUNCTIONS.index(_FUNCTIONS[layer.function.kind])
    if windows is not None:
        found["kernelDimensions"] = len(windows.axes)
        for name, axis in zip("XYZ", windows.axes[::-1], strict=False):
            found |= {
                f"kernel{name}": axis.kernel,
                f"kernelStride{name}": axis.stride,
                f"kernelPadding{name}": axis.before,
            }
    return found


def _add_learnt(
    layer: HiddenLayer | ConvolutionLayer | OutputLayer, whole: dict[str, int], floats: dict[str, float]
) -> None:
    """What belongs to weights: activation, first weights, limits, penalties."""
    activation = layer.activation
    scheme, scale = _scheme(layer.initializer)
    name = (
        "ScaledExponentialLinear" if getattr(activation, "scale", 1.0) != 1 else _ACTIVATIONS[activation.kind]
    )
    whole |= {"activation": ACTIVATIONS.index(name), "weightInit": SCHEMES.index(scheme)}
    floats |= {"weightInitScale": scale, "biasInit": layer.bias_start, "weightNorm": layer.weight_norm or 0.0}
    floats |= {"deltaNorm": getattr(layer, "delta_norm", None) or 0.0}
    floats |= {"RELUSlope": getattr(activation, "slope", 1.0), "ELUAlpha": getattr(activation, "alpha", 1.0)}
    floats |= {"SELULambda": getattr(activation, "scale", 1.050701)} | (
        _SELU if activation.kind == "selu" else {}
    )
    if getattr(layer, "batch_normalization", None) is not None:
        whole["attributes"] |= BATCH_NORMALIZATION
    sparseness = getattr(layer, "sparseness", None)
    if sparseness is not None:
        whole["attributes"] |= SPARSE
        floats |= {"sparsenessPenalty_p": sparseness.target, "sparsenessPenalty_beta": sparseness.weight}


def _scheme(initializer: Any) -> tuple[str, float]:
    """DSSTNE's scheme and scale; its own Xavier where it has none like it, for the weights are there."""
    match initializer.kind:
        case "xavier":
            return "Xavier", 2 * initializer.scale
        case "caffe_xavier":
            return "CaffeXavier", initializer.scale
        case "gaussian":
            return "Gaussian", initializer.deviation
        case "uniform" if initializer.low is None:
            return "Uniform", initializer.limit
        case "uniform" if initializer.low == 0:
            return "UnitBall", initializer.limit
        case "constant":
            return "Constant", -initializer.value
        case "reciprocal":
            return "SELU", initializer.scale
    return "Xavier", 1.0
