"""The instruction sets that a CPU's products use, on which their bits depend."""

import ctypes
import os
import platform
import re
from functools import cache
from pathlib import Path

import torch

from widenet.kernels.bits import chosen_bits, mkl
from widenet.kernels.native import level, multiplies_bfloat16

_CPUINFO = Path("/proc/cpuinfo")
_ALL_SETTINGS, _OFF = -1, 1
"""MKL_CBWR_ALL and MKL_CBWR_BRANCH_OFF of MKL's C interface."""

_ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
_ONEDNN = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx2")
"""Instruction sets that make oneDNN choose other code, best first, by Linux's names."""


def instruction_sets() -> dict[str, str]:
    """Return the instruction sets that this process uses on its CPU, as plain text by library.

    Equal answers in two processes mean equal bits, given equal library versions. The answers respect the
    environment variables that limit a library, such as ATEN_CPU_CAPABILITY, MKL_ENABLE_INSTRUCTIONS,
    MKL_CBWR and ONEDNN_MAX_CPU_ISA. Asking makes torch and MKL settle on
    their instruction sets, so choose the bits of a training first.

    Returns:
        "bits": "native" or "portable". Under portable bits nothing else, because all processors that may give
        them round alike. Otherwise "processor": vendor, family, model, stepping and cache size, because MKL
        cuts products by them. "widenet", "torch", "mkl" and "onednn": the instruction set of each library;
        "none" if it is absent.
    """
    if chosen_bits() == "portable":
        return {"bits": "portable"}
    facts = _facts()
    return {
        "bits": "native",
        "processor": " ".join(
            facts.get(name, "?") for name in ("vendor_id", "cpu family", "model", "stepping", "cache size")
        ),
        "widenet": f"{level()}, bfloat16" if multiplies_bfloat16() else level(),
        "torch": torch.backends.cpu.get_cpu_capability(),
        "mkl": _of_mkl(),
        "onednn": _of_onednn(facts.get("flags", "").split()),
    }


@cache
def _facts() -> dict[str, str]:
    """Return Linux's facts about the first processor, by name; on other systems only its architecture."""
    if not _CPUINFO.is_file():
        return {"vendor_id": platform.machine()}
    first = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    return dict(re.findall(r"^([^:\t]+?)\s*: *(.*)$", first, re.MULTILINE))


class _Version(ctypes.Structure):
    """MKL's MKLVersion."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("major", "minor", "update")),
        *((name, ctypes.c_char_p) for name in ("product", "build", "processor", "platform")),
    )


def _of_mkl() -> str:
    """Return MKL's name for the instruction set that it has chosen, and the branch that MKL_CBWR selects.

    On processors of other vendors than Intel the name is always the same, and MKL ignores
    MKL_ENABLE_INSTRUCTIONS.
    """
    ask = mkl("get_version")
    if ask is None:
        return "none"
    version = _Version()
    ask(ctypes.byref(version))
    words = (version.processor or b"").decode()
    settings = mkl("cbwr_get")
    branch = _OFF if settings is None else settings(_ALL_SETTINGS)
    return words if branch == _OFF else f"{words}, MKL_CBWR {branch:#x}"


def _of_onednn(flags: list[str]) -> str:
    """Return the best instruction set of the processor for oneDNN, and the limit set by the environment."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return "none"
    best = next((name for name in _ONEDNN if name in flags), platform.machine())
    limit = next((os.environ[name].lower() for name in _ONEDNN_LIMITS if os.environ.get(name)), None)
    return best if limit is None else f"{best}, at most {limit}"
