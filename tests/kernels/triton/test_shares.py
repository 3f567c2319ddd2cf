"""The shares of a softmax by a kernel, against their definition in torch, in float32 and in float64."""

import pytest
import torch

from widenet.kernels import passes, reference


def given(shape, columns, dtype, device):
    """Logits of two tiles, one of a shard and one of two, and what is known after some of the first."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(shape, generator=generator) * 20
    logits[..., 0, :] = -torch.inf
    peak = torch.randn(shape[:-1], generator=generator) * 20
    total, hidden = (torch.rand(*shape[:-1], size, generator=generator) for size in (1, columns))
    return [own.to(device, dtype) for own in (logits, peak)] + [
        total[..., 0].to(device, torch.float64),
        hidden.to(device, dtype),
    ]


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("shape", [(5, 3), (2, 7, 1100)], ids=str)
def test_shares_sums_and_peaks_are_those_of_the_definition(shape, half, device, monkeypatch):
    exact = given(shape, 5, torch.float64, "cpu")
    expected = [reference.tile_shares(*exact, half).double(), *exact[1:]]
    found = []
    monkeypatch.setattr(passes, "triton_runs", lambda _: True)
    for _ in range(2):
        ours = given(shape, 5, torch.float32, device)
        found.append([passes.tile_shares(*ours, half), *ours[1:]])
    assert found[0][0].dtype == (torch.bfloat16 if half else torch.float32)
    assert all(map(torch.equal, *found))
    for ours, theirs in zip(found[0], expected, strict=True):
        torch.testing.assert_close(ours.cpu().double(), theirs, rtol=2.0**-7 if half else 1e-5, atol=1e-30)


def test_a_tile_without_units_changes_nothing(device, monkeypatch):
    monkeypatch.setattr(passes, "triton_runs", lambda _: True)
    _, *before = given((3, 4), 5, torch.float32, device)
    after = [own.clone() for own in before]
    passes.tile_shares(torch.empty(3, 0, device=device), *after, False)
    assert all(map(torch.equal, before, after))
