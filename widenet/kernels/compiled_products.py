"""Matrix products inside compiled code, by the routine of torch's own products. Needs Numba.

All matrices are float32 and contiguous. The results are those of torch to the bit, because torch calls the
same routine with the same arguments.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from numba.np.arrayobj import populate_array

_AS_IS, _TRANSPOSED = map(np.uint8, b"NT")
_ONE = np.float32(1)


def _call_by_reference(typing: Any, address: Any, values: Any) -> Any:
    """Call the Fortran routine at an address; `values` is a tuple of contiguous arrays and numbers."""
    del typing

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        unpack: Any = cgutils.unpack_tuple
        stored: Any = cgutils.alloca_once_value
        pointers = []
        for kind, value in zip(signature.args[1], unpack(builder, arguments[1]), strict=True):
            if isinstance(kind, types.Array):
                place = context.make_array(kind)(context, builder, value).data
            else:
                place = stored(builder, value)
            pointers.append(builder.bitcast(place, cgutils.voidptr_t))
        kinds = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t] * len(pointers))
        builder.call(builder.inttoptr(arguments[0], kinds.as_pointer()), pointers)
        return context.get_dummy_value()

    return types.void(address, values), generate


call_by_reference: Any = intrinsic(_call_by_reference)


def _view(typing: Any, array: Any, first: Any, shape: Any) -> Any:
    """Return a contiguous array of a shape that begins at number `first` of a contiguous array.

    Numba compiles this much sooner than slices and `reshape`. Nothing is checked, and the array must outlive
    the view.
    """
    del typing
    view = types.Array(array.dtype, len(shape), "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        unpack: Any = cgutils.unpack_tuple
        fill: Any = populate_array
        data = builder.gep(context.make_array(array)(context, builder, arguments[0]).data, [arguments[1]])
        sizes = unpack(builder, arguments[2])
        size = context.get_constant(types.intp, array.dtype.bitwidth // 8)
        strides = [size]
        for length in reversed(sizes[1:]):
            strides.insert(0, builder.mul(strides[0], length))
        result = context.make_array(view)(context, builder)
        fill(result, data, sizes, strides, size, meminfo=None)
        return result._getvalue()

    return view(array, first, shape), generate


view: Any = intrinsic(_view)


@register_jitable
def add_logits(routine: Any, direct_EH: Any, weight_TH: Any, logits_ET: Any) -> None:
    """Compute logits += direct @ weight.T, as `torch.addmm` does after it has written biases there.

    sgemm sees every matrix transposed.
    """
    count, units, inner = np.int32(len(direct_EH)), np.int32(len(weight_TH)), np.int32(weight_TH.shape[1])
    sizes = units, count, inner
    first, second = (weight_TH, inner), (direct_EH, inner)
    call_by_reference(routine, (_TRANSPOSED, _AS_IS, *sizes, _ONE, *first, *second, _ONE, logits_ET, units))


_LINE = 16
"""float32 numbers in a cache line."""


@register_jitable
def room(size: Any) -> Any:
    """Return an array for so many numbers; it begins at a cache line."""
    numbers = np.empty(size + _LINE, np.float32)
    first = -np.int64(numbers.ctypes.data) % (4 * _LINE) // 4
    return numbers[first : first + size]
