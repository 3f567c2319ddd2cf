"""Pooling of windows as torch's own functions do it, forward and backward, and what has no neighbour."""

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


def test_of_equal_values_the_first_is_the_largest():
    x = torch.zeros(1, 4, requires_grad=True)
    pooled({"kind": "max"}, [x], (1, 4), kernel=3, stride=1).sum().backward()
    assert x.grad.tolist() == [[2, 1, 1, 0]]


def test_a_vector_without_a_direction_has_the_cosine_zero():
    first = numbers(1, 3)
    zero = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
    found = pooled({"kind": "cosine"}, [first, zero])
    assert found.tolist() == [[0.0]]
    assert all(
        bool(torch.isfinite(gradient).all()) for gradient in torch.autograd.grad(found.sum(), [first, zero])
    )
