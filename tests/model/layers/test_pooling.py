"""Pooling: torch's own functions, forward and backward, known answers, and central differences in float64."""

import pytest
import torch
from torch.nn import functional

from tests.model.flows import flow
from widenet.model.layers.pooling import forward
from widenet.plan.binding import windows_of
from widenet.spec.layers import PoolingLayer

PLACES = ((9,), (7, 6), (5, 4, 3))
LARGEST = (functional.max_pool1d, functional.max_pool2d, functional.max_pool3d)
MEAN = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)


def pooled(function, sources, shape=(), skips=(), **settings):
    layer = PoolingLayer.model_validate_json(
        PoolingLayer(kind="pooling", name="p", function=function, **settings).model_dump_json()
    )
    windows = windows_of(str, layer, "in", shape) if layer.kernel is not None else None
    return forward(layer, flow(layer, {}, shape, windows, sources=list(sources), skips=list(skips)))


def numbers(*sizes, seed=0):
    return torch.randn(
        sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True
    )


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("kind", ["max", "average"])
def test_windows_are_pooled_as_by_torch(kind, places, stride, padding):
    x = numbers(4, 3, *places)
    mean = {"count_include_pad": False} if kind == "average" else {}
    expected = (LARGEST if kind == "max" else MEAN)[len(places) - 1](x, 3, stride, padding, **mean).flatten(1)
    found = pooled({"kind": kind}, [x.flatten(1)], (3, *places), kernel=3, stride=stride, padding=padding)
    torch.testing.assert_close(found, expected)
    towards = torch.randn_like(expected)
    torch.testing.assert_close(*(torch.autograd.grad(end, x, towards)[0] for end in (found, expected)))


def test_padding_is_neither_the_largest_nor_counted():
    x = -torch.arange(1.0, 5.0).reshape(1, 4)
    assert pooled({"kind": "max"}, [x], (1, 4), kernel=3, stride=1).tolist() == [[-1, -1, -2, -3]]
    assert pooled({"kind": "average"}, [x], (1, 4), kernel=3, stride=1).tolist() == [
        pytest.approx([-1.5, -2, -3, -3.5])
    ]


def test_of_equal_values_the_first_is_the_largest():
    x = torch.zeros(1, 4, requires_grad=True)
    pooled({"kind": "max"}, [x], (1, 4), kernel=3, stride=1).sum().backward()
    assert x.grad.tolist() == [[2, 1, 1, 0]]


@pytest.mark.parametrize("n", [1, 4, 5])
def test_lrn_divides_by_the_channels_around(n):
    x = numbers(2, 6, 3).detach()
    found = pooled({"kind": "lrn", "n": n, "alpha": 0.9}, [x.flatten(1)], (6, 3))
    if n % 2:
        torch.testing.assert_close(found, functional.local_response_norm(x, n, 0.9, 0.75, 2.0).flatten(1))
    for channel in range(6):  # cuDNN and ONNX look at (n - 1) // 2 channels before and n // 2 after
        around = x[0, max(0, channel - (n - 1) // 2) : channel + n // 2 + 1, 1].square().sum()
        assert float(found.view(2, 6, 3)[0, channel, 1]) == pytest.approx(
            float(x[0, channel, 1] / (2 + 0.9 / n * around) ** 0.75)
        )


def test_sources_are_compared_with_the_first_and_skips_added():
    sources = [torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, -2.0]])]
    assert pooled({"kind": "maxout"}, sources).tolist() == [[3.0, 4.0]]
    assert pooled({"kind": "dot_product"}, sources).tolist() == [[3.0, -8.0]]
    assert pooled({"kind": "cosine"}, sources).tolist() == [pytest.approx([0.6, -0.8])]
    assert pooled({"kind": "dot_product"}, sources, skips=[torch.tensor([[1.0, 2.0]])] * 2).tolist() == [
        [5.0, -4.0]
    ]


def test_a_vector_without_a_direction_has_the_cosine_zero():
    first = numbers(1, 3)
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    found = pooled({"kind": "cosine"}, [first, zero])
    assert found.tolist() == [[0.0]]
    assert all(
        bool(torch.isfinite(gradient).all()) for gradient in torch.autograd.grad(found.sum(), [first, zero])
    )


CASES = {
    "max": {"kernel": (3, 2), "stride": 2},
    "average": {"kernel": 3, "stride": 1},
    "lrn": {},
    "maxout": {},
    "dot_product": {},
    "cosine": {},
}


@pytest.mark.parametrize("kind", CASES)
def test_gradients_are_central_differences(kind):
    num = 1 if kind in ("max", "average", "lrn") else 3
    sources = [numbers(2, 3 * 4 * 5, seed=seed) for seed in range(num)]
    assert torch.autograd.gradcheck(
        lambda *given: pooled({"kind": kind}, given, (3, 4, 5), **CASES[kind]), sources
    )
