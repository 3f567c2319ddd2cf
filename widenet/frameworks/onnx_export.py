"""Export of trained networks to ONNX."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

from widenet.errors import FitError, OptionError, unwritten
from widenet.frameworks.onnx_graph import IR_VERSION, OPSET, Graph, names_path, weight_name
from widenet.frameworks.onnx_layers import (
    EXAMPLES,
    Layers,
    SparseField,
    neighbours_name,
    similarities_name,
    with_term,
)
from widenet.metrics.ranking import checked_k
from widenet.model.network import Network
from widenet.model.operands import SHORTEST
from widenet.predict.terms import table_of
from widenet.regular_files import check_new
from widenet.runs import Model
from widenet.stores.durable import appearing_together

LARGEST_INSIDE = 2**30
"""Maximum bytes of weights in the model's own file; protobuf's limit is 2 GiB."""

_PRODUCER, _HEAD_BYTES = b"\x12\x07widenet", 16
"""The producer's field of a model, and the first bytes of the file, which hold it."""
_ALIGNMENT = 4096


def export_onnx(
    model: Model,
    out: str | Path,
    top_k: int | None = None,
    exclude_seen: bool = True,
    overwrite: bool = False,
) -> list[Path]:
    """Write a network with its predictions as an ONNX model.

    The model's inputs depend on the kind of each field F:
    - sparse, or a sequence (oldest first): int64 F.offsets [E + 1] and F.indices [Z], and float32 F.values
      [Z] if the network was trained with values
    - dense: float32 F [E, width]

    Args:
        model: The trained network.
        out: The .onnx file to write.
        top_k: Give the K best units of each output O instead of all scores; all of its units, in order, if it
            has fewer.
        exclude_seen: Leave an example's own features out of its k best units.
        overwrite: Replace an earlier model that widenet wrote, with the files beside it.

    Returns:
        The written files: the weights if they are large, the names of items if there are any, and the model.
        Its outputs are float32 O [E, L], or with `top_k` float32 O.scores [E, K] and int64 O.units [E, K].
        Missing entries are -inf and -1.

    Raises:
        OptionError: An option is wrong, or a file cannot be written.
        FitError: An output has repeats, or the run is in 8 bits.
    """
    has_repeats = any(output.repeats is not None for output in model.network.spec.outputs)
    FitError.require(not has_repeats, '"repeats" cannot be written to ONNX', place=model.run.path)
    in_8_bits = any(wide.in_8_bits for wide in model.network.wide.values())
    rule = "is in 8 bits; export the run that it was made of"
    FitError.require(not in_8_bits, rule, place=model.run.path)
    out, top_k = Path(out), None if top_k is None else checked_k(top_k)
    check_out(out, overwrite)
    names = _names(model)
    large = sum(weight.num_bytes for weight in _weights(model.network)) > LARGEST_INSIDE
    files = [
        *([_data_path(out)] if large else []),
        *([names_path(out)] if names else []),
        out,
    ]
    earlier = _files_of(out) if overwrite else []
    for path in reversed(files):
        check_new(path, overwrite, "a model", lambda path: path in earlier)
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.mkdir(parents=True)
        if names:
            (beside / names_path(out).name).write_text(json.dumps(names, ensure_ascii=False), "utf-8")
        _write_model(beside / out.name, model, top_k, exclude_seen, large)
        with appearing_together(files) as temporary:
            for path, partial_path in zip(files, temporary, strict=True):
                (beside / path.name).rename(partial_path)
        for path in earlier:
            if path not in files:
                path.unlink()
    except OSError as error:
        raise OptionError(unwritten(out, error)) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return files


def check_out(out: Path, overwrite: bool) -> None:
    """Raise OptionError unless a model may be written to a path."""
    OptionError.require(
        out.suffix == ".onnx", "must be a path that ends in .onnx", option="out", value=str(out)
    )
    check_new(out, overwrite, "a model", lambda path: path in _files_of(path))


def _files_of(out: Path) -> list[Path]:
    """The files of an earlier model that `export_onnx` has written; none if there is no such model."""
    if not out.is_file():
        return []
    content, names = out.read_bytes(), names_path(out)
    if _PRODUCER not in content[:_HEAD_BYTES]:
        return []
    data = [_data_path(out)] if _data_path(out).name.encode() in content and _data_path(out).is_file() else []
    if names.is_file():
        with names.open("rb") as file:
            return [*data, *([names] if file.read(2) == b'{"' else []), out]
    return [*data, out]


def _data_path(out: Path) -> Path:
    return out.with_name(f"{out.name}.data")


@dataclass(frozen=True)
class _Weight:
    """A tensor of the network under its name in the model; `parts` yields blocks of its rows."""

    name: str
    shape: tuple[int, ...]
    parts: Callable[[], Iterator[torch.Tensor]]
    kind: str = "<f4"

    @property
    def num_bytes(self) -> int:
        return np.dtype(self.kind).itemsize * int(np.prod(self.shape))

    @property
    def data_type(self) -> int:
        """ONNX's number for the type."""
        return int(helper.np_dtype_to_tensor_dtype(np.dtype(self.kind)))

    def blocks(self) -> Iterator[bytes]:
        """Yield the bytes of the tensor, little-endian."""
        for part in self.parts():
            yield part.detach().cpu().contiguous().numpy().astype(self.kind, copy=False).tobytes()


