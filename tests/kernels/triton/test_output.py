"""A wide output's numbers between its products by kernels, against torch in float64."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits

from widenet.kernels import reference
from widenet.kernels.triton.output import TileTargets, take_pulls, tile_shares, tile_slopes

S, E, H, ROOM, START = 2, 5, 6, 64, 3
"""Shards in an allocation, of which the second has a unit less in the tile than the first."""
CLOSE = {False: {"rtol": 1e-5, "atol": 1e-6}, True: {"rtol": 2.0**-7, "atol": 2.0**-9}}


def numbers(*shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 5


def targets_of(units, device):
    """Every example has a target before the tile, and two within it; its places in [S, E, T]."""
    rows, places = [], []
    for shard in range(S):
        for example in range(E):
            own = [(example + shard) % (units - 1), units - 2]
            rows.append([START - 1, *(START + unit for unit in dict.fromkeys(own))])
            places += [-1, *((shard * E + example) * units + unit for unit in dict.fromkeys(own))]
    indptr = torch.tensor([0, *map(len, rows)]).cumsum(0)
    flat = torch.tensor([number // E * ROOM + row for number, own in enumerate(rows) for row in own])
    return TileTargets(indptr.to(device), flat.to(device), START, ROOM, 1), torch.tensor(places)


def masked(logits, bias):
    """Logits in float64 of the units that take part."""
    exact = logits.double() + bias.double()[:, None]
    exact[1, :, -1] = -torch.inf
    return exact


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("units", [4, 1100])
def test_shares_are_those_of_the_definition(units, half, device):
    logits, bias = numbers(S, E, units, seed=1), numbers(S, units, seed=2)
    peak, total, hidden = numbers(S, E, seed=3), numbers(S, E, seed=4).abs(), numbers(S, E, H, seed=5)
    targets, places = targets_of(units, device)
    exact = masked(logits, bias), peak.double(), total.double(), hidden.double()
    of_targets = exact[0].flatten()[places]
    expected = [reference.tile_shares(*exact, half).double(), *exact[1:]]
    ours = [own.to(device) for own in (logits, bias, peak, total.double(), hidden)]
    of_tile, found = torch.empty(S, E, device=device), torch.zeros(len(places), device=device)
    shares = tile_shares(*ours, of_tile, found, targets, half)
    assert shares.dtype == (torch.bfloat16 if half else torch.float32)
    for mine, theirs in zip((shares, *ours[2:], of_tile), (*expected, expected[1]), strict=True):
        torch.testing.assert_close(mine.cpu().double(), theirs, rtol=CLOSE[half]["rtol"], atol=1e-30)
    torch.testing.assert_close(found.cpu().double()[places >= 0], of_targets[places >= 0])


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("has_values", [False, True])
def test_slopes_and_losses_are_those_of_autograd(has_values, half, device):
    units = 1100
    logits, bias, weights = numbers(S, E, units, seed=1), numbers(S, units, seed=2), torch.rand(E)
    targets, places = targets_of(units, device)
    values = numbers(len(places), seed=6).sigmoid() if has_values else torch.ones(len(places))
    z, t = masked(logits, bias).nan_to_num(neginf=-1e9).requires_grad_(), torch.zeros(S, E, units).double()
    t.view(-1)[places[places >= 0]] = values.double()[places >= 0]
    each = binary_cross_entropy_with_logits(z, t, reduction="none") * weights.double()[:, None]
    (expected,) = torch.autograd.grad(each.sum(), z)
    losses = torch.ones(S, E, dtype=torch.float64, device=device)
    ours = [own.to(device) for own in (logits, bias)]
    given = losses, weights.to(device), values.to(device) if has_values else None, targets
    slopes = tile_slopes(*ours, *given, half)
    torch.testing.assert_close(slopes.cpu().double(), expected, **CLOSE[half])
    torch.testing.assert_close(losses.cpu(), 1 + each.detach().sum(dim=2), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("half", [False, True])
def test_pulls_are_taken_from_shares_and_vectors_are_scaled(half, device):
    units, dtype = 4, torch.bfloat16 if half else torch.float32
    shares, direct = numbers(S, E, units, seed=1).sigmoid().to(dtype), numbers(E, H, seed=2).to(dtype)
    peaks, divisors, couplings = numbers(S, E, seed=3), numbers(E, seed=4), torch.rand(E)
    targets, places = targets_of(units, device)
    pulls = numbers(len(places), seed=5)
    factor = (torch.exp(peaks.double() - divisors.double()) * couplings.double())[..., None]
    expected, own = shares.double(), places >= 0
    rows = places[own] // units
    expected.view(-1)[places[own]] -= pulls.double()[own] / factor.flatten()[rows]
    found = shares.to(device)
    given = [each.to(device) for each in (peaks, divisors, couplings, direct, pulls)]
    scaled = take_pulls(found, H + 2, *given, targets).cpu().double()
    torch.testing.assert_close(found.cpu().double(), expected, **CLOSE[half])
    torch.testing.assert_close(scaled[..., :H], direct.double() * factor, **CLOSE[half])
    torch.testing.assert_close(scaled[..., H:], factor.expand(S, E, 2), **CLOSE[half])
