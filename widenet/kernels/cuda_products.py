"""The settings of torch that decide how CUDA rounds the operands and sums of matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any

import torch

_MATMUL: Any = torch.backends.cuda.matmul
_REDUCTIONS = "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"
_PRECISION = "fp32_precision"
"""torch's setting of float32 products since 2.9."""

_LOCK = Lock()
_OPEN: list[bool] = []
"""The blocks that are open, in all threads: whether their products are in TF32."""
_BEFORE: dict[str, Any] = {}
"""torch's settings before the first of them."""


@contextmanager
def cuda_products(tf32: bool = False) -> Iterator[None]:
    """Within the block, CUDA adds the terms of products in float32, whatever the program has set elsewhere.

    The settings hold for all threads: while one trains in TF32, so do the others on CUDA. The end of the last
    open block restores them.

    Args:
        tf32: Whether products of float32 operands round them to TF32. If not, they are computed in float32.
    """
    with _LOCK:
        if not _OPEN:
            _save()
        _OPEN.append(tf32)
        _MATMUL.allow_tf32 = any(_OPEN)
    try:
        yield
    finally:
        with _LOCK:
            _OPEN.remove(tf32)
            _MATMUL.allow_tf32 = any(_OPEN)
            if not _OPEN:
                _restore()


def _save() -> None:
    _BEFORE.update({name: getattr(_MATMUL, name, None) for name in (*_REDUCTIONS, _PRECISION)})
    with suppress(RuntimeError):  # the older setting of float32 products contradicts the newer
        _BEFORE["older"] = torch.get_float32_matmul_precision()
    for name in _REDUCTIONS:
        setattr(_MATMUL, name, False)


def _restore() -> None:
    older = _BEFORE.pop("older", None)
    if older == "medium":
        torch.set_float32_matmul_precision(older)
    elif older is not None:
        _MATMUL.allow_tf32 = older == "high"
    while _BEFORE:
        name, value = _BEFORE.popitem()
        if value is not None:
            setattr(_MATMUL, name, value)
