"""The update of a weight that a sparse input and outputs share."""

from itertools import pairwise

import torch

from widenet.kernels import RowGradient
from widenet.training.update import _summed


def test_every_tile_gets_the_rows_of_a_sparse_input_that_lie_in_it():
    rows_UH = torch.arange(8.0).view(4, 2) + 1
    touched = RowGradient.of_rows(torch.tensor([1, 4, 5, 9]), rows_UH)
    expected = torch.ones(10, 2).index_add_(0, touched.features_U, rows_UH)
    for edges in ([0, 10], [0, 4, 5, 10], [0, 2, 3, 8, 10]):
        tiles = [
            _summed([torch.ones(stop - start, 2)], touched, start, stop) for start, stop in pairwise(edges)
        ]
        assert torch.equal(torch.cat(tiles), expected)
