"""Translation of the layers of a DSSTNE document."""

from dataclasses import dataclass, field
from math import prod
from typing import Any

from widenet.dsstne.spec.settings import Settings

_COMMON_KEYS = ("Kind", "Type", "Name", "N", "Sparse", "pDropout")
_SOURCED_KEYS = (*_COMMON_KEYS, "Source", "Kernel", "KernelStride")
_WEIGHT_KEYS = (
    "Skip",
    "Activation",
    "RELUSlope",
    "Slope",
    "ELUAlpha",
    "SELULambda",
    "WeightNorm",
    "DeltaNorm",
    "WeightInit",
    "SharedWeights",
)
KEYS = {
    "input": (*_COMMON_KEYS, "DataSet"),
    "hidden": (*_SOURCED_KEYS, *_WEIGHT_KEYS, "BatchNormalization", "SparsenessPenalty", "Function"),
    "output": (*_SOURCED_KEYS, *_WEIGHT_KEYS, "DataSet", "Function"),
}
"""Keys that DSSTNE accepts in a layer, by its kind."""

KINDS = {"Input": "input", "Hidden": "hidden", "Output": "output", "Target": "target"}
TYPES = {"FullyConnected": "full", "Convolutional": "convolution", "Pooling": "pooling"}
POOLINGS = {
    "Max": "max",
    "Average": "average",
    "Maxout": "maxout",
    "DotProduct": "dot_product",
    "Cosine": "cosine",
    "LRN": "lrn",
    "LocalResponseNormalization": "lrn",
}
ACTIVATIONS = {
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
    "Relu": "relu",
    "RectifiedLinear": "relu",
    "Linear": "linear",
    # DSSTNE has these names, and computes them as linear.
    **dict.fromkeys(("SoftPlus", "SoftSign", "RELUMax", "LinearMax"), "linear"),
    "SoftMax": "softmax",
    "ELU": "elu",
    "ExponentialLinear": "elu",
    "LRelu": "leaky_relu",
    "LeakyRectifiedLinear": "leaky_relu",
    "SELU": "selu",
    "ScaledExponentialLinear": "selu",
}
INITIALIZERS: dict[str, tuple[dict[str, Any], str, float]] = {
    "Xavier": ({"kind": "xavier"}, "scale", 0.5),
    "CaffeXavier": ({"kind": "caffe_xavier"}, "scale", 1.0),
    "Gaussian": ({"kind": "gaussian"}, "deviation", 1.0),
    "Uniform": ({"kind": "uniform"}, "limit", 1.0),
    "UnitBall": ({"kind": "uniform", "low": 0.0}, "limit", 1.0),
    "Constant": ({"kind": "constant"}, "value", -1.0),
    "SELU": ({"kind": "reciprocal"}, "scale", 1.0),
}
"""What DSSTNE's code draws from, which differs from some names of its schemes; the setting that Scale gives,
and its factor. In the order of the schemes' codes.
"""


@dataclass
class Whole:
    """Settings of the whole network that layers use, and notes on what differs from DSSTNE."""

    slope: float
    elu_alpha: float
    selu_lambda: float
    denoising: float
    sparseness: tuple[float, float]
    lrn: dict[str, Any]
    outputs: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def layers_of(values: Any, index: int, count: int, place: str, whole: Whole) -> list[dict[str, Any]]:
    """Translate a layer.

    An output that pools, convolves or has a skip becomes two layers: one that computes its units, and a
    weightless output.

    Args:
        values: Plain values of the layer.
        index: Position of the layer.
        count: Number of layers.
        place: Beginning of error messages.
        whole: Settings of the network; receives notes.
    """
    every = tuple(dict.fromkeys(key for keys in KEYS.values() for key in keys))
    first = Settings(values, place, every)
    default = "Input" if index == 0 else "Output" if index == count - 1 else "Hidden"
    kind = first.choice("Kind", KINDS, default)
    first.require(kind != "target", "Kind", "must be Input, Hidden or Output; DSSTNE ignores target layers")
    form = first.choice("Type", TYPES, "FullyConnected")
    settings = Settings(values, place, KEYS[kind])
    translated: dict[str, Any] = {"name": settings.text("Name", f"{kind.capitalize()}{index}")}
    if kind == "input":
        return [translated | _input(settings, translated["name"], whole)]
    sources = settings.names("Source")
    if sources:
        translated["source"] = sources if len(sources) > 1 else sources[0]
    if kind == "output" and form != "pooling" and _dropout(settings):
        whole.notes.append(
            f"{settings.place}.pDropout belongs to an output; DSSTNE drops its units before the"
            " loss, and widenet does not."
        )
    if kind == "output" and (form != "full" or settings.names("Skip")):
        return _split_output(settings, form, translated, whole)
    if form == "pooling":
        return [translated | _pooling(settings, whole)]
    if form == "convolution":
        return [translated | _convolution(settings) | _hidden(settings, whole) | _sparseness(settings, whole)]
    units = _units(settings)
    if kind == "output":
        return [translated | _output(settings, translated["name"], units, whole)]
    settings.require(units != "auto", "N", "of a hidden layer must be a number")
    return [
        translated
        | {"units": units}
        | _normalized(settings)
        | _hidden(settings, whole)
        | _sparseness(settings, whole)
    ]


