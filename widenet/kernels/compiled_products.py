"""Matrix products inside compiled code, by the routine of torch's own products. Needs Numba.

All matrices are float32 and contiguous. The results are those of torch to the bit, because torch calls the
same routine with the same arguments.
"""

import ctypes
import platform
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable

_AS_IS, _TRANSPOSED = ord("N"), ord("T")


@cache
def product_routine() -> int:
    """Return the address of the sgemm of MKL that torch's products call; 0 if torch has no such routine.

    Other builds of torch multiply by other routines too, so their bits could differ.
    """
    if platform.machine() not in ("x86_64", "AMD64") or not torch.backends.mkl.is_available():  # type: ignore[no-untyped-call]
        return 0
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        try:
            routine = ctypes.CDLL(str(library)).sgemm_
        except (OSError, AttributeError):
            continue
        return ctypes.cast(routine, ctypes.c_void_p).value or 0
    return 0


def _call(typing: Any, address: Any, pointers: Any) -> Any:
    """Call the C function at an address, without a result; `pointers` is a tuple of addresses."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        unpack: Any = cgutils.unpack_tuple
        target, unpacked, pointer = arguments[0], unpack(builder, arguments[1]), cgutils.voidptr_t
        kind = ir.FunctionType(ir.VoidType(), [pointer] * len(unpacked))
        builder.call(
            builder.inttoptr(target, kind.as_pointer()), [builder.inttoptr(one, pointer) for one in unpacked]
        )
        return context.get_dummy_value()

    return types.void(address, pointers), generate


call: Any = intrinsic(_call)


@register_jitable
def _multiply(routine: Any, flags: Any, sizes: Any, left: Any, right: Any, factors: Any, result: Any) -> None:
    """Call sgemm, which sees every matrix transposed: result = left @ right + factors[1] * result.

    Args:
        routine: See `product_routine`.
        flags: For `left` and `right`, uint8 [2]: whether sgemm transposes them.
        sizes: Rows and columns of the result as sgemm sees it, the terms of a sum, and the row lengths of
            `left`, `right` and `result` in memory, int32 [6].
        left: First matrix.
        right: Second matrix.
        factors: 1, and the factor on what the result holds, float32 [2].
        result: The result.
    """
    flag, size, factor = flags.ctypes.data, sizes.ctypes.data, factors.ctypes.data
    call(
        routine,
        (
            flag,
            flag + 1,
            size,
            size + 4,
            size + 8,
            factor,
            left.ctypes.data,
            size + 12,
            right.ctypes.data,
            size + 16,
            factor + 4,
            result.ctypes.data,
            size + 20,
        ),
    )


@register_jitable
def fill_logits(routine: Any, direct_EH: Any, weight_TH: Any, logits_ET: Any) -> None:
    """Compute logits = direct @ weight.T."""
    (count, inner), units = direct_EH.shape, len(weight_TH)
    flags = np.array([_TRANSPOSED, _AS_IS], np.uint8)
    sizes = np.array([units, count, inner, inner, inner, units], np.int32)
    _multiply(routine, flags, sizes, weight_TH, direct_EH, np.array([1, 0], np.float32), logits_ET)


@register_jitable
def add_direct_gradient(routine: Any, delta_ET: Any, weight_TH: Any, total_EH: Any) -> None:
    """Compute total += delta @ weight."""
    (count, units), inner = delta_ET.shape, weight_TH.shape[1]
    flags = np.array([_AS_IS, _AS_IS], np.uint8)
    sizes = np.array([inner, count, units, inner, units, inner], np.int32)
    _multiply(routine, flags, sizes, weight_TH, delta_ET, np.array([1, 1], np.float32), total_EH)


@register_jitable
def fill_weight_gradient(routine: Any, delta_ET: Any, direct_EH: Any, gradient_TH: Any) -> None:
    """Compute gradient = delta.T @ direct."""
    (count, units), inner = delta_ET.shape, direct_EH.shape[1]
    flags = np.array([_AS_IS, _TRANSPOSED], np.uint8)
    sizes = np.array([inner, units, count, inner, units, inner], np.int32)
    _multiply(routine, flags, sizes, direct_EH, delta_ET, np.array([1, 0], np.float32), gradient_TH)
