"""How a convolution is cut, and what the plan says of its products: the operations that torch counts."""

from math import prod

import pytest
import torch
from torch.nn.functional import pad
from torch.utils.flop_counter import FlopCounterMode

from widenet.model.convolution import convolution
from widenet.model.product import Blocks
from widenet.parallel.exchange import Exchange
from widenet.plan.narrow import (
    PREDICTED_FILTERS,
    predicted_examples,
    shares,
)
from widenet.plan.windows import Place, windows_of
from widenet.spec.spatial import ConvolutionLayer


def windows(channels, places, **settings):
    layer = ConvolutionLayer(kind="convolution", name="c", filters=3, **settings)
    return windows_of(Place("", 0, "c"), layer, "in", (channels, *places))


SMALL, LARGE = windows(2, (7, 6), kernel=3, stride=2), windows(64, (28, 28), kernel=3)


def added_product(total, left, right, **_):
    """Operations of `total.addmm_(left, right)`, which torch does not count by itself."""
    assert total == (left[0], right[1])
    return 2 * left[0] * left[1] * right[1]


@pytest.mark.parametrize("with_inputs", [False, True])
@pytest.mark.parametrize(("moves", "filters", "num"), [(SMALL, 3, 5), (LARGE, 8, 11)])
def test_products_are_those_that_torch_counts(moves, filters, num, with_inputs):
    values = torch.zeros(num, moves.channels * prod(moves.places), requires_grad=with_inputs)
    weight = torch.zeros(filters, moves.inputs, requires_grad=True)
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: added_product}) as counter:
        convolution(values, weight, moves, Blocks(Exchange(8), 8, "")).sum().backward()
    planned = list(shares(num, moves, filters, with_inputs, 8, 1, "cpu"))
    assert len(planned) == 2 + with_inputs
    assert sum(operations for operations, _ in planned) == counter.get_total_flops()
    assert not any(sent for _, sent in planned)


def test_processes_divide_what_is_sooner_gathered_than_computed():
    alone, four = (list(shares(32, LARGE, 64, True, 8, num, "cpu")) for num in (1, 4))
    assert [operations // 4 for operations, _ in alone] == [operations for operations, _ in four]
    assert [sent for _, sent in four] == [8 * 4 * 64 * 784, 2 * 4 * 64 * 576, 8 * 4 * 64 * 784]
    thin = windows(1, (64, 64), kernel=5)
    assert [sent for _, sent in shares(32, thin, 64, False, 8, 4, "cpu")] == [0, 2 * 4 * 64 * 25]


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
