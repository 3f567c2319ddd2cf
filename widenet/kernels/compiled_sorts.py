"""Stable sorting and grouping of integers, compiled for CPUs, and sorting of entries by shard."""

from collections.abc import Callable
from typing import Any

from widenet.kernels.compiled import compile_for, made_once

DIGIT_BITS = 12
"""The most bits of a digit of `compiled_sort`."""


@made_once
def compiled_group() -> Callable[..., int]:
    """Compile a function that writes distinct keys and their first entries, and returns their number."""

    def group(sorted_Z: Any, keys_U: Any, indptr: Any) -> int:
        count = 0
        for z in range(len(sorted_Z)):
            if z == 0 or sorted_Z[z] != sorted_Z[z - 1]:
                keys_U[count], indptr[count] = sorted_Z[z], z
                count += 1
        indptr[count] = len(sorted_Z)
        return count

    row = "int64[::1]"
    return compile_for(group, f"int64({row}, {row}, {row})")


@made_once
def compiled_sort() -> Callable[..., int]:
    """Compile a radix sort.

    It takes two buffers for keys, the first filled, and two for positions, all int64 [Z], and one to count
    digits, int64 [2^`DIGIT_BITS`]. It returns which buffer of each pair holds the result.
    """

    def sort(keys_Z: Any, next_Z: Any, order_Z: Any, next_order_Z: Any, place_D: Any) -> int:
        most = 0
        for z in range(len(keys_Z)):
            order_Z[z] = z
            most = keys_Z[z] if keys_Z[z] > most else most
        bits = 1
        while most >> bits > 0:
            bits += 1
        passes = (bits + DIGIT_BITS - 1) // DIGIT_BITS
        digit_bits = (bits + passes - 1) // passes
        digit = (1 << digit_bits) - 1
        for number in range(passes):
            shift = number * digit_bits
            for d in range(digit + 1):
                place_D[d] = 0
            for z in range(len(keys_Z)):
                place_D[(keys_Z[z] >> shift) & digit] += 1
            before = 0
            for d in range(digit + 1):
                count, place_D[d] = place_D[d], before
                before += count
            for z in range(len(keys_Z)):
                d = (keys_Z[z] >> shift) & digit
                next_Z[place_D[d]], next_order_Z[place_D[d]] = keys_Z[z], order_Z[z]
                place_D[d] += 1
            keys_Z, next_Z = next_Z, keys_Z
            order_Z, next_order_Z = next_order_Z, order_Z
        return passes % 2

    row = "int64[::1]"
    return compile_for(sort, f"int64({row}, {row}, {row}, {row}, {row})")


@made_once
def compiled_cut(units: str) -> Callable[..., None]:
    """Compile `cut.cut` for units of the type "int32" or "int64".

    It takes the batch's indptr and units, the number of shards, the bounds (zeros), units and order to fill,
    and a room as large as the bounds.
    """

    def put(
        indptr: Any, indices_Z: Any, num_shards: Any, bounds: Any, units_Z: Any, order_Z: Any, place: Any
    ) -> None:
        num, last = len(indptr) - 1, len(bounds) - 1
        for e in range(num):
            for z in range(indptr[e], indptr[e + 1]):
                bounds[indices_Z[z] % num_shards * num + e + 1] += 1
        for n in range(last):
            bounds[n + 1] += bounds[n]
            place[n] = bounds[n]
        for e in range(num):
            for z in range(indptr[e], indptr[e + 1]):
                row = indices_Z[z] // num_shards
                bin_ = (indices_Z[z] - row * num_shards) * num + e
                units_Z[place[bin_]], order_Z[place[bin_]] = row, z
                place[bin_] += 1

    number, whole = f"{units}[::1]", "int64[::1]"
    return compile_for(put, f"void({whole}, {number}, int64, {whole}, {number}, {whole}, {whole})", number)
