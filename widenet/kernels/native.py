"""What computes here: the native library, torch or Triton, and the instruction sets on which bits depend.

The library is passes over arrays in C++, which the package's build compiles from native/. On a CPU it runs
what it has, on CUDA Triton does, and torch runs all else. Under portable bits all x86-64 processors with AVX2
round alike.
"""

import ctypes
import os
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

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

    It is the highest of the processor; WIDENET_CPU (v2, v3 or v4) lowers it.
    """
    if platform.machine() not in ("x86_64", "AMD64"):
        return "any"
    levels, flags = list(_LEVELS), {*_flags()}
    limit = os.environ.get("WIDENET_CPU", levels[0])
    OptionError.require(
        limit in levels, f"must be one of {', '.join(levels)}", place="WIDENET_CPU", value=limit
    )
    return next(
        name
        for number, name in enumerate(levels)
        if number >= levels.index(limit) and all(_LEVELS[lower] <= flags for lower in levels[number:])
    )


@cache
def multiplies_bfloat16() -> Literal["avx512_bf16", "amx_bf16"] | None:
    """Return the instructions of this processor by which the library multiplies bfloat16 operands.

    WIDENET_CPU turns AMX off. Intel's AVX512_BF16 takes twice the time of float32.
    """
    flags = {*_flags()}
    if level() == "v4" and "amx_bf16" in flags and "WIDENET_CPU" not in os.environ and _may_use_tiles():
        return "amx_bf16"
    is_fast = processor_facts().get("vendor_id") != "GenuineIntel"
    return "avx512_bf16" if level() == "v4" and is_fast and "avx512_bf16" in flags else None


def _may_use_tiles() -> bool:
    """Ask Linux for the state of AMX in all threads of this process; return whether it gives that."""
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    return int(ctypes.CDLL(None).syscall(arch_prctl, request_permission, tile_data)) == 0


def processor_facts() -> dict[str, str]:
    """Return Linux's facts about the first processor, by name; on other systems only its architecture."""
    if not _CPUINFO.is_file():
        return {"vendor_id": platform.machine()}
    first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    return dict(re.findall(r"^([^:\t]+?)\s*: *(.*)$", first, re.MULTILINE))


def _flags() -> list[str]:
    """Return what Linux says that the processor has."""
    return processor_facts().get("flags", "").split()


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


def check_dtypes(**tensors: Sequence[Tensor | None]) -> None:
    """Raise TypeError if a tensor has another type than that by whose name it is given."""
    for name, given in tensors.items():
        wrong = {each.dtype for each in given if each is not None} - {getattr(torch, name)}
        if wrong:
            raise TypeError(f"the native library reads {name} here, not {wrong}")


def packed(*fields: Tensor | Packed | int | None) -> Packed:
    """Return a structure of the library: contiguous tensors and structures as pointers, None as null."""
    numbers = [each if isinstance(each, int) else 0 if each is None else _address(each) for each in fields]
    return Packed((ctypes.c_int64 * len(numbers))(*numbers), fields)


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


@cache
def mkl(name: str) -> Any:
    """Return a service function of the MKL inside torch, such as "cbwr_get"; None if this torch lacks it.

    Calling one may fix MKL's settings.
    """
    if not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return None
    folder = Path(torch.__file__).parent / "lib"
    for library in (*sorted(folder.glob("*torch_cpu.*")), "libmkl_rt.so.2"):
        for symbol in (f"mkl_serv_{name}", f"mkl_{name}"):
            try:
                return getattr(ctypes.CDLL(str(library)), symbol)
            except (OSError, AttributeError):
                continue
    return None


Bits = Literal["native", "portable"]

SETTINGS = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "COMPATIBLE"}
"""Environment variables that torch and MKL read once, before their first operation.

Intel promises equal results on its own and other processors only for MKL's COMPATIBLE branch. torch's code
for AVX2 fuses multiplications with additions, its code for older processors does not, and its code for
AVX-512 divides numbers among vectors in another way.
"""

