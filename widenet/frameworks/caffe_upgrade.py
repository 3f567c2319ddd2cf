"""Caffe networks of its first format (`layers { type: RELU }`), said in the later one."""

from typing import Any

from widenet.frameworks.caffe_messages import V1_TYPES, message

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
"""Types whose later names are not their words put together."""
_REPEATED = ("bottom", "top", "blobs", "include", "exclude")


def upgraded(net: Any) -> Any:
    """The same network with `layer` in place of `layers`, as Caffe's own upgrade tools write it."""
    found = message("NetParameter")()
    found.CopyFrom(net)
    del found.layers[:]
    for old in net.layers:
        name = V1_TYPES[old.type]
        new = found.layer.add(
            name=old.name, type=_TYPES.get(name) or "".join(word.capitalize() for word in name.split("_"))
        )
        for key in _REPEATED:
            getattr(new, key).extend(getattr(old, key))
        for described, value in old.ListFields():
            if described.name.endswith("_param"):
                getattr(new, described.name).CopyFrom(value)
    return found
