"""The settings of torch that decide how CUDA rounds the operands and sums of matrix products."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

_REDUCTIONS = "allow_bf16_reduced_precision_reduction", "allow_fp16_reduced_precision_reduction"


@dataclass
class _Users:
    """The blocks that are open, in all threads, and torch's settings from before the first of them."""

    blocks: int = 0
    tf32_blocks: int = 0
    reductions: dict[str, Any] = field(default_factory=dict)
    precision: tuple[str | None, str | None] = None, None


_USERS, _LOCK = _Users(), Lock()


@contextmanager
def cuda_products(tf32: bool = False) -> Iterator[None]:
    """Within the block, CUDA adds the terms of products in float32, whatever the program has set elsewhere.

    The settings hold for all threads: while one trains in TF32, so do the others on CUDA. The end of the last
    open block restores them.

    Args:
        tf32: Whether products of float32 operands round them to TF32. If not, they are computed in float32.
    """
    with _LOCK:
        if not _USERS.blocks:
            _save()
        _count(1, tf32)
    try:
        yield
    finally:
        with _LOCK:
            _count(-1, tf32)
            if not _USERS.blocks:
                _restore()


def _count(number: int, tf32: bool) -> None:
    """Count a block that begins (1) or ends (-1), and set what the open ones need."""
    _USERS.blocks += number
    _USERS.tf32_blocks += number * tf32
    torch.backends.cuda.matmul.allow_tf32 = _USERS.tf32_blocks > 0


def _save() -> None:
    matmul: Any = torch.backends.cuda.matmul
    _USERS.reductions, _USERS.precision = {name: getattr(matmul, name) for name in _REDUCTIONS}, _precision()
    for name in _REDUCTIONS:
        setattr(matmul, name, False)


def _precision() -> tuple[str | None, str | None]:
    """Return torch's two settings of float32 products; None for one that is unknown.

    torch before 2.9 has one of them. Later ones refuse to tell the older setting if it contradicts the newer.
    """
    matmul: Any = torch.backends.cuda.matmul
    try:
        older = torch.get_float32_matmul_precision()
    except RuntimeError:
        older = None
    return older, getattr(matmul, "fp32_precision", None)


def _restore() -> None:
    matmul: Any = torch.backends.cuda.matmul
    for name, value in _USERS.reductions.items():
        setattr(matmul, name, value)
    older, newer = _USERS.precision
    if older == "medium":
        torch.set_float32_matmul_precision(older)
    elif older is not None:
        matmul.allow_tf32 = older == "high"
    if newer is not None:
        matmul.fp32_precision = newer
