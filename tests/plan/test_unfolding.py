"""How convolutions are cut outside training."""

from math import prod

import pytest
import torch
from torch.nn.functional import pad

from widenet.plan.narrow import PREDICTED_FILTERS, predicted_examples
from widenet.plan.windows import Place, windows_of
from widenet.spec.spatial import ConvolutionLayer


def windows(channels, places, **settings):
    layer = ConvolutionLayer(kind="convolution", name="c", filters=3, **settings)
    return windows_of(Place("", 0, "c"), layer, "in", (channels, *places))


@pytest.mark.parametrize("side", [2, 3, 5, 9, 33, 129])
@pytest.mark.parametrize("filters", [1, 2, 3, 12])
def test_predicted_pieces_round_every_example_alike(side, filters):
    """A piece of equal examples, multiplied as `model.convolution` does, gives them equal bits."""
    for kernel in (1, 3, 200, 400):
        shape = windows(1, (kernel + side - 1, kernel), kernel=kernel, padding="valid")
        examples = predicted_examples(shape, "cpu")
        assert 64 % examples == 0
        generator = torch.Generator().manual_seed(side)
        windows_KP = torch.rand(shape.inputs, prod(shape.positions), generator=generator)
        weight_FK = torch.rand(filters, shape.inputs, generator=generator)
        weight_FK = pad(weight_FK, (0, 0, 0, max(0, PREDICTED_FILTERS - filters)))
        sums_FEP = (weight_FK @ windows_KP.repeat(1, examples)).view(len(weight_FK), examples, -1)
        assert torch.equal(sums_FEP, sums_FEP[:, :1].expand_as(sums_FEP))
