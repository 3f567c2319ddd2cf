"""Import of ONNX models: by their documents if widenet wrote them, otherwise node by node."""

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
from widenet.frameworks.onnx_layers import ZERO, scale_name
from widenet.frameworks.onnx_neighbourhood import table_of
from widenet.frameworks.onnx_pruned import widened_of
from widenet.frameworks.onnx_reader import GraphReader
from widenet.frameworks.onnx_values import dimensions
from widenet.interop.imported import Imported, Names
from widenet.interop.reading import reading
from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


def read_onnx(path: Path) -> Imported:
    """Read the network of an ONNX file.

    Raises:
        DataError: The file is damaged, or has nodes without a counterpart.
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
    """Read a model that widenet wrote, by the documents in it."""
    spec = NetworkSpec.parse(documents["widenet.network"], f"{path}: widenet.network")
    # The file holds finished sums of what described items, so that nothing describes them here.
    layers = [
        {name: value for name, value in layer.items() if name != "described_by"}
        for layer in spec.model_dump(mode="json")["layers"]
    ]
    spec = NetworkSpec.of({**spec.model_dump(mode="json"), "layers": layers}, str(path))
    training = TrainingSpec.parse(documents.get("widenet.training", "{}"), f"{path}: widenet.training")
    records = json.loads(documents["widenet.fields"])
    fields = {
        str(name): Width(*(record[key] for key in ("width", "kind", "min_value", "max_value")))
        for name, record in records.items()
    }
    weights = {}
    for name, weight in bind(spec, training, fields).weights.items():
        numbers = constants.get(weight_name(name))
        if numbers is None:
            numbers = widened_of(str(path), name, weight.row_length, constants)
        if numbers is not None and numbers.dtype == np.uint8:
            scales = constants.get(weight_name(scale_name(name)), np.empty(0))
            if numbers.ndim != 2 or scales.shape != numbers.shape[:1]:
                rule = f'weight "{name}" in 8 bits must be a matrix, and have a scale for each of its rows'
                raise DataError(f"{path}: {rule}. Export the network again.")
            numbers = (numbers.astype(np.float32) - ZERO) * scales[:, None]
        if numbers is not None:
            weights[name] = numbers.T if weight.rows_are_features else numbers
    damping = {layer.name: constants.get(weight_name(f"{layer.name} damping")) for layer in spec.inputs}
    factors = {name: numbers for name, numbers in damping.items() if numbers is not None}
    tables = {layer.name: table_of(str(path), layer.name, constants) for layer in spec.outputs}
    neighbours = {name: table for name, table in tables.items() if table is not None}
    document = spec.model_dump(mode="json")
    settings = {key: value for key, value in document.items() if key != "layers"}
    return Imported(
        str(path),
        document["layers"],
        fields,
        weights,
        factors,
        training,
        settings,
        _names(path, fields),
        neighbours,
    )


def _names(path: Path, fields: Mapping[str, Width]) -> dict[str, Names]:
    """Read the names of features from the file beside a model of widenet; none if it is missing."""
    beside = names_path(path)
    if not beside.is_file():
        return {}
    with reading(beside, "file of names"):
        names = {
            name: Names(**each)
            for name, each in json.loads(beside.read_text("utf-8")).items()
            if name in fields
        }
    for name, each in names.items():
        if not (_are_texts(each.ids) and _are_texts(each.titles)) or not (
            len(each.ids) == len(each.titles) == len(set(each.ids)) == fields[name].width
        ):
            rule = f"must have {fields[name].width:,} ids, all different, and as many titles"
            raise DataError(
                f'{beside}: field "{name}" {rule}. Export the network again, or move the file away.'
            )
    return names


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)
