"""Ranks the units of a shard whose vectors are pruned in one compiled call.

A stored number is multiplied by the numbers of 64 examples at once, which lie side by side in memory. The
results are to the bit those of `pruned_logits`, `softmax_sum` and `running_top_k`. Needs Numba.
"""

from collections.abc import Callable
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

from widenet.kernels import compiled_search, compiled_softmax, compiled_sweep
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import view
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
from widenet.kernels.compiled_sweep import room
from widenet.kernels.constants import PIECE

ROWS = 64
"""Examples that are multiplied at once."""

_LANES = 16
_AT_ONCE = 96
"""Units whose logits stay in a core's nearest cache."""


def queries(direct_EH: Tensor) -> np.ndarray:
    """Return the vectors that enter an output, float32 [blocks, H, ROWS], with zeros at the end."""
    blocks = pad(direct_EH, (0, 0, 0, -len(direct_EH) % ROWS)).view(-1, ROWS, direct_EH.shape[1])
    return blocks.transpose(1, 2).contiguous().numpy()


def _filling(num_vectors: int) -> Any:
    """Return a function for compiled code that multiplies a unit by vectors of examples."""

    def fill(typing: Any, query_HB: Any, column_K: Any, value_K: Any, total_B: Any) -> Any:
        """Write the sums of products, in the order of the stored numbers.

        Args:
            typing: The compiler's.
            query_HB: The examples' numbers, float32.
            column_K: The columns of the unit's numbers.
            value_K: The numbers, float32.
            total_B: Receives the sums.
        """
        del typing
        signature = types.void(query_HB, column_K, value_K, total_B)
        return signature, lambda context, builder, signature, arguments: _multiply(
            num_vectors, context, builder, signature.args, arguments
        )

    return intrinsic(fill)


def _multiply(num_vectors: int, context: Any, builder: Any, kinds: Any, arguments: Any) -> Any:
    """Emit the instructions of `_filling`; products and sums are rounded one by one."""
    number = ir.IntType(64)
    lanes = ir.VectorType(ir.FloatType(), _LANES)
    query, column, value, into = (
        context.make_array(kind)(context, builder, argument)
        for kind, argument in zip(kinds, arguments, strict=True)
    )
    unpack: Any = cgutils.unpack_tuple
    count = unpack(builder, value.shape)[0]
    zero, before = ir.Constant(lanes, [0.0] * _LANES), builder.block
    head, loop, after = (builder.append_basic_block(name) for name in ("numbers", "number", "done"))
    builder.branch(head)
    builder.position_at_end(head)
    place = builder.phi(number)
    totals = [builder.phi(lanes) for _ in range(num_vectors)]
    builder.cbranch(builder.icmp_signed("<", place, count), loop, after)
    builder.position_at_end(loop)
    own = builder.zext(builder.load(builder.gep(column.data, [place])), number)
    factor = _everywhere(builder, builder.load(builder.gep(value.data, [place])), lanes)
    start = builder.mul(own, number(ROWS))
    place.add_incoming(number(0), before)
    place.add_incoming(builder.add(place, number(1)), loop)
    for vector, total in enumerate(totals):
        source = builder.gep(query.data, [builder.add(start, number(vector * _LANES))])
        loaded = builder.load(builder.bitcast(source, lanes.as_pointer()), align=4)
        total.add_incoming(zero, before)
        total.add_incoming(builder.fadd(total, builder.fmul(loaded, factor)), loop)
    builder.branch(head)
    builder.position_at_end(after)
    for vector, total in enumerate(totals):
        target = builder.gep(into.data, [number(vector * _LANES)])
        builder.store(total, builder.bitcast(target, lanes.as_pointer()), align=4)
    return context.get_dummy_value()


def _everywhere(builder: Any, value: Any, lanes: Any) -> Any:
    """Return a vector of one value."""
    nothing, word = ir.Constant(lanes, ir.Undefined), ir.IntType(32)
    first = builder.insert_element(nothing, value, word(0))
    return builder.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(word, _LANES), [0] * _LANES))


