"""Attention in Triton against its definition in float32 and in float64: what is read, and all gradients."""

import pytest
import torch

from widenet.kernels import table
from widenet.kernels.triton import attention as kernels
from widenet.model.attention import attention
from widenet.model.positions import Positions
from widenet.sparse import SparseBatch

CASES = {
    "prime sizes": ([3, 7, 5, 1, 5, 2], 2, 5, True),
    "without distances": ([3, 7, 5, 1, 5, 2], 2, 5, False),
    "one position": ([1], 1, 1, True),
    "no positions": ([0, 0], 2, 3, True),
    "very different lengths": ([1, 1, 11, 2, 1], 1, 9, True),
    "many heads": ([3, 2], 5, 2, True),
    "more numbers than a warp has": ([2, 3], 1, 131, True),
}
"""Lengths of sequences, heads, numbers of a head, and whether distances have vectors."""


@pytest.fixture(autouse=True)
def _small_programs(monkeypatch):
    monkeypatch.setattr(kernels, "_NUMBERS_OF_WARP", 128)
    monkeypatch.setattr(kernels, "_PART", 128)


def positions_of(lengths):
    return Positions.of(SparseBatch.from_lists([[0] * length for length in lengths]), 99, ends_ask=False)


def numbers(positions, heads, size, is_relative=True):
    """Queries, keys and values, the vectors of the distances, and a gradient to what is read."""
    generator, num = torch.Generator().manual_seed(3), len(positions.examples_N)
    projected, vectors, gradient = (
        torch.randn(shape, heads, size, generator=generator)
        for shape in (3 * num, len(positions.sizes) + 1, num)
    )
    return projected.view(num, 3, heads, size), vectors if is_relative else None, gradient


def of(positions, projected, vectors, gradient, dtype=torch.float32, device="cpu"):
    """What is read, and the gradients to queries, keys, values and vectors."""
    given = [projected, gradient] if vectors is None else [projected, gradient, vectors]
    projected, gradient, *vectors = [each.to(device, dtype) for each in given]
    leaves = [each.detach().requires_grad_() for each in (projected, *vectors)]
    projected, *vectors = leaves
    used = [each[: len(positions.sizes)] for each in vectors] or [None]
    placed = Positions(
        **{
            **vars(positions),
            "starts": positions.starts.to(device),
            "times_N": positions.times_N.to(device),
        }
    )
    read = attention(*projected.unbind(dim=1), *used, placed)
    read.backward(gradient)
    return [
        read.detach().cpu(),
        *projected.grad.cpu().unbind(dim=1),
        *(each.grad.cpu() for each in leaves[1:]),
    ]


def of_torch(monkeypatch, *given, dtype=torch.float32):
    with monkeypatch.context() as patch:
        patch.setitem(table.TABLE, "attention", ("torch",))
        return of(*given, dtype=dtype)


def of_kernels(monkeypatch, *given, device):
    with monkeypatch.context() as patch:
        patch.setitem(table.TABLE, "attention", ("triton",))
        return of(*given, device=device)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_is_read_and_all_gradients_are_as_near_to_the_truth_as_the_definitions(
    case, device, monkeypatch
):
    lengths, *shape = case
    positions = positions_of(lengths)
    given = positions, *numbers(positions, *shape)
    found, plain = of_kernels(monkeypatch, *given, device=device), of_torch(monkeypatch, *given)
    exact = of_torch(monkeypatch, *given, dtype=torch.float64)
    for own, torchs, truth in zip(found, plain, exact, strict=True):
        worst = (torchs - truth).abs().max() if truth.numel() else 0.0
        assert own.shape == truth.shape
        # Exponentials are the device's, which may be off by more than one rounding.
        assert ((own - truth).abs() <= worst + 2.0**-20 * (1 + truth.abs())).all()


def test_a_second_run_gives_the_same_bits(device, monkeypatch):
    lengths, *shape = CASES["prime sizes"]
    positions = positions_of(lengths)
    given = positions, *numbers(positions, *shape)
    found, again = (of_kernels(monkeypatch, *given, device=device) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True))


def test_no_number_of_a_sequence_depends_on_the_others(device, monkeypatch):
    lengths, shape = [4, 9, 1, 4], (1, 9)
    positions = positions_of(lengths)
    projected, vectors, gradient = numbers(positions, *shape)
    whole = of_kernels(monkeypatch, positions, projected, vectors, gradient, device=device)
    for example, length in enumerate(lengths):
        places = (positions.examples_N == example).nonzero()[:, 0]
        given = positions_of([length]), projected[places], vectors[: length + 1], gradient[places]
        alone = of_kernels(monkeypatch, *given, device=device)
        assert all(torch.equal(one[places], own) for one, own in zip(whole[:4], alone[:4], strict=True))


def test_parts_of_the_positions_are_added(device, monkeypatch):
    positions = positions_of([3, 5, 2])
    given = positions, *numbers(positions, 2, 5)
    in_one = of_kernels(monkeypatch, *given, device=device)[-1]
    monkeypatch.setattr(kernels, "_NUMBERS_OF_WARP", 16)
    monkeypatch.setattr(kernels, "_PART", 8)
    in_parts = of_kernels(monkeypatch, *given, device=device)[-1]
    torch.testing.assert_close(in_parts, in_one, rtol=2.0**-20, atol=2.0**-20)


def test_large_scores_neither_overflow_nor_vanish(device, monkeypatch):
    positions = positions_of([4, 3])
    projected, vectors, gradient = numbers(positions, 1, 3)
    given = positions, 40 * projected, vectors, gradient
    found = of_kernels(monkeypatch, *given, device=device)
    for own, truth in zip(found, of_torch(monkeypatch, *given, dtype=torch.float64), strict=True):
        torch.testing.assert_close(own.double(), truth, rtol=1e-3, atol=1e-3)


def test_numbers_that_lie_apart_are_read_as_they_are(device, monkeypatch):
    positions = positions_of([3, 2])
    projected, vectors, gradient = numbers(positions, 2, 3)
    apart = torch.empty(*projected.shape, 2)[..., 0].copy_(projected)
    turned = gradient.mT.contiguous().mT
    found = of_kernels(monkeypatch, positions, apart, vectors, turned, device=device)
    expected = of_kernels(monkeypatch, positions, projected, vectors, gradient, device=device)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
