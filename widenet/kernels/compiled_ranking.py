"""Ranks the units of a shard in one compiled call: products, the divisor of a softmax, and the k best.

A tile's logits stay in a core's cache, and threads that rank different shards never wait for each other's
Python. The numbers are to the bit those of torch's products with biases, of `softmax_sum` and of
`running_top_k`. Needs Numba, and `product_routine`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba.extending import register_jitable

from widenet.kernels import compiled_products, compiled_search, compiled_softmax
from widenet.kernels.compiled import compile_for, made_once
from widenet.kernels.compiled_products import add_logits, room, view
from widenet.kernels.compiled_search import HIDDEN, SEARCH, RunningTopK, hidden, search_row
from widenet.kernels.compiled_softmax import row_sum
from widenet.kernels.constants import PIECE
from widenet.kernels.native import product_routine

if TYPE_CHECKING:
    from torch import Tensor

Sums = tuple[np.ndarray, np.ndarray]
"""Results of `softmax_sum` for N tiles: the largest logits, float32 [N, E], and the sums, float64 [N, E]."""

NO_SUMS: Sums = (np.empty((0, 0), np.float32), np.empty((0, 0), np.float64))


@dataclass(frozen=True)
class Units:
    """Units of a shard, in tiles.

    Attributes:
        weight_TH: Their vectors, float32, contiguous; int8 for `compiled_quantized`.
        bias_T: Their biases, float32; None: there are none.
        starts: First of them in each tile, then T.
        numbers: Their numbers.
        first_row: Row of the first of them in the shard.
        ends_E: See `compiled_search.hidden`.
        rows_Z: See there.
        barred_R: See there.
    """

    weight_TH: "Tensor"
    bias_T: "Tensor | None"
    starts: list[int]
    numbers: range
    first_row: int
    ends_E: "Tensor | None" = None
    rows_Z: "Tensor | None" = None
    barred_R: "Tensor | None" = None

    def argument(self) -> tuple[Any, ...]:
        """Return the units for the compiled function."""
        return np.uint64(product_routine()), self.weight_TH.numpy(), *self.others()

    def others(self) -> tuple[Any, ...]:
        """Return what compiled functions need beside the vectors."""
        bias_T = np.zeros(len(self.weight_TH), np.float32) if self.bias_T is None else self.bias_T.numpy()
        order = self.numbers.start, self.numbers.step, self.first_row
        return bias_T, np.array(self.starts, np.int64), *order


@register_jitable
def _fill_up(weight_TH: Any, bias_T: Any, wide_UH: Any, wide_U: Any) -> None:
    """Copy units into more of them, and fill up these with zeros."""
    for u in range(len(wide_U)):
        wide_U[u] = bias_T[u] if u < len(bias_T) else np.float32(0)
        for h in range(wide_UH.shape[1]):
            wide_UH[u, h] = weight_TH[u, h] if u < len(bias_T) else np.float32(0)


@register_jitable
def _fill_logits(routine: Any, direct_BH: Any, weight_TH: Any, bias_T: Any, logits_BT: Any) -> None:
    """Compute the logits of a block of examples, as `torch.addmm` does."""
    for b in range(len(direct_BH)):
        for t in range(len(bias_T)):
            logits_BT[b, t] = bias_T[t]
    add_logits(routine, direct_BH, weight_TH, logits_BT)


@made_once
def compiled_ranking() -> Callable[..., None]:
    """Compile `rank`."""

    def ranking(
        direct_EH: Any, of_units: Any, sizes: Any, search: Any, hidden: Any, peak_NE: Any, sum_NE: Any
    ) -> None:
        routine, weight_RH, bias_R, starts, first, step, first_row = of_units
        (rows, least), num, inner = sizes, len(search[1]), direct_EH.shape[1]
        largest = least
        for tile in range(len(starts) - 1):
            largest = max(largest, starts[tile + 1] - starts[tile])
        logits, pieces = room(rows * largest), (np.empty(PIECE, np.float32), np.empty(PIECE, np.float32))
        narrow = room(least * (inner + 1))  # beside the views of it, which do not keep it
        for tile in range(len(starts) - 1):
            start, units = starts[tile], starts[tile + 1] - starts[tile]
            weight_TH, bias_T = view(weight_RH, start * inner, (units, inner)), view(bias_R, start, (units,))
            if units < least:
                wide_UH, wide_U = view(narrow, 0, (least, inner)), view(narrow, least * inner, (least,))
                _fill_up(weight_TH, bias_T, wide_UH, wide_U)
                weight_TH, bias_T = wide_UH, wide_U
            for block in range(0, num, rows):
                logits_BT = view(logits, 0, (rows, len(bias_T)))
                direct_BH = view(direct_EH, block * inner, (rows, inner))
                _fill_logits(routine, direct_BH, weight_TH, bias_T, logits_BT)
                for e in range(block, min(block + rows, num)):
                    logit_T = view(logits, (e - block) * len(bias_T), (units,))
                    if len(peak_NE) > 0:
                        peak_NE[tile, e], sum_NE[tile, e] = row_sum(logit_T, *pieces)
                    search_row(logit_T, e, first_row + start, first + step * start, step, search, hidden)

    row, block, places = "float32[::1]", "float32[:, ::1]", "int64[::1]"
    units = f"Tuple((uint64, {block}, {row}, {places}, int64, int64, int64))"
    arguments = f"{block}, {units}, UniTuple(int64, 2), {SEARCH}, {HIDDEN}, {block}, float64[:, ::1]"
    parts = compiled_search, compiled_products
    within = [Path(module.__file__ or "").read_text("utf-8") for module in parts]
    return compile_for(ranking, f"void({arguments})", *within, *compiled_softmax.sources())


def rank(direct_EH: "Tensor", rows: int, least: int, units: Units, search: RunningTopK, sums: Sums) -> None:
    """Search some units of a shard, and sum up its tiles.

    Args:
        direct_EH: The incoming vectors, float32, contiguous, with rows that fill up the last block.
        rows: Rows of a block.
        least: Fewest units of a product.
        units: The units.
        search: The search.
        sums: Receives the results of `softmax_sum` for each tile, or `NO_SUMS`.
    """
    barred = hidden(units.ends_E, units.rows_Z, units.barred_R)
    compiled_ranking()(direct_EH.numpy(), units.argument(), (rows, least), search.argument, barred, *sums)
