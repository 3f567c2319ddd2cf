"""Layers of a DSSTNE document."""

from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

from widenet.dsstne.spec.settings import Settings

Dialect = Literal["widenet", "dsstne"]

_ANY = ("Kind", "Type", "Name", "N", "Sparse", "pDropout")
_BEHIND = (*_ANY, "Source", "Kernel", "KernelStride")
_LEARNT = (
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
    "input": (*_ANY, "DataSet"),
    "hidden": (*_BEHIND, *_LEARNT, "BatchNormalization", "SparsenessPenalty", "Function"),
    "output": (*_BEHIND, *_LEARNT, "DataSet", "Function"),
}
"""What DSSTNE takes of a layer, by its kind."""

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
    "SoftPlus": "softplus",
    "SoftSign": "softsign",
    "SoftMax": "softmax",
    "RELUMax": "relu_max",
    "LinearMax": "linear_max",
    "ELU": "elu",
    "ExponentialLinear": "elu",
    "LRelu": "leaky_relu",
    "LeakyRectifiedLinear": "leaky_relu",
    "SELU": "selu",
    "ScaledExponentialLinear": "selu",
}
_WITHOUT_KERNEL = ("softplus", "softsign", "relu_max", "linear_max")
"""Activations that DSSTNE accepts and computes as linear."""
SCHEMES = {
    "Xavier": "xavier",
    "CaffeXavier": "caffe_xavier",
    "Gaussian": "gaussian",
    "Uniform": "uniform",
    "UnitBall": "unit_ball",
    "Constant": "constant",
    "SELU": "selu",
}


@dataclass
class Whole:
    """What the network as a whole says to its layers. notes: what a person should know, gathered on the
    way.
    """

    dialect: Dialect
    slope: float
    elu_alpha: float
    selu_lambda: float
    denoising: float
    sparseness: tuple[float, float]
    lrn: dict[str, Any]
    outputs: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def layer(values: Any, index: int, count: int, place: str, whole: Whole) -> list[dict[str, Any]]:
    """A layer in this project's words; two of an output that pools, convolves or skips: what gives its units,
    and what is asked for them.

    index: its place among `count`; place: where it stands.
    """
    every = tuple(dict.fromkeys(key for keys in KEYS.values() for key in keys))
    first = Settings(values, place, every)
    usual = "Input" if index == 0 else "Output" if index == count - 1 else "Hidden"
    kind = first.choice("Kind", KINDS, usual)
    if kind == "target":
        raise first.wrong("Kind", "must be Input, Hidden or Output: DSSTNE does nothing with a target layer")
    form = first.choice("Type", TYPES, "FullyConnected")
    found = Settings(values, place, KEYS[kind])
    spoken: dict[str, Any] = {"name": found.text("Name", f"{kind.capitalize()}{index}")}
    if kind == "input":
        return [spoken | _input(found, spoken["name"], whole)]
    sources = found.names("Source")
    if sources:
        spoken["source"] = sources if len(sources) > 1 else sources[0]
    if kind == "output" and form != "pooling" and _dropout(found):
        whole.notes.append(
            f"{found.place}.pDropout is of an output, whose units DSSTNE silences before it compares them:"
            " left out."
        )
    if kind == "output" and (form != "full" or found.names("Skip")):
        return _output_in_two(found, form, spoken, whole)
    if form == "pooling":
        return [spoken | _pooling(found, whole)]
    if form == "convolution":
        return [spoken | _convolution(found) | _hidden(found, whole) | _sparseness(found, whole)]
    units = _units(found)
    if kind == "output":
        return [spoken | _output(found, spoken["name"], units, whole)]
    if units == "auto":
        raise found.wrong("N", "of a hidden layer must be a number")
    return [
        spoken | {"units": units} | _normalized(found) | _hidden(found, whole) | _sparseness(found, whole)
    ]


def _input(found: Settings, name: str, whole: Whole) -> dict[str, Any]:
    spoken: dict[str, Any] = {"kind": "input", "field": found.text("DataSet") or name, "units": _units(found)}
    sizes = [] if spoken["units"] == "auto" else found.sizes("N", 4)
    if len(sizes) > 1:
        spoken["shape"] = sizes[::-1]
    sparse, dropout = found.switch("Sparse", False), _dropout(found)
    if sparse and whole.denoising:
        spoken |= {"denoise": whole.denoising, "denoise_rescale": True}
    if dropout and sparse:
        whole.notes.append(
            f"{found.place}.pDropout has no effect on a sparse input, in DSSTNE as here: left out."
        )
    elif dropout:
        spoken["dropout"] = dropout
    return spoken


