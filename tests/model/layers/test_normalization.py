"""Batch normalization: torch's own, by a batch and by running statistics."""

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


def numbers(*sizes, seed=0):
    return torch.randn(
        sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, requires_grad=True
    )


def torchs():
    """Torch's own layer of 3 channels, with lively scales and shifts."""
    layer = torch.nn.BatchNorm1d(3, eps=0.01, momentum=0.3).double()
    with torch.no_grad():
        layer.weight.copy_(numbers(3, seed=1))
        layer.bias.copy_(numbers(3, seed=2))
    return layer


def normalized(x_ECP, scale, shift, running, is_training):
    """What the layer gives, and the statistics that it leaves."""
    weights = dict(zip(("scale", "shift", "mean", "variance"), (scale, shift, *running), strict=True))
    weights = {f"normalization {name}": tensor for name, tensor in weights.items()}
    random = StepRandom(1, 2, 3) if is_training else None
    read = flow(LAYER, weights, x_ECP.shape[1:], sums=[x_ECP.flatten(1)], random=random)
    return forward(LAYER, read).view_as(x_ECP), read.statistics.get("c")


def test_values_gradients_and_running_statistics_are_those_of_torch():
    layer = torchs()
    running = torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)
    for seed in range(3):
        x = numbers(5, 3, 4, seed=seed)
        expected, (found, batch) = layer(x), normalized(x, layer.weight, layer.bias, running, True)
        torch.testing.assert_close(found, expected)
        towards = torch.randn_like(expected)
        ends = [x, layer.weight, layer.bias]
        for own, true in zip(
            torch.autograd.grad(found, ends, towards),
            torch.autograd.grad(expected, ends, towards),
            strict=True,
        ):
            torch.testing.assert_close(own, true)
        for own, new in zip(running, batch, strict=True):
            own.mul_(0.7).add_(new, alpha=0.3)
    torch.testing.assert_close(running[0], layer.running_mean)
    torch.testing.assert_close(running[1], layer.running_var)
    x = numbers(2, 3, 4, seed=9)
    found, batch = normalized(x, layer.weight, layer.bias, running, False)
    torch.testing.assert_close(found, layer.eval()(x))
    assert batch is None


def test_a_single_value_becomes_the_shift_and_leaves_the_running_statistics_alone():
    scale, shift = torch.ones(3, requires_grad=True), torch.tensor([0.5, 0.0, 1.0], requires_grad=True)
    values = torch.full((1, 3, 1), 3.0, requires_grad=True)
    found, batch = normalized(values, scale, shift, (torch.zeros(3), torch.ones(3)), True)
    assert found.flatten().tolist() == [0.5, 0.0, 1.0]
    assert batch is None
    gradients = torch.autograd.grad(found.sum(), [values, scale, shift])
    assert [gradient.flatten().tolist() for gradient in gradients] == [[0.0] * 3, [0.0] * 3, [1.0] * 3]
