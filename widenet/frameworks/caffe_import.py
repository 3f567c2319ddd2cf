"""Import of Caffe networks.

Layers come from a .prototxt or from the .caffemodel itself, and weights from the .caffemodel.
"""

from collections.abc import Callable
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from google.protobuf.message import DecodeError

from widenet.errors import DataError, OptionError
from widenet.frameworks.folded_layer import (
    Activate,
    Add,
    Affine,
    Convolve,
    Dense,
    Drop,
    Input,
    Join,
    Operation,
    Operations,
    Pool,
    Same,
    UnsupportedError,
    leaky,
    whole_filters,
)
from widenet.frameworks.folding import folded
from widenet.interop.import_network import Imported, reading

_MESSAGES = """
BlobShape: dim=1 int64*
BlobProto: num=1 int64, channels=2 int64, height=3 int64, width=4 int64, data=5 float*, shape=7 BlobShape, \
double_data=8 double*
NetStateRule: phase=1 Phase
InnerProductParameter: num_output=1 uint32, bias_term=2 bool, axis=5 int32, transpose=6 bool
ConvolutionParameter: num_output=1 uint32, bias_term=2 bool, pad=3 uint32*, kernel_size=4 uint32*, \
group=5 uint32, stride=6 uint32*, pad_h=9 uint32, pad_w=10 uint32, kernel_h=11 uint32, kernel_w=12 uint32, \
stride_h=13 uint32, stride_w=14 uint32, dilation=18 uint32*
PoolingParameter: pool=1 PoolMethod, kernel_size=2 uint32, stride=3 uint32, pad=4 uint32, kernel_h=5 uint32, \
kernel_w=6 uint32, stride_h=7 uint32, stride_w=8 uint32, pad_h=9 uint32, pad_w=10 uint32, \
global_pooling=12 bool, round_mode=13 RoundMode
LRNParameter: local_size=1 uint32, alpha=2 float, beta=3 float, norm_region=4 NormRegion, k=5 float
ConcatParameter: concat_dim=1 uint32, axis=2 int32
DropoutParameter: dropout_ratio=1 float
EltwiseParameter: operation=1 EltwiseOp, coeff=2 float*
ReLUParameter: negative_slope=1 float
ELUParameter: alpha=1 float
SoftmaxParameter: axis=2 int32
BatchNormParameter: use_global_stats=1 bool, moving_average_fraction=2 float, eps=3 float
ScaleParameter: axis=1 int32, num_axes=2 int32, bias_term=4 bool
PowerParameter: power=1 float, scale=2 float, shift=3 float
FlattenParameter: axis=1 int32
InputParameter: shape=1 BlobShape*
TransformationParameter: crop_size=3 uint32
LayerParameter: name=1 string, type=2 string, bottom=3 string*, top=4 string*, blobs=7 BlobProto*, \
include=8 NetStateRule*, exclude=9 NetStateRule*, phase=10 Phase, \
transform_param=100 TransformationParameter, concat_param=104 ConcatParameter, \
convolution_param=106 ConvolutionParameter, dropout_param=108 DropoutParameter, \
eltwise_param=110 EltwiseParameter, inner_product_param=117 InnerProductParameter, \
lrn_param=118 LRNParameter, pooling_param=121 PoolingParameter, power_param=122 PowerParameter, \
relu_param=123 ReLUParameter, softmax_param=125 SoftmaxParameter, flatten_param=135 FlattenParameter, \
batch_norm_param=139 BatchNormParameter, elu_param=140 ELUParameter, scale_param=142 ScaleParameter, \
input_param=143 InputParameter
V0LayerParameter: name=1 string
V1LayerParameter: layer=1 V0LayerParameter, bottom=2 string*, top=3 string*, name=4 string, type=5 V1Type, \
blobs=6 BlobProto*, concat_param=9 ConcatParameter, convolution_param=10 ConvolutionParameter, \
dropout_param=12 DropoutParameter, inner_product_param=17 InnerProductParameter, lrn_param=18 LRNParameter, \
pooling_param=19 PoolingParameter, power_param=21 PowerParameter, eltwise_param=24 EltwiseParameter, \
relu_param=30 ReLUParameter, include=32 NetStateRule*, exclude=33 NetStateRule*, \
softmax_param=39 SoftmaxParameter, transform_param=36 TransformationParameter
NetParameter: name=1 string, layers=2 V1LayerParameter*, input=3 string*, input_dim=4 int64*, \
input_shape=8 BlobShape*, layer=100 LayerParameter*
"""
"""One message per line; a type with * is repeated. Other fields are ignored."""

