"""The messages of Caffe's files that the import reads, with the fields of caffe.proto."""

from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

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
