"""The native library: passes over arrays in C++, which the package's build compiles from native/."""

import ctypes
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from widenet.errors import OptionError

_FOLDER = Path(__file__).parent.parent / "native"
_SOURCES = _FOLDER.parent.parent / "native"
_CPUINFO = Path("/proc/cpuinfo")
_LEVELS = {
    "v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"},
    "v2": set[str](),
}
"""The levels of x86-64 for which the library is compiled, best first, with the flags each adds in Linux."""
NARROW = 8
"""Floats in a vector of level v3; v4 has 16."""
_ATEN_LEVELS = {"avx512": "v4", "avx2": "v3", "default": "v2"}


@dataclass(frozen=True)
class Packed:
    """A structure of the library, whose fields are pointers and int64.

    Attributes:
        fields: The fields, as int64.
        tensors: The tensors that the pointers lead to.
    """

    fields: Any
    tensors: "tuple[Tensor | Packed | int | None, ...]"


Argument = Tensor | Sequence[Tensor] | Sequence[Packed] | Packed | int | float | None
"""Contiguous tensors on the CPU and structures are passed as pointers, sequences of them as arrays of
pointers, integers as int64, floats as double, None as a null pointer.
"""


@cache
def level() -> str:
    """Return the level of x86-64 whose copy of the library runs here; "any" on other processors.

    It is the highest of the processor; WIDENET_CPU (v2, v3 or v4) or torch's ATEN_CPU_CAPABILITY lowers it.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "any"
    limits = os.environ.get("WIDENET_CPU"), _ATEN_LEVELS.get(os.environ.get("ATEN_CPU_CAPABILITY", ""))
    levels = list(_LEVELS)
    if limits[0] not in (None, *levels):
        raise OptionError(f"must be one of {', '.join(levels)}", place="WIDENET_CPU", value=limits[0])
    first = max(levels.index(limit) if limit in levels else 0 for limit in limits)
    flags = _flags()
    return next(
        name
        for number, name in enumerate(levels)
        if number >= first and all(_LEVELS[lower] <= flags for lower in levels[number:])
    )


@cache
def multiplies_bfloat16() -> bool:
    """Return whether the library multiplies bfloat16 operands by instructions of this processor."""
    return level() == "v4" and "avx512_bf16" in _flags()


def _flags() -> set[str]:
    """Return what Linux says that the processor has."""
    text = _CPUINFO.read_text(encoding="utf-8", errors="replace") if _CPUINFO.is_file() else ""
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found[1].split()) if found else set()


@cache
def library() -> ctypes.CDLL | None:
    """Return the library; None if it was not built.

    Raises:
        RuntimeError: It was built from other sources than those of this checkout.
    """
    return _loaded(level())


@cache
def _loaded(name: str) -> ctypes.CDLL | None:
    path = _FOLDER / f"{name}.so"
    if not path.is_file():
        return None
    loaded = ctypes.CDLL(str(path))
    loaded.sources.restype = ctypes.c_char_p
    if (_SOURCES / "sources.cpp").is_file() and loaded.sources().decode() != digest(_SOURCES):
        raise RuntimeError(f"{path} was built from other sources than {_SOURCES}: run make setup")
    return loaded


def sources() -> str:
    """Return the SHA-256 of the sources of the library; "none" if it was not built."""
    loaded = library()
    return "none" if loaded is None else str(loaded.sources().decode())


def digest(folder: Path) -> str:
    """Return the SHA-256 of the sources in a folder, as setup.py writes it into the library."""
    paths = sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h"))
    return sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def call(name: str, *arguments: Argument, is_narrow: bool = False) -> int:
    """Call a function of the library and return its result; other threads run Python meanwhile.

    Args:
        name: Its name.
        arguments: Its arguments.
        is_narrow: Whether `NARROW` lanes do. The copy of the library that has no more takes half the time.

    Raises:
        MemoryError: There is not enough memory.
        TypeError: A tensor is not contiguous, or lies on another device.
    """
    result: int = _function(name, is_narrow)(*map(_passed, arguments))
    if result < 0:
        raise MemoryError
    return result


@cache
def _function(name: str, is_narrow: bool) -> Any:
    narrow = _loaded("v3") if is_narrow and level() == "v4" else None
    function = getattr(library() if narrow is None else narrow, name)
    function.restype = ctypes.c_int64
    return function


def check_dtype(dtype: torch.dtype, *tensors: Tensor | None) -> None:
    """Raise TypeError if a tensor has another type than the library reads."""
    for tensor in tensors:
        if tensor is not None and tensor.dtype != dtype:
            raise TypeError(f"the native library reads {dtype} here, not {tensor.dtype}")


def packed(*fields: Tensor | Packed | int | None) -> Packed:
    """Return a structure of the library: contiguous tensors and structures as pointers, None as null."""
    numbers = [each if isinstance(each, int) else 0 if each is None else _address(each) for each in fields]
    return Packed((ctypes.c_int64 * len(numbers))(*numbers), fields)


def pointers(whole: Tensor) -> Packed:
    """Return an array of pointers to the tensors of a stack."""
    first, distance = _address(whole), whole.stride(0) * whole.element_size()
    places = range(first, first + len(whole) * distance, distance) if distance else [first] * len(whole)
    return Packed((ctypes.c_int64 * len(whole))(*places), (whole,))


def _address(tensor: Tensor | Packed) -> int:
    if isinstance(tensor, Packed):
        return ctypes.addressof(tensor.fields)
    if not tensor.is_cpu or not tensor.is_contiguous():
        raise TypeError("the native library takes contiguous tensors on the CPU")
    return tensor.data_ptr()


def _passed(argument: Argument) -> object:
    match argument:
        case int():
            return ctypes.c_int64(argument)
        case float():
            return ctypes.c_double(argument)
        case Tensor():
            return ctypes.c_void_p(_address(argument))
        case Packed():
            return argument.fields
        case None:
            return None
    return (ctypes.c_void_p * len(argument))(*map(_address, argument))