def _input(settings: Settings, name: str, whole: Whole) -> dict[str, Any]:
    translated: dict[str, Any] = {
        "kind": "input",
        "field": settings.text("DataSet") or name,
        "units": _units(settings),
    }
    sizes = [] if translated["units"] == "auto" else settings.sizes("N", 4)
    if len(sizes) > 1:
        translated["shape"] = sizes[::-1]
    sparse, dropout = settings.switch("Sparse", False), _dropout(settings)
    if sparse and whole.denoising:
        translated |= {"denoise": whole.denoising, "denoise_rescale": True}
    if dropout and not sparse:
        translated["dropout"] = dropout
    return translated


def _output(settings: Settings, name: str, units: int | str, whole: Whole) -> dict[str, Any]:
    return _output_settings(settings, name, units, _activation(settings, whole), whole) | _weight_settings(
        settings
    )


def _output_settings(
    settings: Settings, name: str, units: int | str, activation: Any, whole: Whole
) -> dict[str, Any]:
    """Return the settings of an output for its targets."""
    translated = {
        "name": name,
        "kind": "output",
        "field": settings.text("DataSet") or name,
        "units": units,
        "activation": activation,
    }
    translated |= whole.outputs
    if activation == "softmax":
        translated.pop("delta_boost", None)
    return translated


def _split_output(
    settings: Settings, form: str, translated: dict[str, Any], whole: Whole
) -> list[dict[str, Any]]:
    """Translate an output to a linear layer that computes its units, and a weightless output.

    DSSTNE computes no activation after a pooling.
    """
    name, activation = translated["name"], "linear" if form == "pooling" else _activation(settings, whole)
    units, own = _units(settings), dict[str, float]()
    if form == "pooling":
        before, own = (
            {"name": f"{name} pooled"} | _pooling(settings, whole),
            _limit(settings, "DeltaNorm", "delta_norm"),
        )
    elif form == "convolution":
        before = (
            {"name": f"{name} convolved"}
            | _convolution(settings, max_sides=4)
            | {"padding": "valid"}
            | _linear(settings)
        )
        units = units if len(settings.sizes("N", 4)) > 1 else "auto"
    else:
        settings.require(units != "auto", "N", "of an output with Skip must be a number")
        before = {"name": f"{name} summed", "units": units} | _linear(settings)
    weightless = {"source": before["name"], "bias": False, "weightless": True}
    return [
        translated | before,
        _output_settings(settings, name, units, activation, whole) | own | weightless,
    ]


def _linear(settings: Settings) -> dict[str, Any]:
    """Return activation, weights and skip of the linear layer of a split output."""
    return {"activation": "linear"} | _weight_settings(settings) | _skip(settings)


def _hidden(settings: Settings, whole: Whole) -> dict[str, Any]:
    """Return the settings that fully connected hidden layers and convolutions share."""
    translated = {"activation": _activation(settings, whole)} | _weight_settings(settings) | _skip(settings)
    if _dropout(settings):
        translated["dropout"] = _dropout(settings)
    return translated


def _sparseness(settings: Settings, whole: Whole) -> dict[str, Any]:
    own = settings.within("SparsenessPenalty", ("p", "beta"))
    p, beta = own.number("p", 0, 0, 1) or whole.sparseness[0], own.number("beta", 0) or whole.sparseness[1]
    if whole.sparseness[1] > 0 and settings.switch("Sparse", False):
        return {"sparseness": {"target": p, "weight": beta}}
    return {}


def _convolution(settings: Settings, max_sides: int = 1) -> dict[str, Any]:
    """Return filters and windows of a convolution.

    The last number in N counts the filters. `max_sides` limits the numbers in N: only outputs list all sides.
    """
    settings.require(
        not settings.number("WeightNorm", 0, 0), "WeightNorm", "must be 0 in a convolutional layer"
    )
    sides, window = settings.sizes("N", max_sides) or [1], _window(settings)
    settings.require(
        len(sides) <= 1 or len(sides) == len(window["kernel"]) + 1,
        "N",
        f"must have one number for each axis of Kernel, {len(window['kernel'])}, and the number of"
        " filters last",
    )
    return {"kind": "convolution", "filters": sides[-1]} | window | _normalized(settings)


