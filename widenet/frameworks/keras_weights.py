"""Reader of the weights of Keras models, which are stored in HDF5 by layer, in the order of creation."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from widenet.errors import DataError
from widenet.interop.hdf5 import outside


class Weights:
    """The weights of a model in an open HDF5 file.

    Attributes:
        path: The file.
        arrays: Arrays of each layer, in order.
        num_bytes: Size of the file, which no layer may exceed.
    """

    def __init__(self, path: Path, arrays: dict[str, list[Any]], num_bytes: int) -> None:
        self.path, self.arrays, self.num_bytes = path, arrays, num_bytes

    @classmethod
    def of_keras_3(cls, path: Path, file: Any, layers: Sequence[dict[str, Any]], num_bytes: int) -> "Weights":
        """Find the weights in `model.weights.h5`.

        Its groups are named by the layers' classes with a number, or by the layers' names.
        """
        _check_alone(path, file)
        groups = {name: _variables(file, group) for name, group in _groups(file, layers).items()}
        return cls(
            path,
            {name: [arrays[str(place)] for place in range(len(arrays))] for name, arrays in groups.items()},
            num_bytes,
        )

    @classmethod
    def of_hdf5(cls, path: Path, file: Any) -> "Weights":
        """Find the weights in a .h5 file, whose layers list them in order."""
        _check_alone(path, file)
        groups = file["model_weights"]
        arrays = {
            name: [groups[name][_text(each)] for each in groups[name].attrs["weight_names"]]
            for name in groups
        }
        return cls(path, {name: stored for name, stored in arrays.items() if stored}, path.stat().st_size)

    def of(self, name: str, count: int) -> list[np.ndarray]:
        """Read the weights of a layer as float32; raises DataError unless there are `count` of them."""
        stored = self.arrays.get(name, [])
        if len(stored) != count:
            raise DataError(
                f'{self.path}: layer "{name}" must have {count} weights; got {len(stored)}. Save the model'
                " again."
            )
        if sum(each.nbytes for each in stored) > self.num_bytes:
            raise DataError(
                f'{self.path}: the weights of layer "{name}" must not be larger than their file. Save the'
                " model again."
            )
        return [np.asarray(each[()], np.float32) for each in stored]


def _variables(file: Any, group: str) -> Any:
    """Return the weights of a layer, or those of its cell."""
    own = file.get(f"{group}/vars", {})
    return own if len(own) else file.get(f"{group}/cell/vars", {})


def _text(name: Any) -> str:
    return name.decode() if isinstance(name, bytes) else str(name)


def _check_alone(path: Path, weights: Any) -> None:
    """Raise DataError if some weights refer to another file."""
    name = outside(weights)
    if name is not None:
        raise DataError(
            f"{path}: all weights must be in the model; {name!r} refers to another file. Save the model"
            " again."
        )


def _groups(file: Any, layers: Sequence[dict[str, Any]]) -> dict[str, str]:
    """Return the group of each layer, named by its class and a number, or else by the layer's name."""
    seen: Counter[str] = Counter()
    groups = {}
    for layer in layers:
        plain = re.sub(r"\W+", "", layer["class_name"])
        snake = re.sub(r"([a-z])([A-Z])", r"\1_\2", re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", plain)).lower()
        groups[layer["config"]["name"]] = f"layers/{snake}" + (f"_{seen[snake]}" if seen[snake] else "")
        seen[snake] += 1
    by_name = {
        str(group["vars"].attrs.get("name", "")): f"layers/{key}"
        for key, group in file["layers"].items()
        if "vars" in group
    }
    return {**groups, **{name: group for name, group in by_name.items() if name in groups}}
