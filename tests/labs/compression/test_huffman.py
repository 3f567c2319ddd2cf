"""Huffman's code: what is decoded is what was encoded, in as few bits as can be."""

import numpy as np
import pytest

from labs.compression.huffman import code_lengths, codes, decode, encode


@pytest.mark.parametrize("counts", [[7], [1, 1], [1000, 1, 1], [5, 9, 12, 13, 16, 45], list(range(1, 40))])
def test_decoding_gives_the_symbols(counts):
    symbols = np.random.default_rng(0).permutation(np.repeat(np.arange(len(counts)) * 3, counts))
    encoded = encode(symbols)
    assert decode(encoded).tolist() == symbols.tolist()
    assert encoded.count == len(symbols)


def test_nothing_is_encoded_in_nothing():
    assert decode(encode(np.zeros(0, np.int64))).tolist() == []
    assert encode(np.zeros(0, np.int64)).num_bytes == 0


def test_the_code_of_the_textbook():
    lengths = code_lengths({"a": 5, "b": 9, "c": 12, "d": 13, "e": 16, "f": 45})
    assert lengths == {"a": 4, "b": 4, "c": 3, "d": 3, "e": 3, "f": 1}


def test_bits_are_within_one_of_the_entropy():
    symbols = (np.random.default_rng(1).exponential(3, 5000)).astype(np.int64)
    shares = np.unique(symbols, return_counts=True)[1] / len(symbols)
    entropy = -(shares * np.log2(shares)).sum()
    assert entropy <= len(encode(symbols).bits) / len(symbols) < entropy + 0.1


def test_no_code_begins_another():
    found = [
        f"{code:0{length}b}" for code, length in codes(code_lengths(dict(enumerate(range(1, 30))))).values()
    ]
    assert not [(a, b) for a in found for b in found if a != b and b.startswith(a)]