def _pooling(settings: Settings, whole: Whole) -> dict[str, Any]:
    settings.require(
        "Function" in settings, "Function", f"must be one of {', '.join(POOLINGS)} in a pooling layer"
    )
    function = settings.choice("Function", POOLINGS, "")
    translated = {
        "kind": "pooling",
        "function": {"kind": "lrn", **whole.lrn} if function == "lrn" else function,
    } | _skip(settings)
    return translated | (_window(settings) if function in ("max", "average") else {})


def _window(settings: Settings) -> dict[str, Any]:
    """Return kernel and stride, slowest axis first; DSSTNE lists the fastest first."""
    kernel = settings.sizes("Kernel", 3) or [1]
    stride = settings.sizes("KernelStride", 3) or [1]
    settings.require(
        len(stride) <= len(kernel), "KernelStride", f"must have one number an axis of Kernel, {len(kernel)}"
    )
    strides = [*stride, *[1] * (len(kernel) - len(stride))]
    return {"kernel": kernel[::-1], "stride": strides[::-1], "padding": "dsstne"}


def _normalized(settings: Settings) -> dict[str, Any]:
    """Return the batch normalization; a momentum of 1 keeps the last batch's statistics, as in DSSTNE."""
    return {"batch_normalization": {"momentum": 1.0}} if settings.switch("BatchNormalization", False) else {}


def _skip(settings: Settings) -> dict[str, Any]:
    skip = settings.names("Skip")
    return {"skip": skip if len(skip) > 1 else skip[0]} if skip else {}


def _units(settings: Settings) -> int | str:
    """Return the number of units, or "auto" for the width of the data set.

    Without N, inputs and outputs get "auto", where DSSTNE takes 1 and then refuses the data.
    """
    number = settings.raw("N")
    if isinstance(number, str) and number.lower() == "auto":
        return "auto"
    if number is None:
        return "auto" if "DataSet" in settings else 1
    return prod(settings.sizes("N", 4))


def _dropout(settings: Settings) -> float:
    p = settings.number("pDropout", 0, 0)
    settings.require(p < 1, "pDropout", "must be less than 1")
    return p


def _activation(settings: Settings, whole: Whole) -> Any:
    name = settings.choice("Activation", ACTIVATIONS, "Sigmoid")
    if name == "leaky_relu":
        slope = settings.number("RELUSlope", whole.slope)
        return {"kind": name, "slope": slope}
    if name in ("elu", "selu"):
        scale = settings.number("SELULambda", whole.selu_lambda) if name == "selu" else 1.0
        return {"kind": "elu", "alpha": settings.number("ELUAlpha", whole.elu_alpha), "scale": scale}
    return name


def _weight_settings(settings: Settings) -> dict[str, Any]:
    """Return the settings of weights: initializer, largest lengths and sharing."""
    translated: dict[str, Any] = {}
    initial = settings.within("WeightInit", ("Scheme", "Scale", "Bias"))
    scheme = initial.choice("Scheme", dict(zip(INITIALIZERS, INITIALIZERS, strict=True)), "Xavier")
    drawn, setting, factor = INITIALIZERS[scheme]
    translated["initializer"] = drawn | {setting: factor * initial.number("Scale", 1.0)}
    if initial.number("Bias", 0):
        translated["bias_start"] = initial.number("Bias", 0)
    translated |= _limit(settings, "WeightNorm", "weight_norm") | _limit(settings, "DeltaNorm", "delta_norm")
    shared = settings.raw("SharedWeights")
    if isinstance(shared, list) and len(shared) > 1:
        translated["weights"] = [
            _share(each, f"{settings.place}.SharedWeights[{number}]") for number, each in enumerate(shared)
        ]
    elif shared:
        translated["weights"] = _share(
            shared[0] if isinstance(shared, list) else shared, f"{settings.place}.SharedWeights"
        )
    return translated


def _limit(settings: Settings, key: str, name: str) -> dict[str, float]:
    """Return a limit of lengths under widenet's name; DSSTNE's 0 means no limit."""
    length = settings.number(key, 0, 0)
    return {name: length} if length else {}


def _share(values: Any, place: str) -> dict[str, Any]:
    settings = Settings(values, place, ("InputLayer", "SourceInputLayer", "SourceOutputLayer", "Transposed"))
    named = {"layer": "SourceOutputLayer", "layer_source": "SourceInputLayer", "source": "InputLayer"}
    return {word: settings.text(key) for word, key in named.items() if key in settings} | {
        "transposed": settings.switch("Transposed", False)
    }
