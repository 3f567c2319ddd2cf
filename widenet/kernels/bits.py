"""Portable bits: settings of torch and MKL under which all x86-64 processors with AVX2 round alike."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

from widenet.errors import OptionError


@cache
def mkl(name: str) -> Any:
    """Return a service function of the MKL inside torch, such as "cbwr_set"; None if this torch lacks it.

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

_COMPATIBLE = 3
"""MKL_CBWR_COMPATIBLE of MKL's C interface."""

_ALL_SETTINGS = -1
"""MKL_CBWR_ALL."""

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
    if bits == "native":
        raise OptionError(
            'must be "portable" in a process that has trained with portable bits',
            option="bits",
            value="native",
        )
    if device.type != "cpu":
        raise OptionError('needs the device "cpu" to be portable', option="bits", value=device.type)
    if mkl("cbwr_get") is None:
        raise OptionError("needs a torch for x86-64 with MKL to be portable", option="bits")
    with _in_environment():
        _settle()
    # oneDNN's code depends on the processor. In trainings, torch uses it only for gelu.
    torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    _chosen = "portable"


def _settle() -> None:
    """Make torch and MKL read the settings; raise OptionError if it is too late, or the processor too old."""
    capability = torch.backends.cpu.get_cpu_capability()
    if capability not in ("AVX2", "AVX512"):
        raise OptionError("needs a processor with AVX2 to be portable", option="bits", value=capability)
    if capability != "AVX2" or mkl("cbwr_get")(_ALL_SETTINGS) != _COMPATIBLE:
        raise OptionError(
            "must be portable before torch computes, and torch has computed in this process", option="bits"
        )


@contextmanager
def _in_environment() -> Iterator[None]:
    """Put the settings into the environment; remove them if the block raises OptionError."""
    before = {name: os.environ.get(name) for name in SETTINGS}
    os.environ.update(SETTINGS)
    try:
        yield
    except OptionError:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        raise
