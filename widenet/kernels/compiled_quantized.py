"""Ranks the units of a shard in 8 bits in one compiled call, by instructions that multiply whole numbers.

The numbers are to the bit those of `quantized_logits`, `softmax_sum` and `running_top_k`. Needs Numba, and a
processor with AVX-512 VNNI: see `multiplies_bytes`.
"""

import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic, register_jitable
from torch import Tensor
from torch.nn.functional import pad

from widenet.kernels import compiled_products, compiled_search, compiled_softmax
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import room, view
from widenet.kernels.compiled_ranking import Sums, Units
from widenet.kernels.compiled_search import (
    HIDDEN,
    SEARCH,
    RunningTopK,
    hidden,
    search_units,
    set_floor,
    turn_block,
)
from widenet.kernels.compiled_softmax import row_sum
from widenet.kernels.constants import PIECE
from widenet.kernels.quantized import quantized_queries

ROWS = 64
"""Examples that are multiplied at once."""

_LANES, _BYTES = 16, 4
"""An instruction adds up four products for each of 16 examples."""
_VECTORS = ROWS // _LANES
_UNITS = 6
"""Units that are multiplied at once: their sums, and what they are made of, fill the registers."""
_AT_ONCE = 16 * _UNITS
"""Units whose logits stay in a core's nearest cache."""
_SHIFT = 128
"""The instruction takes the units' numbers without a sign, so that this is added to them."""
_SHIFT_BITS = 0x80808080 - 2**32  # as a signed number

_INSTRUCTION = "llvm.x86.avx512.vpdpbusd.512"


@cache
def multiplies_bytes() -> bool:
    """Return whether Numba compiles for a processor that has the instruction."""
    from numba.core import config
    from numba.core.codegen import get_host_cpu_features

    of_host: Any = get_host_cpu_features
    chosen = getattr(config, "CPU_FEATURES", None)
    features = of_host() if chosen is None else chosen
    return platform.machine() in ("x86_64", "AMD64") and "+avx512vnni" in features.split(",")


