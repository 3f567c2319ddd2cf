"""Random streams: functions of seed, purpose and position alone, even and independent."""

import numpy as np
import pytest

from widenet.randomness import shuffled, stream

GOLDEN_INTEGERS = [5106467983894552428, 5225430968421821954, 8962488041973288781]
GOLDEN_AT_A_PLACE = [8739256656844172775, 9067674158642351786]
GOLDEN_ORDER = [8, 9, 2, 4, 7, 1, 0, 6, 5, 3]


def test_a_stream_begins_with_these_numbers_forever():
    assert stream(0, "weights/h/in").integers(0, 2**63, 3).tolist() == GOLDEN_INTEGERS
    assert stream(3, "dropout/h", 1, 2).integers(0, 2**63, 2).tolist() == GOLDEN_AT_A_PLACE
    assert shuffled(0, "train", 0, 10, np.arange(10)).tolist() == GOLDEN_ORDER


def test_any_change_of_seed_purpose_or_position_gives_an_independent_stream():
    base = (3, "dropout/h", 1, 2)
    others = [
        (4, "dropout/h", 1, 2),
        (3, "dropout/g", 1, 2),
        (3, "dropout/h", 2, 2),
        (3, "dropout/h", 1, 3),
        (3, "dropout/h", 2, 1),
    ]
    first = stream(*base).random(10_000)
    for other in others:
        assert abs(np.corrcoef(first, stream(*other).random(10_000))[0, 1]) < 0.04


@pytest.mark.parametrize("size", [4, 17, 1000, 4097])
def test_any_part_of_an_order_is_that_part_of_the_whole_order(size):
    whole = shuffled(5, "train", 2, size, np.arange(size))
    assert sorted(whole.tolist()) == list(range(size))
    for positions in (np.array([size - 1]), np.arange(size // 3, size // 2), np.array([3, 1, 3])):
        assert shuffled(5, "train", 2, size, positions).tolist() == whole[positions].tolist()
