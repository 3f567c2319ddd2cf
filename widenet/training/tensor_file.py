"""Files of tensors (safetensors), written and read in blocks, so that no large tensor is ever copied."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from widenet.model.storage import blocks as blocks_of

_BLOCK_BYTES = 2**25
_LARGEST_NUMBER = 8
_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.bfloat16: "BF16",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
}


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors to a new safetensors file and return its SHA-256.

    The format (huggingface.co/docs/safetensors): the length of the header as uint64, the header in JSON
    padded to 8 bytes, the data.

    Args:
        path: The file, which must not exist yet.
        tensors: Of the types in `_NAMES`, on any device.

    Raises:
        OSError: The file exists or cannot be written.
        CapacityError: Tensors lie on a disk that does not take all of their rows.
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
            for block in blocks_of(tensor.detach(), _rows_of_a_block(tensor)) if tensor.numel() else ():
                data = block.reshape(-1).view(torch.uint8).cpu().numpy().data
                file.write(data)
                digest.update(data)
    return digest.hexdigest()


def read_into(path: Path, tensors: Mapping[str, Tensor]) -> str | None:
    """Fill tensors from a file, which may hold more than these.

    Returns:
        The name of the first tensor that the file lacks in this shape and dtype; None if all were read.

    Raises:
        OSError: The file cannot be read.
        SafetensorError: The file is not in safetensors' format.
    """
    with safe_open(path, framework="pt") as file:
        names = set(file.keys())
        for name, tensor in tensors.items():
            if name not in names:
                return name
            stored = file.get_slice(name)
            # float32 holds every number in bfloat16, in which models may be stored.
            kinds = {_NAMES[tensor.dtype], "BF16" if tensor.dtype == torch.float32 else ""}
            if stored.get_shape() != list(tensor.shape) or stored.get_dtype() not in kinds:
                return name
            if tensor.numel():
                start = 0
                for block in blocks_of(tensor.detach(), _rows_of_a_block(tensor), writes=True):
                    block.copy_(stored[start : start + len(block)])
                    start += len(block)
    return None


def names_in(path: Path) -> set[str]:
    """Return the names of the tensors of a file; raises as `blocks`."""
    with safe_open(path, framework="pt") as file:
        return {*file.keys()}


def blocks(path: Path, name: str) -> Iterator[tuple[int, Tensor]]:
    """Yield the rows of a stored tensor in blocks, each with the number of its first row.

    Raises:
        OSError: The file cannot be read.
        SafetensorError: The file is not in safetensors' format, or lacks the tensor.
    """
    with safe_open(path, framework="pt") as file:
        stored = file.get_slice(name)
        num_rows, *rest = stored.get_shape()
        rows = max(1, _BLOCK_BYTES // (_LARGEST_NUMBER * max(math.prod(rest), 1)))
        for start in range(0, num_rows, rows):
            yield start, stored[start : start + rows]


def _rows_of_a_block(tensor: Tensor) -> int:
    return max(1, _BLOCK_BYTES * len(tensor) // max(tensor.numel() * tensor.element_size(), 1))