@dataclass(frozen=True)
class Queries:
    """The vectors of examples that enter an output, rounded.

    Attributes:
        byte_N: Their whole numbers, int8: for every `ROWS` examples, and for every four columns, those of the
            first example, then of the next one.
        shift_E: What the shift of the units' numbers adds to each example's products, int32.
        scale_E: The examples' scales, float32.
    """

    byte_N: np.ndarray
    shift_E: np.ndarray
    scale_E: np.ndarray

    @classmethod
    def of(cls, direct_EH: Tensor) -> "Queries":
        """Round vectors, whose number is a multiple of `ROWS`."""
        whole_EH, scale_E = quantized_queries(direct_EH)
        whole_EH = pad(whole_EH, (0, -whole_EH.shape[1] % _BYTES))
        blocks = whole_EH.view(-1, ROWS, whole_EH.shape[1] // _BYTES, _BYTES)
        shift_E = _SHIFT * whole_EH.sum(dim=1, dtype=torch.int32)
        return cls(blocks.transpose(1, 2).reshape(-1).numpy(), shift_E.numpy(), scale_E.numpy())


def _filling(units: int, vectors: int) -> Any:
    """Return a function for compiled code that multiplies consecutive units by vectors of examples."""

    def fill(typing: Any, byte_N: Any, first: Any, weight_RH: Any, row: Any, groups: Any, sum_N: Any) -> Any:
        """Write the sums of products, int32 [units, ROWS], of the first vectors of `ROWS` examples.

        Args:
            typing: The compiler's.
            byte_N: See `Queries`.
            first: The first of them.
            weight_RH: The units' whole numbers, int8; rows begin at multiples of four bytes.
            row: The first of the units.
            groups: Number of groups of four columns.
            sum_N: Receives the sums.
        """
        del typing
        signature = types.void(byte_N, first, weight_RH, row, groups, sum_N)
        return signature, lambda context, builder, signature, arguments: _multiply(
            units, vectors, context, builder, signature.args, arguments
        )

    return intrinsic(fill)


def _multiply(units: int, num_vectors: int, context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
    """Emit the instructions of `_filling`."""
    byte_N, first, weight_RH, row, groups, sum_N = arguments
    number, word = ir.IntType(64), ir.IntType(32)
    lanes = ir.VectorType(word, _LANES)
    queries = builder.gep(context.make_array(kinds[0])(context, builder, byte_N).data, [first])
    weight = context.make_array(kinds[2])(context, builder, weight_RH)
    unpack: Any = cgutils.unpack_tuple
    declared: Any = cgutils.get_or_insert_function
    instruction = declared(builder.module, ir.FunctionType(lanes, [lanes] * 3), _INSTRUCTION)
    stride = unpack(builder, weight.strides)[0]
    rows = [
        builder.gep(weight.data, [builder.mul(builder.add(row, number(unit)), stride)])
        for unit in range(units)
    ]
    before = builder.block
    loop, after = builder.append_basic_block("groups"), builder.append_basic_block("done")
    builder.branch(loop)
    builder.position_at_end(loop)
    group = builder.phi(number)
    group.add_incoming(number(0), before)
    sums = [[builder.phi(lanes) for _ in range(num_vectors)] for _ in rows]
    vectors = [
        _load(builder, queries, builder.mul(group, number(ROWS * _BYTES)), place * _LANES * _BYTES, lanes)
        for place in range(num_vectors)
    ]
    for own, own_row in zip(sums, rows, strict=True):
        four = _load(builder, own_row, builder.mul(group, number(_BYTES)), 0, word)
        # Each number is shifted before it is spread: LLVM 22 does not end when it compiles the other order.
        shifted = _everywhere(builder, builder.xor(four, word(_SHIFT_BITS)), lanes)
        for total, vector in zip(own, vectors, strict=True):
            total.add_incoming(_constant(lanes, 0), before)
            total.add_incoming(builder.call(instruction, [total, shifted, vector]), loop)
    following = builder.add(group, number(1))
    group.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, groups), loop, after)
    builder.position_at_end(after)
    into = context.make_array(kinds[5])(context, builder, sum_N).data
    for unit, own in enumerate(sums):
        for place, total in enumerate(own):
            target = builder.gep(into, [number(unit * ROWS + place * _LANES)])
            result = total.incomings[-1][0]
            builder.store(result, builder.bitcast(target, lanes.as_pointer()), align=_BYTES)
    return context.get_dummy_value()


def _load(builder: Any, base: Any, offset: Any, further: int, kind: Any) -> Any:
    """Load a number or a vector at a distance of bytes."""
    place = builder.gep(base, [builder.add(offset, offset.type(further))])
    return builder.load(builder.bitcast(place, kind.as_pointer()), align=1)


def _everywhere(builder: Any, value: Any, lanes: Any) -> Any:
    """Return a vector of one value."""
    nothing = ir.Constant(lanes, ir.Undefined)
    first = builder.insert_element(nothing, value, ir.IntType(32)(0))
    return builder.shuffle_vector(first, nothing, _constant(lanes, 0))


def _constant(lanes: Any, value: int) -> Any:
    return ir.Constant(lanes, [value] * _LANES)


_fill_several: Any = _filling(_UNITS, _VECTORS)
_fill_one: Any = _filling(1, _VECTORS)
_fill_narrow: Any = _filling(_UNITS, 1)


@register_jitable
def _fill_sums(byte_N: Any, first: Any, count: Any, weight_RH: Any, row: Any, units: Any, sum_N: Any) -> None:
    """Write the sums of products of some units and `ROWS` examples, of which the first `count` are needed."""
    groups, whole = (weight_RH.shape[1] + _BYTES - 1) // _BYTES, units // _UNITS * _UNITS
    for unit in range(0, whole, _UNITS):
        into = view(sum_N, unit * ROWS, (_UNITS * ROWS,))
        if count <= _LANES:
            _fill_narrow(byte_N, first, weight_RH, row + unit, groups, into)
        else:
            _fill_several(byte_N, first, weight_RH, row + unit, groups, into)
    for unit in range(whole, units):
        _fill_one(byte_N, first, weight_RH, row + unit, groups, view(sum_N, unit * ROWS, (ROWS,)))


