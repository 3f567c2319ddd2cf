"""Tensor files: safetensors, written and read a block at a time, so that no copy of a large tensor is ever
made.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

_BLOCK_BYTES = 2**25
_LARGEST_NUMBER = 8
_NAMES = {torch.float32: "F32", torch.float64: "F64", torch.int32: "I32"}


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors (float32, float64 or int32, on any device) to a new file; its SHA-256.

    Raises OSError.

    The format (huggingface.co/docs/safetensors): the header's length as uint64, the header in JSON padded to
    8 bytes, the data.
    """
    header: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, tensor in tensors.items():
        stop = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for piece in (len(text).to_bytes(8, "little"), text):
            file.write(piece)
            digest.update(piece)
        for tensor in tensors.values():
            rows = max(1, _BLOCK_BYTES * len(tensor) // max(tensor.numel() * tensor.element_size(), 1))
            for block in torch.split(tensor.detach(), rows):
                data = block.reshape(-1).cpu().numpy().data
                file.write(data)
                digest.update(data)
    return digest.hexdigest()


def read_into(path: Path, tensors: Mapping[str, Tensor]) -> str | None:
    """Fill tensors from a file that holds more or the same; the name of the first of which the file has not
    one of that shape and type.

    Raises OSError and safetensors' SafetensorError.
    """
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        for name, tensor in tensors.items():
            if name not in names:
                return name
            found = file.get_slice(name)
            if found.get_shape() != list(tensor.shape) or found.get_dtype() != _NAMES[tensor.dtype]:
                return name
            _fill(tensor.detach(), found)
    return None


def blocks(path: Path, name: str) -> Iterator[tuple[int, Tensor]]:
    """A tensor of a file, some rows after the others, each with the number of its first; raises OSError,
    SafetensorError.
    """
    with safe_open(path, framework="pt") as file:
        found = file.get_slice(name)
        num_rows, *rest = found.get_shape()
        rows = max(1, _BLOCK_BYTES // (_LARGEST_NUMBER * max(math.prod(rest), 1)))
        for start in range(0, num_rows, rows):
            yield start, found[start : start + rows]


def _fill(tensor: Tensor, found: Any) -> None:
    rows = (
        max(1, _BLOCK_BYTES * len(tensor) // max(tensor.numel() * tensor.element_size(), 1))
        if tensor.numel()
        else 1
    )
    for start in range(0, len(tensor) if tensor.numel() else 0, rows):
        tensor[start : start + rows].copy_(found[start : start + rows])