_ALL_SETTINGS, _COMPATIBLE = -1, 3
"""MKL_CBWR_ALL and MKL_CBWR_COMPATIBLE of MKL's C interface."""

_chosen: Bits = "native"


def chosen_bits() -> Bits:
    """Return the bits of this process: those of the trainings that it has made, or "native"."""
    return _chosen


def choose_bits(bits: Bits, device: torch.device) -> None:
    """Make this process round as a training document says; portable bits cannot be turned off again.

    Args:
        bits: "native" or "portable".
        device: The device of the training.

    Raises:
        OptionError: The device or the processor cannot give portable bits, or torch has already computed in
            this process.
    """
    global _chosen
    if bits == _chosen:
        return
    require = partial(OptionError.require, option="bits")
    rule = 'must be "portable" in a process that has trained with portable bits'
    require(bits == "portable", rule, value=bits)
    require(device.type == "cpu", 'needs the device "cpu" to be portable', value=device.type)
    require(mkl("cbwr_get") is not None, "needs a torch for x86-64 with MKL to be portable")
    before = {name: os.environ[name] for name in SETTINGS if name in os.environ}
    os.environ.update(SETTINGS)
    # Both read the settings now, unless they have computed.
    capability = torch.backends.cpu.get_cpu_capability()
    if capability != "AVX2" or mkl("cbwr_get")(_ALL_SETTINGS) != _COMPATIBLE:
        for name in SETTINGS:
            del os.environ[name]
        os.environ.update(before)
        rule = "needs a processor with AVX2 to be portable, and a process in which torch has not computed"
        raise OptionError(rule, option="bits", value=capability)
    # oneDNN's code depends on the processor. In trainings, torch uses it only for gelu.
    torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    _chosen = "portable"


_BEST_FIRST = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2")
"""Instruction sets that make MKL and oneDNN choose other code, by Linux's names."""
_LIMITS = {
    "mkl": ("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR"),
    "onednn": ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"),
}
"""Environment variables that make a library choose lower ones."""


def instruction_sets() -> dict[str, str]:
    """Return the instruction sets that this process uses on its CPU, as plain text by library.

    Equal answers in two processes mean equal bits, given equal library versions. The answers name the
    environment variables that limit a library. Asking makes torch settle on its instruction set, so choose
    the bits of a training first.

    Returns:
        "bits": "native" or "portable". Under portable bits nothing else, because all processors that may give
        them round alike. Otherwise "processor": vendor, family, model, stepping and cache size, because MKL
        cuts products by them. "widenet", "torch", "mkl" and "onednn": the instruction set of each library.
    """
    if chosen_bits() == "portable":
        return {"bits": "portable"}
    facts, flags = processor_facts(), _flags()
    best = next((name for name in _BEST_FIRST if name in flags), platform.machine())
    return {
        "bits": "native",
        "processor": " ".join(
            facts.get(name, "?") for name in ("vendor_id", "cpu family", "model", "stepping", "cache size")
        ),
        "widenet": f"{level()}, {multiplies_bfloat16()}" if multiplies_bfloat16() else level(),
        "torch": torch.backends.cpu.get_cpu_capability(),
        **{
            library: ", ".join(
                [best, *(f"{name}={os.environ[name]}" for name in names if name in os.environ)]
            )
            for library, names in _LIMITS.items()
        },
    }


def library_runs(device: torch.device) -> bool:
    """Return whether the native library runs what it has of the operations on a device."""
    return device.type == "cpu" and library() is not None


def triton_runs(device: torch.device) -> bool:
    """Return whether Triton runs the kernels that there are on a device.

    With TRITON_INTERPRET=1 a CPU runs them too, through Triton's interpreter: slow, for tests.
    """
    return has_triton() and (device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1")


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported."""
    return find_spec("triton") is not None
