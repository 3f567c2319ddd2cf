"""Batch normalization by running statistics as in torch, and of a single value."""

import torch

from tests.model.flows import flow
from widenet.model.layers.hidden import forward
from widenet.randomness import StepRandom
from widenet.spec.layers import ConvolutionLayer

LAYER = ConvolutionLayer(
    kind="convolution",
    name="c",
    filters=3,
    kernel=1,
    bias=False,
    activation={"kind": "linear"},
    batch_normalization={"epsilon": 0.01, "momentum": 0.3},
)


def numbers(*sizes, seed):
    return torch.randn(sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def normalized(x_ECP, scale, shift, running, is_training):
    """What the layer gives, and the statistics that it leaves."""
    weights = dict(zip(("scale", "shift", "mean", "variance"), (scale, shift, *running), strict=True))
    weights = {f"normalization {name}": tensor for name, tensor in weights.items()}
    random = StepRandom(1, 2, 3) if is_training else None
    read = flow(LAYER, weights, x_ECP.shape[1:], sums=[x_ECP.flatten(1)], random=random)
    return forward(LAYER, read).view_as(x_ECP), read.statistics.get("c")


def test_outside_training_running_statistics_count_as_in_torch():
    x, scale, shift, mean = (numbers(*sizes, seed=len(sizes)) for sizes in ((2, 3, 4), (3,), (3,), (3,)))
    found, batch = normalized(x, scale, shift + 1, (mean, mean.square()), False)
    expected = torch.nn.functional.batch_norm(x, mean, mean.square(), scale, shift + 1, eps=0.01)
    torch.testing.assert_close(found, expected)
    assert batch is None


def test_a_single_value_becomes_the_shift_and_leaves_the_running_statistics_alone():
    scale, shift = torch.ones(3, requires_grad=True), torch.tensor([0.5, 0.0, 1.0], requires_grad=True)
    values = torch.full((1, 3, 1), 3.0, requires_grad=True)
    found, batch = normalized(values, scale, shift, (torch.zeros(3), torch.ones(3)), True)
    assert found.flatten().tolist() == [0.5, 0.0, 1.0]
    assert batch is None
    gradients = torch.autograd.grad(found.sum(), [values, scale, shift])
    assert [gradient.flatten().tolist() for gradient in gradients] == [[0.0] * 3, [0.0] * 3, [1.0] * 3]
