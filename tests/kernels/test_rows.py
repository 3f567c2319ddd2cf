"""Copies of rows that are written back."""

import torch

from widenet.kernels.bags import copied


def test_rows_take_the_place_of_those_that_were_copied_and_no_others_move():
    weight_RH, state = torch.arange(12.0).view(4, 3), {"velocity": torch.ones(4, 3)}
    with copied(weight_RH, state, torch.tensor([2, 0])) as (rows_UH, of_rows):
        assert rows_UH.tolist() == [[6.0, 7.0, 8.0], [0.0, 1.0, 2.0]]
        rows_UH.neg_()
        of_rows["velocity"].mul_(5)
        assert weight_RH[2].tolist() == [6.0, 7.0, 8.0]
    assert weight_RH.tolist() == [[0.0, -1.0, -2.0], [3.0, 4.0, 5.0], [-6.0, -7.0, -8.0], [9.0, 10.0, 11.0]]
    assert state["velocity"][:, 0].tolist() == [5.0, 1.0, 5.0, 1.0]
