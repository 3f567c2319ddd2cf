"""Batch normalization: torch's own, by a batch and by running statistics."""

import torch

from widenet.model.normalization import Statistics, by_batch, by_statistics
from widenet.spec.parts import BatchNormalization

SPEC = BatchNormalization(epsilon=0.01, momentum=0.3)


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


def test_values_gradients_and_running_statistics_are_those_of_torch():
    layer, running = (
        torchs(),
        Statistics(torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)),
    )
    for seed in range(3):
        x = numbers(5, 3, 4, seed=seed)
        expected, (found, statistics) = layer(x), by_batch(x, layer.weight, layer.bias, SPEC)
        torch.testing.assert_close(found, expected)
        towards = torch.randn_like(expected)
        ends = [x, layer.weight, layer.bias]
        for own, true in zip(
            torch.autograd.grad(found, ends, towards),
            torch.autograd.grad(expected, ends, towards),
            strict=True,
        ):
            torch.testing.assert_close(own, true)
        assert statistics is not None
        running.follow(statistics, SPEC.momentum)
    torch.testing.assert_close(running.mean_C, layer.running_mean)
    torch.testing.assert_close(running.variance_C, layer.running_var)
    x = numbers(2, 3, 4, seed=9)
    torch.testing.assert_close(by_statistics(x, layer.weight, layer.bias, running, SPEC), layer.eval()(x))


def test_a_single_value_becomes_the_shift_and_leaves_the_running_statistics_alone():
    scale, shift = torch.ones(2, requires_grad=True), torch.tensor([0.5, 0.0], requires_grad=True)
    values = torch.full((1, 2, 1), 3.0, requires_grad=True)
    found, statistics = by_batch(values, scale, shift, SPEC)
    assert found.flatten().tolist() == [0.5, 0.0]
    assert statistics is None
    gradients = torch.autograd.grad(found.sum(), [values, scale, shift])
    assert [gradient.flatten().tolist() for gradient in gradients] == [[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]]