def _output(found: Settings, name: str, units: int | str, whole: Whole) -> dict[str, Any]:
    return _asked(found, name, units, _activation(found, whole), whole) | _learnt(found, whole)


def _asked(found: Settings, name: str, units: int | str, activation: Any, whole: Whole) -> dict[str, Any]:
    """What an output says of its targets."""
    spoken = {
        "name": name,
        "kind": "output",
        "field": found.text("DataSet") or name,
        "units": units,
        "activation": activation,
    }
    spoken |= whole.outputs
    if activation == "softmax" and spoken.pop("delta_boost", None):
        whole.notes.append(
            f"DeltaBoost has no effect on {found.place}, a SoftMax, in DSSTNE as here: left out."
        )
    return spoken


def _output_in_two(found: Settings, form: str, spoken: dict[str, Any], whole: Whole) -> list[dict[str, Any]]:
    """A layer that gives bare units, and an output that takes them as they are; of what pools DSSTNE
    computes no activation.
    """
    name, activation = spoken["name"], "linear" if form == "pooling" else _activation(found, whole)
    units, own = _units(found), dict[str, float]()
    if form == "pooling":
        before, own = (
            {"name": f"{name} pooled"} | _pooling(found, whole),
            _limit(found, "DeltaNorm", "delta_norm"),
        )
    elif form == "convolution":
        before = (
            {"name": f"{name} convolved"}
            | _convolution(found, most=4)
            | {"padding": "valid"}
            | _bare(found, whole)
        )
        units = units if len(found.sizes("N", 4)) > 1 else "auto"
    else:
        if units == "auto":
            raise found.wrong("N", "of an output with Skip must be a number")
        before = {"name": f"{name} summed", "units": units} | _bare(found, whole)
    taken = {"source": before["name"], "bias": False, "weightless": True}
    return [spoken | before, _asked(found, name, units, activation, whole) | own | taken]


def _bare(found: Settings, whole: Whole) -> dict[str, Any]:
    """A layer's weights and what it adds, of the part of an output that another takes."""
    return {"activation": "linear"} | _learnt(found, whole) | _skip(found)


def _hidden(found: Settings, whole: Whole) -> dict[str, Any]:
    """What fully connected hidden layers and convolutions share."""
    spoken = {"activation": _activation(found, whole)} | _learnt(found, whole) | _skip(found)
    if _dropout(found):
        spoken["dropout"] = _dropout(found)
    return spoken


def _sparseness(found: Settings, whole: Whole) -> dict[str, Any]:
    own = found.within("SparsenessPenalty", ("p", "beta"))
    p, beta = own.number("p", 0, 0, 1) or whole.sparseness[0], own.number("beta", 0) or whole.sparseness[1]
    if whole.sparseness[1] > 0 and found.switch("Sparse", False):
        return {"sparseness": {"target": p, "weight": beta}}
    if "SparsenessPenalty" in found:
        whole.notes.append(
            f"{found.place}.SparsenessPenalty needs Sparse: true and a penalty of the network to act: left"
            " out."
        )
    return {}


def _convolution(found: Settings, most: int = 1) -> dict[str, Any]:
    """Filters and their windows. most: numbers in N, of which the last counts the filters; an output says
    all its sides there.
    """
    sides, window = found.sizes("N", most) or [1], _window(found)
    if len(sides) > 1 and len(sides) != len(window["kernel"]) + 1:
        raise found.wrong(
            "N",
            f"must have one number for each axis of Kernel, {len(window['kernel'])}, and the number of"
            " filters last",
        )
    return {"kind": "convolution", "filters": sides[-1]} | window | _normalized(found)


def _pooling(found: Settings, whole: Whole) -> dict[str, Any]:
    for key in ("Activation", "pDropout", "WeightNorm", "WeightInit", "SharedWeights"):
        if key in found and (key != "pDropout" or _dropout(found)):
            whole.notes.append(
                f"{found.place}.{key} has no effect on a pooling layer, in DSSTNE as here: left out."
            )
    if "Function" not in found:
        raise found.wrong("Function", f"must be one of {', '.join(POOLINGS)} in a pooling layer")
    function = found.choice("Function", POOLINGS, "")
    spoken = {
        "kind": "pooling",
        "function": {"kind": "lrn", **whole.lrn} if function == "lrn" else function,
    } | _skip(found)
    return spoken | (_window(found) if function in ("max", "average") else {})


