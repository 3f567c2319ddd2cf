"""The service functions of the MKL inside torch."""

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch


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