def _weights(network: Network) -> Iterator[_Weight]:
    """Yield all tensors of a model: weights, biases, factors of features, and inverse lengths for cosines."""
    for name, wide in network.wide.items():
        columns = network.layout.weights[name].columns
        shape = (wide.shards.width,) if columns is None else (wide.shards.width, columns)
        yield _Weight(name, shape, partial(_rows, network, name))
    for name, trunk in network.trunk.items():
        if network.layout.weights[name].describes is None:  # the rows already contain these vectors
            yield _whole(name, trunk.tensor)
    for name, factors in network.damping.items():
        yield _whole(f"{name} damping", factors)
    for name, output in network.outputs.items():
        if output.spec.cosine is not None:
            weight = network.layout.links[name, ""].weight
            length_L = torch.cat([rows.norm(dim=1) for rows in _rows(network, weight)])
            yield _whole(f"{name} lengths", torch.where(length_L <= SHORTEST, 0.0, 1 / length_L))
    for name, output in network.outputs.items():
        if output.spec.neighbourhood is not None:
            neighbour_LK, similarity_LK = table_of(output)
            yield _whole(neighbours_name(name), neighbour_LK, "<i4")
            yield _whole(similarities_name(name), similarity_LK)


def _rows(network: Network, name: str) -> Iterator[torch.Tensor]:
    return (rows for _, rows in network.rows(name))


def _whole(name: str, tensor: torch.Tensor, kind: str = "<f4") -> _Weight:
    return _Weight(name, tuple(tensor.shape), lambda: iter([tensor]), kind)


def _write_model(path: Path, model: Model, top_k: int | None, exclude_seen: bool, large: bool) -> None:
    graph = _graph(model, top_k, exclude_seen)
    if large:
        with _data_path(path).open("xb") as file:
            tensors = [_outside(weight, file, _data_path(path).name) for weight in _weights(model.network)]
    else:
        tensors = [_inside(weight) for weight in _weights(model.network)]
    whole = helper.make_graph(
        graph.nodes, "widenet", graph.inputs, graph.outputs, [*graph.constants.values(), *tensors]
    )
    proto = helper.make_model(
        whole, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="widenet"
    )
    path.write_bytes(proto.SerializeToString())
    onnx.checker.check_model(str(path), full_check=True)


def _inside(weight: _Weight) -> Any:
    return helper.make_tensor(
        weight_name(weight.name), weight.data_type, weight.shape, b"".join(weight.blocks()), raw=True
    )


def _outside(weight: _Weight, file: BinaryIO, location: str) -> Any:
    file.write(bytes(-file.tell() % _ALIGNMENT))
    tensor = TensorProto(
        name=weight_name(weight.name),
        data_type=weight.data_type,
        dims=weight.shape,
        data_location=TensorProto.EXTERNAL,
    )
    for key, value in {"location": location, "offset": file.tell(), "length": weight.num_bytes}.items():
        tensor.external_data.add(key=key, value=str(value))
    for block in weight.blocks():
        file.write(block)
    return tensor


def _graph(model: Model, top_k: int | None, exclude_seen: bool) -> Graph:
    graph, network, run = Graph(), model.network, model.run
    fields: dict[str, SparseField | str] = {}
    for field in dict.fromkeys(layer.field for layer in network.spec.inputs):
        record = run.fields[field]
        if record.kind == "dense":
            fields[field] = graph.input(field, [EXAMPLES, record.width])
        else:
            uses = any(layer.values == "use" for layer in network.spec.inputs if layer.field == field)
            fields[field] = SparseField.declared(
                graph, field, uses and (record.min_value, record.max_value) != (1, 1)
            )
    damped = frozenset(network.damping)
    layers = Layers(graph, network.layout, fields, damped)
    layers.add_all()
    for output in network.spec.outputs:
        logits, width = layers.logits(output), network.outputs[output.name].width
        if output.neighbourhood is not None:
            history = fields[output.field]
            assert isinstance(history, SparseField)
            entries = history.offsets, history.indices
            logits = with_term(graph, logits, output.name, output.neighbourhood, *entries, width)
        if top_k is None:
            graph.output(output.name, graph.activate(output.activation, logits), [EXAMPLES, width])
            continue
        named = run.fields[output.field].width
        scores, units = layers.best(output, logits, min(top_k, named), named, exclude_seen)
        graph.output(f"{output.name}.scores", scores, [EXAMPLES, min(top_k, named)])
        graph.output(f"{output.name}.units", units, [EXAMPLES, min(top_k, named)], is_whole=True)
    return graph


def _names(model: Model) -> dict[str, Any]:
    """Return the ids and titles of the features of each field that has them, in their order."""
    named = [name for name, record in model.run.fields.items() if record.vocabulary_digest is not None]
    vocabularies = {name: model.run.vocabulary(name) for name in named}
    return {
        name: {"ids": each.ids(np.arange(len(each))), "titles": each.titles(np.arange(len(each)))}
        for name, each in vocabularies.items()
    }
