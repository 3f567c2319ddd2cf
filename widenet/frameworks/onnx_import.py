"""ONNX models read: those that widenet wrote by their documents, others node by node."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import numpy_helper

from widenet.errors import DataError
from widenet.frameworks.folding import folded
from widenet.frameworks.onnx_graph import names_path, weight_name
from widenet.frameworks.onnx_reader import GraphReader
from widenet.frameworks.onnx_values import dimensions
from widenet.interop.imported import Imported, Names
from widenet.interop.reading import reading
from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def read_onnx(path: Path) -> Imported:
    """The network of an ONNX file; raises DataError for one that is damaged, or that holds what has no
    counterpart.
    """
    invalid = (DecodeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
    with reading(path, "ONNX model", *invalid):
        model = onnx.load(path)
        onnx.checker.check_model(model if model.ByteSize() < 2**31 else str(path))
        constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        documents = {entry.key: entry.value for entry in model.metadata_props}
        if "widenet.network" in documents:
            return _own(path, documents, constants)
        return folded(str(path), GraphReader(model, constants, dimensions(model)).run())


def _own(path: Path, documents: dict[str, str], constants: dict[str, np.ndarray]) -> Imported:
    """A network that widenet wrote, by the documents in it."""
    spec = NetworkSpec.parse(documents["widenet.network"], f"{path}: widenet.network")
    training = TrainingSpec.parse(documents.get("widenet.training", "{}"), f"{path}: widenet.training")
    records = json.loads(documents["widenet.fields"])
    fields = {
        str(name): Width(*(record[key] for key in ("width", "kind", "min_value", "max_value")))
        for name, record in records.items()
    }
    weights = {}
    for name, weight in bind(spec, training, fields).weights.items():
        found = constants.get(weight_name(name))
        if found is not None:
            weights[name] = found.T if weight.rows_are_features else found
    factors = {
        f"{layer.name} damping": constants.get(weight_name(f"{layer.name} damping")) for layer in spec.inputs
    }
    known = {name.removesuffix(" damping"): found for name, found in factors.items() if found is not None}
    document = spec.model_dump(mode="json")
    settings = {key: value for key, value in document.items() if key != "layers"}
    return Imported(
        str(path), document["layers"], fields, weights, known, training, settings, _names(path, fields)
    )


def _names(path: Path, fields: Mapping[str, Width]) -> dict[str, Names]:
    """The names of features that stand beside a network that widenet wrote; none where that file is gone."""
    beside = names_path(path)
    if not beside.is_file():
        return {}
    with reading(beside, "file of names"):
        found = {
            name: Names(**each)
            for name, each in json.loads(beside.read_text("utf-8")).items()
            if name in fields
        }
    for name, each in found.items():
        if not (_are_texts(each.ids) and _are_texts(each.titles)) or not (
            len(each.ids) == len(each.titles) == len(set(each.ids)) == fields[name].width
        ):
            rule = f"must have {fields[name].width:,} ids, all different, and as many titles"
            raise DataError(
                f'{beside}: field "{name}" {rule}. Export the network again, or move the file away.'
            )
    return found


def _are_texts(given: object) -> bool:
    return isinstance(given, list) and all(isinstance(each, str) for each in given)
