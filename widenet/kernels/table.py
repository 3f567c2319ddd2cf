"""The table of operations: which implementation of each runs on a device. Nothing else decides that."""

import os
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch

from widenet.kernels.native import library

Runner = Literal["triton", "native", "torch"]
"""Triton's kernels, the native library, or torch's operations."""
Operation = Literal[
    "gather_sum",
    "row_update",
    "tile",
    "fixed_sum",
    "exact_sum",
    "running_top_k",
    "ranking",
    "neighbour_means",
    "cut",
    "stable_sort",
]

TABLE: dict[Operation, tuple[Runner, ...]] = {
    "gather_sum": ("triton", "native", "torch"),
    "row_update": ("triton", "native", "torch"),
    "tile": ("native", "torch"),
    "fixed_sum": ("triton", "native", "torch"),
    "exact_sum": ("triton", "native", "torch"),
    "running_top_k": ("triton", "native", "torch"),
    "ranking": ("native", "torch"),
    "neighbour_means": ("native", "torch"),
    "cut": ("native", "torch"),
    "stable_sort": ("native", "torch"),
}
"""The implementations of every operation, the fastest first: the first that the device runs is taken.

gather_sum: sums of weight rows. row_update: an optimizer's step of rows or tiles. tile: a step of an
output. ranking: logits outside training, their best units, and the divisors of a softmax.
neighbour_means: similarities of units to the features of examples. cut: entries by shard. stable_sort: also
`grouped`.
"""

FUSED_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw")
"""The optimizers that `native/steps.cpp` and `triton/advance.py` have."""


def runner(operation: Operation, device: torch.device) -> Runner:
    """Return what runs an operation on a device."""
    return next(candidate for candidate in TABLE[operation] if _runs(candidate, device))


def step_runner(device: torch.device, optimizer: str) -> Runner:
    """Return what runs "row_update" for an optimizer, by its kind; torch has all."""
    return runner("row_update", device) if optimizer in FUSED_OPTIMIZERS else "torch"


@cache
def has_triton() -> bool:
    """Return whether Triton can be imported."""
    return find_spec("triton") is not None


def is_interpreted() -> bool:
    """Return whether Triton's interpreter runs its kernels."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def _runs(candidate: Runner, device: torch.device) -> bool:
    """Whether a device runs an implementation.

    With TRITON_INTERPRET=1 a CPU runs Triton's too, through its interpreter: slow, for tests.
    """
    match candidate:
        case "triton":
            return has_triton() and (device.type == "cuda" or is_interpreted())
        case "native":
            return device.type == "cpu" and library() is not None
    return True