_fill_all: Any = _filling(ROWS // _LANES)
_fill_few: Any = _filling(1)


@register_jitable
def _fill_logits(query_HB: Any, count: Any, of_units: Any, row: Any, units: Any, logit_N: Any) -> None:
    """Compute the logits [units, ROWS] of some units, of which the first `count` examples are needed."""
    column_RK, value_RK, factor_R, bias_R = of_units
    kept = value_RK.shape[1]
    for unit in range(units):
        own, first = view(logit_N, unit * ROWS, (ROWS,)), (row + unit) * kept
        column_K, value_K = view(column_RK, first, (kept,)), view(value_RK, first, (kept,))
        if count <= _LANES:
            _fill_few(query_HB, column_K, value_K, own)
        else:
            _fill_all(query_HB, column_K, value_K, own)
        factor, bias = factor_R[row + unit], bias_R[row + unit]
        for b in range(ROWS):
            own[b] = own[b] * factor + bias


_ROW, _BLOCK = "float32[::1]", "float32[:, ::1]"


@made_once
def compiled_pruned_ranking(column: str) -> Callable[..., None]:
    """Compile `rank_pruned` for columns of a type."""

    def ranking(
        query_NHB: Any, of_units: Any, places: Any, search: Any, hidden: Any, peak_NE: Any, sum_NE: Any
    ) -> None:
        starts, first, step, first_row = places
        num, inner, divides, largest = len(search[1]), query_NHB.shape[1], len(peak_NE) > 0, 1
        for tile in range(len(starts) - 1):
            largest = max(largest, starts[tile + 1] - starts[tile])
        logit_N, turned, bound_B = room(_AT_ONCE * ROWS), room(ROWS * largest if divides else 1), room(ROWS)
        pieces = np.empty(PIECE, np.float32), np.empty(PIECE, np.float32)
        for tile in range(len(starts) - 1):
            start, width = starts[tile], starts[tile + 1] - starts[tile]
            for block in range(0, num, ROWS):
                query_HB = view(query_NHB, block * inner, (inner, ROWS))
                count = min(ROWS, num - block)
                for place in range(0, width, _AT_ONCE):
                    row, units = start + place, min(_AT_ONCE, width - place)
                    _fill_logits(query_HB, count, of_units, row, units, logit_N)
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

    units = f"Tuple(({column}[:, ::1], {_BLOCK}, {_ROW}, {_ROW}))"
    places = "Tuple((int64[::1], int64, int64, int64))"
    arguments = f"float32[:, :, ::1], {units}, {places}, {SEARCH}, {HIDDEN}, {_BLOCK}, float64[:, ::1]"
    parts = compiled_search, compiled_sweep
    within = [Path(module.__file__ or "").read_text("utf-8") for module in parts]
    return compile_for(ranking, f"void({arguments})", *within, *compiled_softmax.sources())


@made_once
def compiled_pruned_logits(column: str) -> Callable[..., None]:
    """Compile `pruned_logits` for columns of a type; receives [E, T] with E a multiple of `ROWS`."""

    def logits(query_NHB: Any, of_units: Any, logits_ET: Any) -> None:
        num, inner, width = len(query_NHB), query_NHB.shape[1], logits_ET.shape[1]
        logit_N = room(_AT_ONCE * ROWS)
        for block in range(num):
            query_HB = view(query_NHB, block * inner * ROWS, (inner, ROWS))
            logit_BT = view(logits_ET, block * ROWS * width, (ROWS, width))
            for place in range(0, width, _AT_ONCE):
                units = min(_AT_ONCE, width - place)
                _fill_logits(query_HB, ROWS, of_units, place, units, logit_N)
                turn_block(view(logit_N, 0, (units, ROWS)), place, logit_BT)

    units = f"Tuple(({column}[:, ::1], {_BLOCK}, {_ROW}, {_ROW}))"
    parts = compiled_search, compiled_sweep
    within = [Path(module.__file__ or "").read_text("utf-8") for module in parts]
    return compile_for(logits, f"void(float32[:, :, ::1], {units}, {_BLOCK})", *within)


def rank_pruned(
    query_NHB: np.ndarray, units: Units, column_TK: Tensor, factor_T: Tensor, search: RunningTopK, sums: Sums
) -> None:
    """Search some units of a shard whose vectors are pruned, and sum up its tiles.

    Args:
        query_NHB: The incoming vectors; see `queries`.
        units: The units; their vectors are the stored numbers, float32 [T, K].
        column_TK: The columns of these numbers.
        factor_T: What each unit's sum of products is multiplied by, float32.
        search: The search.
        sums: Receives the results of `softmax_sum` for each tile, or `NO_SUMS`.
    """
    barred = hidden(units.ends_E, units.rows_Z, units.barred_R)
    bias_T, *places = units.others()
    of_units = column_TK.numpy(), units.weight_TH.numpy(), factor_T.numpy(), bias_T
    ranking = compiled_pruned_ranking(str(column_TK.numpy().dtype))
    ranking(query_NHB, of_units, tuple(places), search.argument, barred, *sums)


def logits(
    direct_EH: Tensor, column_TK: Tensor, value_TK: Tensor, factor_T: Tensor, bias_T: Tensor
) -> Tensor:
    """See `pruned_logits`."""
    query_NHB = queries(direct_EH)
    logits_ET = torch.empty(len(query_NHB) * ROWS, len(value_TK))
    of_units = column_TK.numpy(), value_TK.numpy(), factor_T.numpy(), bias_T.numpy()
    compiled_pruned_logits(str(column_TK.numpy().dtype))(query_NHB, of_units, logits_ET.numpy())
    return logits_ET[: len(direct_EH)]
