"""Rows of tensors that are read in blocks go where they belong."""

import numpy as np
import torch

from widenet.training.start import RowCopy


def test_rows_go_to_their_places_from_blocks_of_any_units_and_others_stay():
    source_RH = torch.arange(24.0).view(12, 2)
    origin = np.array([7, -1, 0, 7, 11, 4])
    expected = torch.full((6, 2), -1.0)
    for row, index in enumerate(origin):
        if index >= 0:
            expected[row] = source_RH[index]
    for blocks in (
        [range(12)],
        [range(5), range(5, 6), range(6, 12)],
        [range(start, 12, 3) for start in range(3)],
    ):
        target = torch.full((6, 2), -1.0)
        copy = RowCopy(target, origin)
        for units in blocks:
            if copy.needs(units):
                copy.take(source_RH[list(units)], units)
        assert torch.equal(target, expected)
    assert not RowCopy(target, origin).needs(range(1, 4))