V1_TYPES = (
    *(
        "NONE",
        "ACCURACY",
        "BNLL",
        "CONCAT",
        "CONVOLUTION",
        "DATA",
        "DROPOUT",
        "EUCLIDEAN_LOSS",
        "FLATTEN",
        "HDF5_DATA",
        "HDF5_OUTPUT",
    ),
    *(
        "IM2COL",
        "IMAGE_DATA",
        "INFOGAIN_LOSS",
        "INNER_PRODUCT",
        "LRN",
        "MULTINOMIAL_LOGISTIC_LOSS",
        "POOLING",
        "RELU",
        "SIGMOID",
    ),
    *(
        "SOFTMAX",
        "SOFTMAX_LOSS",
        "SPLIT",
        "TANH",
        "WINDOW_DATA",
        "ELTWISE",
        "POWER",
        "SIGMOID_CROSS_ENTROPY_LOSS",
        "HINGE_LOSS",
    ),
    *(
        "MEMORY_DATA",
        "ARGMAX",
        "THRESHOLD",
        "DUMMY_DATA",
        "SLICE",
        "MVN",
        "ABSVAL",
        "SILENCE",
        "CONTRASTIVE_LOSS",
        "EXP",
        "DECONVOLUTION",
    ),
)
"""The types of layers in Caffe's first format, in the order of their codes."""

_ENUMS = {
    "Phase": ("TRAIN", "TEST"),
    "EltwiseOp": ("PROD", "SUM", "MAX"),
    "PoolMethod": ("MAX", "AVE", "STOCHASTIC"),
    "RoundMode": ("CEIL", "FLOOR"),
    "V1Type": V1_TYPES,
    "NormRegion": ("ACROSS_CHANNELS", "WITHIN_CHANNEL"),
}
_PACKED = ("float", "double", "int64")
_Field = descriptor_pb2.FieldDescriptorProto


@cache
def message(name: str) -> Any:
    """Return the class of a message, such as "NetParameter"."""
    file = descriptor_pb2.FileDescriptorProto(name="widenet/caffe.proto", package="caffe", syntax="proto2")
    for enum, values in _ENUMS.items():
        scope = file.message_type.add(name=f"Of{enum}")  # two enums may share the name of a value
        described = scope.enum_type.add(name=enum)
        for number, value in enumerate(values):
            described.value.add(name=value, number=number)
    for line in _MESSAGES.strip().splitlines():
        title, _, fields = line.partition(": ")
        described = file.message_type.add(name=title)
        for field in fields.split(", "):
            _describe(described, *field.replace("=", " ").split())
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"caffe.{name}"))


def _describe(owner: Any, name: str, number: str, kind: str) -> None:
    plain = kind.rstrip("*")
    label = _Field.LABEL_REPEATED if kind.endswith("*") else _Field.LABEL_OPTIONAL
    field = owner.field.add(name=name, number=int(number), label=label)
    if plain in _ENUMS or plain[0].isupper():
        field.type = _Field.TYPE_ENUM if plain in _ENUMS else _Field.TYPE_MESSAGE
        field.type_name = f".caffe.Of{plain}.{plain}" if plain in _ENUMS else f".caffe.{plain}"
    else:
        field.type = getattr(_Field, f"TYPE_{plain.upper()}")
    if label == _Field.LABEL_REPEATED and plain in _PACKED:
        field.options.packed = owner.name.startswith("Blob")


_LOSSES = {"SoftmaxWithLoss": "softmax", "SigmoidCrossEntropyLoss": "sigmoid", "EuclideanLoss": "linear"}
_SOURCES = ("Input", "Data", "MemoryData", "HDF5Data", "ImageData", "DummyData")
_TEST = 1


_MAX, _AVERAGE = 0, 1
_FLOOR = 1
_WITHIN_CHANNEL = 1
_TYPES = {
    "RELU": "ReLU",
    "TANH": "TanH",
    "LRN": "LRN",
    "MVN": "MVN",
    "BNLL": "BNLL",
    "ABSVAL": "AbsVal",
    "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output",
}
"""Types whose later name is not the old one in camel case."""
_REPEATED = ("bottom", "top", "blobs", "include", "exclude")


