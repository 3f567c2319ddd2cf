"""Convolutions: torch's own forward and backward, whole networks beside the dense twin, and the same bits
whoever computes a block.
"""

import itertools
from math import prod

import pytest
import torch
from torch.nn import functional

from tests.model.twin import assert_step_matches_twin, dense_field, random_batch, sparse
from widenet.model.convolution import convolution
from widenet.model.product import Blocks
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import windows_of
from widenet.sparse import SparseBatch
from widenet.spec.layers import ConvolutionLayer

CONVOLVE = (functional.conv1d, functional.conv2d, functional.conv3d)
PLACES = ((9,), (7, 6), (5, 4, 3))


def windows(places, channels=2, **settings):
    layer = ConvolutionLayer(kind="convolution", name="c", filters=3, **settings)
    return windows_of(str, layer, "in", (channels, *places))


def operands(moves, num_examples=5, filters=3, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    sizes = (
        (num_examples, moves.channels * prod(moves.places)),
        (filters, moves.inputs),
        (num_examples, filters * prod(moves.positions)),
    )
    return [torch.randn(size, generator=generator, dtype=dtype) for size in sizes]


def found(moves, values, weight, gradient, num_threads=1, half=False):
    """The sums and the gradients to both operands."""
    values, weight = values.detach().requires_grad_(), weight.detach().requires_grad_()
    result = convolution(values, weight, moves, Blocks(Exchange(8, num_threads), "", half))
    result.backward(gradient)
    return result.detach(), values.grad, weight.grad


def by_torch(moves, values, weight, gradient):
    values, weight = values.detach().requires_grad_(), weight.detach().requires_grad_()
    sides = [side for axis in reversed(moves.axes) for side in (axis.before, axis.after)]
    room = functional.pad(values.view(len(values), moves.channels, *moves.places), sides)
    filters = weight.view(len(weight), moves.channels, *moves.kernel)
    result = CONVOLVE[len(moves.axes) - 1](
        room, filters, stride=[axis.stride for axis in moves.axes]
    ).flatten(1)
    result.backward(gradient)
    return result.detach(), values.grad, weight.grad


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    list(itertools.product((1, 2, 3), (1, 2, 3), ("same", "valid", "dsstne"))),
)
def test_sums_and_gradients_are_those_of_torch(kernel, stride, padding, places):
    moves = windows(places, kernel=kernel, stride=stride, padding=padding)
    given = operands(moves)
    for own, true in zip(found(moves, *given), by_torch(moves, *given), strict=True):
        torch.testing.assert_close(own, true, rtol=1e-12, atol=1e-12)


def convolution_of(name, **settings):
    return {"name": name, "kind": "convolution", "filters": 3, "kernel": 3, "activation": "tanh", **settings}


def pooling_of(name, function, **settings):
    return {"name": name, "kind": "pooling", "function": function, **settings}


PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [2, 7, 6]}
OUT = {"name": "out", "kind": "output", "field": "label", "activation": "sigmoid"}
FIELDS = {"pixels": dense_field(84), "line": dense_field(12), "items": sparse(29), "label": sparse(4)}


def picture(*layers, out=()):
    return {"layers": [PICTURE, *layers, {**OUT, **dict(out)}]}


def batch():
    generator = torch.Generator().manual_seed(5)
    labels = SparseBatch.from_lists([[0], [], [1, 3], [2], [0, 1, 2, 3], [1], [], [2], [3]])
    numbers = {name: torch.randn(9, FIELDS[name].width, generator=generator) for name in ("pixels", "line")}
    return {**numbers, "items": random_batch(generator, 9, 29, 7), "label": labels}


SMALL = {"initializer": {"kind": "gaussian", "deviation": 0.01}}
FIRST, SECOND = convolution_of("a"), convolution_of("b", source="a")
SHAPES = {
    "one convolution": picture(FIRST),
    "two, with steps": picture(
        convolution_of("a", stride=2), convolution_of("b", kernel=[2, 3], padding=[0, 1], activation="gelu")
    ),
    "the padding of dsstne": picture(
        convolution_of("a", kernel=[2, 9], padding="dsstne"), convolution_of("b", stride=2, padding="dsstne")
    ),
    "a line": {
        "layers": [{"name": "in", "kind": "input", "field": "line"}, convolution_of("a", kernel=[4]), OUT]
    },
    "a room": {
        "layers": [
            PICTURE | {"shape": [1, 4, 7, 3]},
            convolution_of("a", kernel=[3, 2, 2]),
            pooling_of("p", "max", kernel=2),
            OUT,
        ]
    },
    "two sources": picture(
        FIRST, convolution_of("b", source="in", kernel=5), convolution_of("c", source=["a", "b"])
    ),
    "shared filters": picture(FIRST, SECOND, convolution_of("c", source="b", weights={"layer": "b"})),
    "a skip": picture(FIRST, SECOND, convolution_of("c", source="b", skip="a")),
    "skips of hidden layers": picture(
        convolution_of("a", filters=2),
        {"name": "h", "units": 84, "activation": "tanh"},
        {"name": "g", "units": 84, "skip": ["in", "a"]},
    ),
    "biases alone are penalised by nobody": picture(convolution_of("a", bias_start=0.5)),
    "without biases": picture(convolution_of("a", bias=False)),
    "dropout": picture(convolution_of("a", dropout=0.4)),
    "normalized": picture(
        convolution_of("a", batch_normalization=True),
        convolution_of("b", batch_normalization={"momentum": 1}),
    ),
    "normalized units": picture(
        {"name": "h", "units": 5, "activation": "tanh", "batch_normalization": {"epsilon": 0.1}}
    ),
    "normalized with a skip": picture(
        FIRST, SECOND, convolution_of("c", source="b", skip="a", batch_normalization=True)
    ),
    "largest of windows": picture(FIRST, pooling_of("p", "max", kernel=3, stride=2)),
    "largest, padded": picture(FIRST, pooling_of("p", "max", kernel=[3, 2], stride=1, padding=[2, 1])),
    "mean of windows": picture(FIRST, pooling_of("p", "average", kernel=3, stride=2)),
    "mean, padded": picture(
        FIRST, pooling_of("p", "average", kernel=3, stride=1, padding=2), convolution_of("b")
    ),
    "across channels": picture(
        convolution_of("a", filters=7), pooling_of("p", {"kind": "lrn", "alpha": 0.7, "n": 4})
    ),
    "largest of sources": picture(FIRST, SECOND, pooling_of("p", "maxout", source=["a", "b"], skip="b")),
    "products": picture(
        FIRST,
        SECOND,
        convolution_of("c", source="a"),
        pooling_of("p", "dot_product", source=["a", "b", "c"]),
        out=SMALL,
    ),
    "cosines": picture(
        FIRST, SECOND, convolution_of("c", source="a"), pooling_of("p", "cosine", source=["a", "b", "c"])
    ),
    "beside a sparse input": {
        "layers": [
            PICTURE,
            FIRST,
            {"name": "items", "kind": "input", "field": "items"},
            {
                "name": "h",
                "units": 5,
                "source": ["items", "a"],
                "activation": "tanh",
                "batch_normalization": True,
            },
            OUT | {"source": ["h", "a"]},
        ]
    },
}


@pytest.mark.parametrize("training", [{}, {"l2": 0.3}, {"gradient_norm_limit": 0.05, "shards": 8}], ids=str)
@pytest.mark.parametrize("document", SHAPES.values(), ids=SHAPES)
def test_a_step_is_that_of_the_dense_twin(document, training):
    assert_step_matches_twin(document, FIELDS, batch(), training, torch.linspace(0.2, 2, 9))
