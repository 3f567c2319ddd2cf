"""Huffman's codes of whole numbers, in their canonical form.

Huffman, "A Method for the Construction of Minimum-Redundancy Codes", Proceedings of the IRE, 1952.
"""

import heapq
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SYMBOL_BITS, LENGTH_BITS = 16, 8
"""Bits in a file of a symbol of the table, and of the length of its code."""


@dataclass(frozen=True)
class Encoded:
    """Symbols in a Huffman code.

    Attributes:
        bits: The codes one after another, uint8 of 0 and 1.
        lengths: Length of every symbol's code; the codes follow from these.
        count: Number of symbols.
    """

    bits: NDArray[np.uint8]
    lengths: dict[int, int]
    count: int

    @property
    def num_bytes(self) -> int:
        """Bytes of the codes and of the table."""
        return -(-(len(self.bits) + len(self.lengths) * (SYMBOL_BITS + LENGTH_BITS)) // 8)


def code_lengths(counts: dict[int, int]) -> dict[int, int]:
    """Return the length of every symbol's code; a single symbol has a code of 1 bit."""
    if len(counts) == 1:
        return dict.fromkeys(counts, 1)
    lengths = dict.fromkeys(counts, 0)
    trees = [(count, symbol, [symbol]) for symbol, count in sorted(counts.items())]
    heapq.heapify(trees)
    while len(trees) > 1:
        first, second = heapq.heappop(trees), heapq.heappop(trees)
        joined = first[2] + second[2]
        for symbol in joined:
            lengths[symbol] += 1
        heapq.heappush(trees, (first[0] + second[0], min(first[1], second[1]), joined))
    return lengths


def codes(lengths: dict[int, int]) -> dict[int, tuple[int, int]]:
    """Return every symbol's code and its length: shorter codes first, then smaller symbols."""
    found, code, before = {}, 0, 0
    for length, symbol in sorted((length, symbol) for symbol, length in lengths.items()):
        code <<= length - before
        found[symbol] = (code, length)
        code, before = code + 1, length
    return found


def encode(symbols: NDArray[np.int64]) -> Encoded:
    """Encode whole numbers in the code that fits their counts."""
    if not len(symbols):
        return Encoded(np.zeros(0, np.uint8), {}, 0)
    lengths = code_lengths(dict(Counter(symbols.tolist())))
    table = codes(lengths)
    distinct, places = np.unique(symbols, return_inverse=True)
    widths = np.array([table[int(symbol)][1] for symbol in distinct])
    patterns = np.zeros((len(distinct), widths.max()), np.uint8)
    for row, symbol in enumerate(distinct):
        code, length = table[int(symbol)]
        patterns[row, :length] = [code >> shift & 1 for shift in range(length - 1, -1, -1)]
    used = np.arange(widths.max()) < widths[places][:, None]
    return Encoded(patterns[places][used], lengths, len(symbols))


def decode(encoded: Encoded) -> NDArray[np.int64]:
    """Return the symbols."""
    symbols = {(length, code): symbol for symbol, (code, length) in codes(encoded.lengths).items()}
    found, code, length = [], 0, 0
    for bit in encoded.bits.tolist():
        code, length = code << 1 | bit, length + 1
        symbol = symbols.get((length, code))
        if symbol is not None:
            found.append(symbol)
            code = length = 0
    return np.array(found, np.int64)
