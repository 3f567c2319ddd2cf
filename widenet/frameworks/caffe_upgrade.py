"""Upgrade of networks in Caffe's first format (`layers { type: RELU }`) to the later one."""

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
"""Types whose later name is not the old one in camel case."""
_REPEATED = ("bottom", "top", "blobs", "include", "exclude")


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