@register_jitable
def _fill_logits(
    sum_N: Any, units: Any, shift_B: Any, scale_B: Any, factor_U: Any, bias_U: Any, logit_N: Any
) -> None:
    """Compute the logits [units, ROWS] from the sums of products; see `quantized_logits`."""
    for unit in range(units):
        factor, bias = factor_U[unit], bias_U[unit]
        for b in range(ROWS):
            whole = np.int32(sum_N[unit * ROWS + b] - shift_B[b])
            logit_N[unit * ROWS + b] = np.float32(whole) * factor * scale_B[b] + bias


@made_once
def compiled_quantized_ranking() -> Callable[..., None]:
    """Compile `rank_quantized`."""

    def ranking(queries: Any, of_units: Any, search: Any, hidden: Any, peak_NE: Any, sum_NE: Any) -> None:
        (byte_N, shift_E, scale_E), num, divides = queries, len(search[1]), len(peak_NE) > 0
        weight_RH, factor_R, bias_R, starts, first, step, first_row = of_units
        block_bytes, largest = len(byte_N) // (len(scale_E) // ROWS), 1
        for tile in range(len(starts) - 1):
            largest = max(largest, starts[tile + 1] - starts[tile])
        sum_N, logit_N = np.zeros(_AT_ONCE * ROWS, np.int32), room(_AT_ONCE * ROWS)
        turned = room(ROWS * largest if divides else 1)
        pieces, bound_B = (np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)), room(ROWS)
        for tile in range(len(starts) - 1):
            start, width = starts[tile], starts[tile + 1] - starts[tile]
            for block in range(0, num, ROWS):
                shift_B, scale_B = view(shift_E, block, (ROWS,)), view(scale_E, block, (ROWS,))
                count = min(ROWS, num - block)
                for place in range(0, width, _AT_ONCE):
                    row, units = start + place, min(_AT_ONCE, width - place)
                    _fill_sums(byte_N, block // ROWS * block_bytes, count, weight_RH, row, units, sum_N)
                    factor_U, bias_U = view(factor_R, row, (units,)), view(bias_R, row, (units,))
                    _fill_logits(sum_N, units, shift_B, scale_B, factor_U, bias_U, logit_N)
                    logit_UB = view(logit_N, 0, (units, ROWS))
                    if divides:
                        turn_block(logit_UB, place, view(turned, 0, (ROWS, width)))
                    of_rows = first_row + row, first + step * row, step
                    search_units(logit_UB, block, count, of_rows, search, hidden, bound_B)
                for e in range(block, block + count):
                    if tile == 0:
                        set_floor(search, e)
                    if divides:
                        logit_T = view(turned, (e - block) * width, (width,))
                        peak_NE[tile, e], sum_NE[tile, e] = row_sum(logit_T, *pieces)

    row, places = "float32[::1]", "int64[::1]"
    units = f"Tuple((Array(int8, 2, 'A', aligned=True), {row}, {row}, {places}, int64, int64, int64))"
    queries = f"Tuple((int8[::1], int32[::1], {row}))"
    arguments = f"{queries}, {units}, {SEARCH}, {HIDDEN}, float32[:, ::1], float64[:, ::1]"
    parts = compiled_search, compiled_products
    within = [Path(module.__file__ or "").read_text("utf-8") for module in parts]
    return compile_for(ranking, f"void({arguments})", *within, *compiled_softmax.sources())


def rank_quantized(queries: Queries, units: Units, factor_T: Tensor, search: RunningTopK, sums: Sums) -> None:
    """Search some units of a shard in 8 bits, and sum up its tiles.

    Args:
        queries: The incoming vectors, with rows that fill up the last block.
        units: The units; their vectors are int8.
        factor_T: What each unit's whole numbers are multiplied by, float32.
        search: The search.
        sums: Receives the results of `softmax_sum` for each tile, or `NO_SUMS`.
    """
    barred = hidden(units.ends_E, units.rows_Z, units.barred_R)
    compiled_quantized_ranking()(
        (queries.byte_N, queries.shift_E, queries.scale_E),
        (units.weight_TH.numpy(), factor_T.numpy(), *units.others()),
        search.argument,
        barred,
        *sums,
    )