def read_caffe(path: Path, weights: Path | None = None) -> Imported:
    """Read a Caffe network in its prediction phase (TEST).

    Args:
        path: A .caffemodel, or a .prototxt.
        weights: The .caffemodel with the weights of a .prototxt.

    Raises:
        DataError: A file is damaged, or has layers without a counterpart.
        OptionError: `weights` is missing, or is named for a .caffemodel.
    """
    is_text = path.suffix.lower() == ".prototxt"
    if is_text != (weights is not None):
        raise OptionError("is for a .prototxt, and needed there", place=path, option="weights")
    with reading(weights or path, "Caffe network", DecodeError):
        trained = message("NetParameter").FromString((weights or path).read_bytes())
    with reading(path, "Caffe network", text_format.ParseError):
        net = trained
        if is_text:
            text = path.read_text("utf-8")
            net = text_format.Parse(text, message("NetParameter")(), allow_unknown_field=True)
        if any(layer.HasField("layer") for each in (net, trained) for layer in each.layers):
            raise DataError("has a format from before Caffe's first release", place=path)
        net, trained = (upgraded(each) if each.layers else each for each in (net, trained))
        return folded(str(path), _Reader(path, net, trained).run())


class _Reader:
    def __init__(self, path: Path, net: Any, trained: Any) -> None:
        self.path, self.net = path, net
        self.blobs = {
            layer.name: [_array(path, layer.name, blob) for blob in layer.blobs] for layer in trained.layer
        }
        self.steps: dict[str, Operation] = {}
        self.step_of: dict[str, str] = {}

    def run(self) -> Operations:
        self._inputs()
        used: set[str] = set()
        names: dict[str, str] = {}
        problems: list[str] = []
        for layer in self.net.layer:
            if not _is_in_test_phase(layer) or layer.type in ("Accuracy", "Silence"):
                continue
            name = next(
                each
                for each in (layer.name, *(f"{layer.name} {n}" for n in range(2, 10_000)))
                if each not in self.steps
            )
            if layer.type in _SOURCES:
                self._source(layer)
                continue
            sources = [self.step_of[bottom] for bottom in layer.bottom if bottom in self.step_of]
            try:
                own = sources[:1] if layer.type in _LOSSES else sources
                self.steps[name] = self._operation(name, layer, own)
            except UnsupportedError as reason:
                problems.append(f'"{name}" ({reason})')
            used.update(sources)
            for top in layer.top:
                self.step_of[top] = name
                names[name] = (layer.type in _LOSSES and layer.bottom[0]) or top
        return Operations(
            list(self.steps.values()),
            {names[name]: name for name in self.steps if name in names and name not in used},
            problems,
        )

    def _inputs(self) -> None:
        """Add the inputs that older files list outside of the layers."""
        dims = [list(shape.dim) for shape in self.net.input_shape]
        dims = dims or [
            list(self.net.input_dim[4 * place : 4 * place + 4]) for place in range(len(self.net.input))
        ]
        for name, shape in zip(self.net.input, dims, strict=False):
            self._add_input(name, shape)

    def _source(self, layer: Any) -> None:
        """Add the inputs of a layer that provides examples; a second top of a data layer holds labels."""
        shapes = [list(shape.dim) for shape in layer.input_param.shape]
        crop, channels = layer.transform_param.crop_size, self._channels(layer.top[0])
        if not shapes and crop and channels:
            shapes = [[1, channels, crop, crop]]
        for place, top in enumerate(layer.top if layer.type == "Input" else layer.top[:1]):
            self._add_input(top, shapes[min(place, len(shapes) - 1)] if shapes else [])

    def _channels(self, top: str) -> int | None:
        """Return the channels that the filters of an input's first convolution have; None without one."""
        for layer in self.net.layer:
            if layer.type == "Convolution" and top in layer.bottom and self.blobs.get(layer.name):
                return int(self.blobs[layer.name][0].shape[1] * max(1, layer.convolution_param.group))
        return None

    def _add_input(self, name: str, shape: list[int]) -> None:
        axes = tuple(shape[1:]) if len(shape) > 2 else None
        self.steps[name] = Input(name, int(np.prod(shape[1:])) if len(shape) > 1 else None, axes)
        self.step_of[name] = name

    def _operation(self, name: str, layer: Any, sources: list[str]) -> Operation:
        if not sources:
            raise UnsupportedError(layer.type)
        source = sources[0]
        match layer.type:
            case "InnerProduct" if layer.inner_product_param.axis in (0, 1):
                return self._dense(name, layer, source)
            case "Convolution":
                return convolution(
                    name, layer.convolution_param, source, lambda count: self._weights(layer, count)
                )
            case "Pooling":
                return pooling(name, layer.pooling_param, source)
            case "LRN":
                return normalization(name, layer.lrn_param, source)
            case "Concat" if layer.concat_param.axis in (0, 1) and layer.concat_param.concat_dim in (0, 1):
                return Join(name, tuple(sources))
            case "Eltwise" if (
                not layer.eltwise_param.HasField("operation") or layer.eltwise_param.operation == 1
            ):
                if any(factor != 1 for factor in layer.eltwise_param.coeff):
                    raise UnsupportedError("Eltwise with coefficients")
                return Add(name, tuple(sources))
            case "BatchNorm":
                return self._batch_norm(name, layer, source)
            case "Scale" if (
                len(sources) == 1
                and layer.scale_param.num_axes in (0, 1)
                and layer.scale_param.axis in (0, 1)
            ):
                scale, *shift = self._weights(layer, 1 + layer.scale_param.bias_term)
                return Affine(name, source, scale, shift[0] if shift else 0.0)
            case "Power" if not layer.power_param.HasField("power") or layer.power_param.power == 1:
                power = layer.power_param
                return Affine(name, source, power.scale if power.HasField("scale") else 1.0, power.shift)
            case kind:
                return _plain(name, kind, layer, source)

    def _dense(self, name: str, layer: Any, source: str) -> Operation:
        has_bias = layer.inner_product_param.bias_term or not layer.inner_product_param.HasField("bias_term")
        weight, *bias = self._weights(layer, 1 + has_bias)
        units = layer.inner_product_param.num_output
        weight = weight.reshape(-1, weight.shape[-1]) if weight.ndim > 1 else weight.reshape(units or 1, -1)
        weight = weight.T if layer.inner_product_param.transpose else weight
        if units and len(weight) != units:
            rule = f"must have weights for {units} units"
            raise DataError(rule, place=f'{self.path}: "{layer.name}"', value=len(weight))
        return Dense(name, source, weight, bias[0].reshape(-1) if bias else None)

    def _batch_norm(self, name: str, layer: Any, source: str) -> Operation:
        mean, variance, factor = self._weights(layer, 3)
        by = np.float32(0 if factor.reshape(-1)[0] == 0 else 1 / factor.reshape(-1)[0])
        epsilon = layer.batch_norm_param.eps if layer.batch_norm_param.HasField("eps") else 1e-5
        scale = 1 / np.sqrt(variance.reshape(-1) * by + np.float32(epsilon))
        return Affine(name, source, scale, -mean.reshape(-1) * by * scale)

    def _weights(self, layer: Any, count: int) -> list[np.ndarray]:
        blobs = self.blobs.get(layer.name, [])
        if len(blobs) != count:
            rule = f"must have {count} blobs of weights"
            raise DataError(rule, place=f'{self.path}: "{layer.name}"', value=len(blobs))
        return blobs


