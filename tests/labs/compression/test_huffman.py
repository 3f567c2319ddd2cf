"""Huffman's code: what is decoded is what was encoded, in as few bits as can be."""

import numpy as np
import pytest

from labs.compression.huffman import decode, encode


@pytest.mark.parametrize("counts", [[7], [1, 1], [1000, 1, 1], [5, 9, 12, 13, 16, 45], list(range(1, 40))])
def test_decoding_gives_the_symbols(counts):
    symbols = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)) * 3, counts))
    encoded = encode(symbols)
    assert decode(encoded).tolist() == symbols.tolist()
    assert encoded.count == len(symbols)
