"""The table of operations: which implementation of each runs on a device. Nothing else decides that."""

import os
import sys
from functools import cache
from importlib.util import find_spec
from typing import Literal

import torch

from widenet.kernels.compiled import can_compile
from widenet.kernels.native import library

Runner = Literal["triton", "native", "numba", "torch"]
"""Triton's kernels, the native library, Numba's compiled code, or torch's operations."""
Operation = Literal[
    "gather_sum",
    "row_update",
    "tile",
    "fixed_sum",
    "exact_sum",
    "softmax_sum",
    "running_top_k",
    "ranking",
    "neighbour_means",
    "cut",
    "stable_sort",
    "attention",
]

TABLE: dict[Operation, tuple[Runner, ...]] = {
    "gather_sum": ("triton", "torch"),
    "row_update": ("triton", "native", "torch"),
    "tile": ("triton", "native", "torch"),
    "fixed_sum": ("triton", "native", "torch"),
    "exact_sum": ("triton", "native", "torch"),
    "softmax_sum": ("numba", "torch"),
    "running_top_k": ("triton", "numba", "torch"),
    "ranking": ("numba", "torch"),
    "neighbour_means": ("native", "torch"),
    "cut": ("native", "torch"),
    "stable_sort": ("native", "torch"),
    "attention": ("triton", "torch"),
}
"""The implementations of every operation, the fastest first: the first that the device runs is taken.

gather_sum: sums of weight rows. row_update: an optimizer's step of rows or tiles. tile: loss and slopes of a
tile's logits. ranking: products, `softmax_sum` and `running_top_k` over all tiles of a shard.
neighbour_means: similarities of units to the features of examples. cut: entries by shard. stable_sort: also
`grouped`. attention: also its gradients.
"""


_NATIVE_TILE = ("sigmoid", "cross_entropy")

TRITON_ACTIVATIONS = (
    "closed softmax",
    "sigmoid",
    "tanh",
    "relu",
    "selu",
    "softplus",
    "softsign",
    "linear",
    "gelu",
    "silu",
    "leaky_relu",
    "elu",
)
"""The activations of outputs that `triton/formulas.py` has."""
TRITON_LOSSES = (
    "cross_entropy",
    "scaled_marginal_cross_entropy",
    "data_scaled_marginal_cross_entropy",
    "l1",
    "l2",
    "hinge",
    "l2_hinge",
    "cosine_contrastive",
)
"""The losses that `triton/formulas.py` has."""
FUSED_OPTIMIZERS = ("sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adadelta", "adam", "adamw")
"""The optimizers that `native/steps.cpp` and `triton/advance.py` have."""


_DIFFERING = ("gather_sum", "row_update", "tile", "attention")
"""Operations whose implementations differ in the last bits. Those of all others give the same."""
_FEW = 2**16
"""Numbers that torch handles sooner than Numba is loaded."""


def runner(operation: Operation, device: torch.device, count: int = _FEW) -> Runner:
    """Return what runs an operation on a device.

    If all implementations give the same bits, torch handles few numbers until somebody has loaded Numba,
    which takes most of a second.

    Args:
        operation: The operation.
        device: The device.
        count: How many numbers it handles.
    """
    is_small = operation not in _DIFFERING and count < _FEW and "numba" not in sys.modules
    candidates = [candidate for candidate in TABLE[operation] if candidate != "numba" or not is_small]
    return next(candidate for candidate in candidates if _runs(candidate, device))


def load_compiled() -> None:
    """Load Numba if it can be, so that it runs operations on few numbers, too, from now on."""
    can_compile()


def tile_runner(device: torch.device, activation: str, loss: str) -> Runner:
    """Return what runs "tile" for units of an activation, or of "closed softmax", and a loss, by their kinds.

    torch has all kinds, Triton those that it has formulas of, and the native library two.
    """
    match runner("tile", device):
        case "triton" if activation in TRITON_ACTIVATIONS and loss in TRITON_LOSSES:
            return "triton"
        case "native" if activation == "closed softmax" or (activation, loss) == _NATIVE_TILE:
            return "native"
    return "torch"


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
        case "numba":
            return device.type == "cpu" and can_compile()
    return True