def _plain(name: str, kind: str, layer: Any, source: str) -> Operation:
    """Return the operation of a layer without weights."""
    if kind in _LOSSES:
        return Activate(name, source, _LOSSES[kind], by_place=_LOSSES[kind] == "softmax")
    if kind == "ReLU":
        return leaky(name, source, float(layer.relu_param.negative_slope))
    if kind == "ELU":
        alpha = layer.elu_param.alpha if layer.elu_param.HasField("alpha") else 1.0
        return Activate(name, source, {"kind": "elu", "alpha": float(alpha)})
    if kind in ("Sigmoid", "TanH"):
        return Activate(name, source, kind.lower())
    if kind == "Softmax" and layer.softmax_param.axis in (0, 1):
        return Activate(name, source, "softmax", by_place=True)
    if kind == "Dropout":
        ratio = layer.dropout_param.dropout_ratio if layer.dropout_param.HasField("dropout_ratio") else 0.5
        return Drop(name, source, float(ratio))
    if kind == "Split" or (kind == "Flatten" and layer.flatten_param.axis in (0, 1)):
        return Same(name, source)
    raise UnsupportedError(kind)


def _array(path: Path, name: str, blob: Any) -> np.ndarray:
    """Return the numbers of a blob in its shape; raises DataError if their count is wrong."""
    numbers = np.asarray(blob.data if len(blob.data) else blob.double_data, np.float32)
    old = [blob.num, blob.channels, blob.height, blob.width]
    shape = list(blob.shape.dim) if blob.HasField("shape") else old
    if any(size < 0 for size in shape) or prod(shape) != len(numbers):
        rule = f"must have {shape} numbers in a blob"
        raise DataError(rule, place=f'{path}: "{name}"', value=len(numbers))
    return numbers.reshape(shape)