def _window(found: Settings) -> dict[str, Any]:
    """Kernel and stride by axis, slowest first, where DSSTNE has the fastest first."""
    kernel = found.sizes("Kernel", 3) or [1]
    stride = found.sizes("KernelStride", 3) or [1]
    if len(stride) > len(kernel):
        raise found.wrong("KernelStride", f"must have one number an axis of Kernel, {len(kernel)}")
    strides = [*stride, *[1] * (len(kernel) - len(stride))]
    return {"kernel": kernel[::-1], "stride": strides[::-1], "padding": "dsstne"}


def _normalized(found: Settings) -> dict[str, Any]:
    """DSSTNE keeps the statistics of the last batch."""
    return {"batch_normalization": {"momentum": 1.0}} if found.switch("BatchNormalization", False) else {}


def _skip(found: Settings) -> dict[str, Any]:
    skip = found.names("Skip")
    return {"skip": skip if len(skip) > 1 else skip[0]} if skip else {}


def _units(found: Settings) -> int | str:
    """The units; of inputs and outputs that say nothing the width of their data set, where DSSTNE takes 1
    and refuses the data.
    """
    given = found.raw("N")
    if isinstance(given, str) and given.lower() == "auto":
        return "auto"
    if given is None:
        return "auto" if "DataSet" in found else 1
    return prod(found.sizes("N", 4))


def _dropout(found: Settings) -> float:
    p = found.number("pDropout", 0, 0)
    if p >= 1:
        raise found.wrong("pDropout", "must be less than 1")
    return p


def _activation(found: Settings, whole: Whole) -> Any:
    name = found.choice("Activation", ACTIVATIONS, "Sigmoid")
    if name in _WITHOUT_KERNEL and whole.dialect == "dsstne":
        whole.notes.append(
            f"{found.place}.Activation {found.text('Activation')} is linear in DSSTNE, and so here."
        )
        return "linear"
    if name == "leaky_relu":
        slope = found.number(found.spelled("RELUSlope", "Slope"), whole.slope)
        return {"kind": name, "slope": slope}
    if name in ("elu", "selu"):
        scale = found.number("SELULambda", whole.selu_lambda) if name == "selu" else 1.0
        return {"kind": "elu", "alpha": found.number("ELUAlpha", whole.elu_alpha), "scale": scale}
    return name


def _learnt(found: Settings, whole: Whole) -> dict[str, Any]:
    """Weights: how they begin, how long they may get, whose they are."""
    spoken: dict[str, Any] = {}
    given = found.within("WeightInit", ("Scheme", "Scale", "Bias"))
    scheme, scale = given.choice("Scheme", SCHEMES, "Xavier"), given.number("Scale", 1.0)
    spoken["initializer"] = _initializer(scheme, scale, whole.dialect)
    if given.number("Bias", 0):
        spoken["bias_start"] = given.number("Bias", 0)
    spoken |= _limit(found, "WeightNorm", "weight_norm") | _limit(found, "DeltaNorm", "delta_norm")
    shared = found.raw("SharedWeights")
    if isinstance(shared, list) and len(shared) > 1:
        spoken["weights"] = [
            _share(each, f"{found.place}.SharedWeights[{number}]") for number, each in enumerate(shared)
        ]
    elif shared:
        spoken["weights"] = _share(
            shared[0] if isinstance(shared, list) else shared, f"{found.place}.SharedWeights"
        )
    return spoken


def _limit(found: Settings, key: str, name: str) -> dict[str, float]:
    """A largest length by its name here; 0 is none."""
    length = found.number(key, 0, 0)
    return {name: length} if length else {}


def _share(given: Any, place: str) -> dict[str, Any]:
    found = Settings(given, place, ("InputLayer", "SourceInputLayer", "SourceOutputLayer", "Transposed"))
    named = {"layer": "SourceOutputLayer", "layer_source": "SourceInputLayer", "source": "InputLayer"}
    return {word: found.text(key) for word, key in named.items() if key in found} | {
        "transposed": found.switch("Transposed", False)
    }


def _initializer(scheme: str, scale: float, dialect: Dialect) -> dict[str, Any]:
    match scheme:
        case "gaussian":
            return {"kind": "gaussian", "deviation": scale}
        case "uniform":
            return {"kind": "uniform", "limit": scale}
        case "xavier" if dialect == "dsstne":
            return {"kind": "xavier", "scale": scale / 2}
        case "unit_ball":
            return (
                {"kind": "uniform", "limit": scale, "low": 0.0}
                if dialect == "dsstne"
                else {"kind": "unit_ball", "radius": scale}
            )
        case "constant":
            return {"kind": "constant", "value": -scale if dialect == "dsstne" else scale}
        case "selu" if dialect == "dsstne":
            return {"kind": "reciprocal", "scale": scale}
    return {"kind": scheme, "scale": scale}