def _is_in_test_phase(layer: Any) -> bool:
    """Return whether a layer is active in the phase TEST."""
    if layer.HasField("phase") and layer.phase != _TEST:
        return False
    include = [rule.phase for rule in layer.include if rule.HasField("phase")]
    exclude = [rule.phase for rule in layer.exclude if rule.HasField("phase")]
    return (not include or _TEST in include) and _TEST not in exclude


def convolution(
    name: str, parameter: Any, source: str, weights: Callable[[int], list[np.ndarray]]
) -> Operation:
    """Return the operation of a convolution.

    Args:
        name: Name of the operation.
        parameter: The layer's ConvolutionParameter.
        source: Name of its source.
        weights: Returns the layer's blobs if there are as many as its argument.
    """
    has_bias = parameter.bias_term or not parameter.HasField("bias_term")
    weight, *bias = weights(1 + has_bias)
    axes = weight.ndim - 2
    weight = whole_filters(
        weight, max(1, parameter.group), _per_axis(parameter, "dilation", list(parameter.dilation), axes, 1)
    )
    stride = _per_axis(parameter, "stride", list(parameter.stride), axes, 1)
    pad = _per_axis(parameter, "pad", list(parameter.pad), axes, 0)
    return Convolve(
        name,
        source,
        weight,
        bias[0].reshape(-1) if bias else None,
        stride,
        tuple((size, size) for size in pad),
    )


def pooling(name: str, parameter: Any, source: str) -> Operation:
    """Return the operation of a pooling; Caffe rounds its output size up unless round_mode is FLOOR."""
    if parameter.pool not in (_MAX, _AVERAGE):
        raise UnsupportedError("stochastic pooling")
    function = "max" if parameter.pool == _MAX else "average"
    if parameter.global_pooling:
        return Pool(name, source, function)
    kernel, stride, pad = (
        _per_axis(
            parameter, key, [getattr(parameter, whole)] if parameter.HasField(whole) else [], 2, default
        )
        for key, whole, default in (("kernel", "kernel_size", 1), ("stride", "stride", 1), ("pad", "pad", 0))
    )
    if function == "average" and any(pad):
        raise UnsupportedError("average pooling that counts the padding")
    return Pool(
        name,
        source,
        function,
        kernel,
        stride,
        tuple((size, size) for size in pad),
        rounds_up=parameter.round_mode != _FLOOR,
    )


def normalization(name: str, parameter: Any, source: str) -> Operation:
    """Return the operation of a local response normalization across channels."""
    defaults = {"local_size": 5, "alpha": 1.0, "beta": 0.75, "k": 1.0}
    size, alpha, beta, k = (
        getattr(parameter, key) if parameter.HasField(key) else default for key, default in defaults.items()
    )
    if parameter.norm_region == _WITHIN_CHANNEL or size % 2 == 0:
        raise UnsupportedError("LRN within channels, or of an even size")
    return Pool(name, source, {"kind": "lrn", "n": size, "alpha": alpha, "beta": beta, "k": k})


def _per_axis(parameter: Any, key: str, sizes: list[int], axes: int, default: int) -> tuple[int, ...]:
    """Return one number per axis, from a list of one or all numbers, or from KEY_h and KEY_w."""
    if key != "dilation" and (parameter.HasField(f"{key}_h") or parameter.HasField(f"{key}_w")):
        return (getattr(parameter, f"{key}_h") or default, getattr(parameter, f"{key}_w") or default)
    sizes = sizes or [default]
    return tuple(sizes * axes) if len(sizes) == 1 else tuple(sizes)


def upgraded(net: Any) -> Any:
    """Return the network with `layer` in place of `layers`, as Caffe's own upgrade tools write it."""
    upgraded_net = message("NetParameter")()
    upgraded_net.CopyFrom(net)
    del upgraded_net.layers[:]
    for old in net.layers:
        name = V1_TYPES[old.type]
        new = upgraded_net.layer.add(
            name=old.name, type=_TYPES.get(name) or "".join(word.capitalize() for word in name.split("_"))
        )
        for key in _REPEATED:
            getattr(new, key).extend(getattr(old, key))
        for described, value in old.ListFields():
            if described.name.endswith("_param"):
                getattr(new, described.name).CopyFrom(value)
    return upgraded_net
