"""A step of a wide output without the native library, against its definition."""

import pytest
import torch

from tests.model.test_wide_loss import PAIRS, document, name_of, targets_of
from widenet.kernels import reference
from widenet.kernels.bags import split
from widenet.model import wide_loss
from widenet.model.layers.output import WideOutput
from widenet.model.optimizers import Optimizer
from widenet.model.targets import Targets
from widenet.model.weight import Part, WideWeight
from widenet.model.wide_loss import output_step
from widenet.parallel.exchange import Exchange
from widenet.plan.tiles import Shards, as_slice
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

E, H, L = 7, 5, 37
RULE = Optimizer(TrainingSpec.of({"optimizer": "sgd"}).optimizer)


def given(seed=3):
    """Hidden vectors, weight, biases, and what examples count."""
    generator = torch.Generator().manual_seed(seed)
    shapes = (E, H), (L, H), (L,)
    return (
        *(torch.randn(shape, generator=generator) for shape in shapes),
        torch.rand(E, generator=generator),
    )


def assert_is_the_definition(loss, activation, kind, device="cpu"):
    """Loss and gradients of a step over three shards are the definition's in float64, within float32."""
    output = NetworkSpec.of(document(loss, activation)).outputs[0]
    _, batch = targets_of(kind, torch.Generator().manual_seed(5), E, L, loss)
    direct_EH, weight_LH, bias_L, weight_E = given()
    if name_of(activation) == "linear_max":
        bias_L += 3  # far from a sum of zero
    double = [numbers.double() for numbers in (direct_EH, weight_LH, bias_L)]
    targets = batch.double() if isinstance(batch, torch.Tensor) else batch
    expected = reference.wide_loss(output, *double, targets, weight_E.double())
    there = [numbers.to(device) for numbers in (direct_EH, weight_LH, bias_L, batch, weight_E)]
    found = _stepped(output, *there)
    for ours, theirs in zip(found, expected, strict=True):
        assert float((ours.cpu().double() - theirs).abs().max()) <= 2e-5 * max(1.0, float(theirs.abs().max()))


def _stepped(output, direct_EH, weight_LH, bias_L, batch, weight_E):
    shards = Shards(L, 3)
    cut = [as_slice(shards.units(s)) for s in range(3)]
    weight = WideWeight(shards, {s: Part(weight_LH[rows].clone()) for s, rows in enumerate(cut)})
    bias = WideWeight(shards, {s: Part(bias_L[rows].clone()) for s, rows in enumerate(cut)})
    wide = WideOutput(output, weight, bias, Exchange(3, 1), shards)
    gradient_LH, gradient_L = torch.zeros_like(weight_LH), torch.zeros_like(bias_L)
    is_dense = isinstance(batch, torch.Tensor)
    targets = (
        Targets.of_dense(batch, shards) if is_dense else Targets.of_parts(batch, split(batch, shards.count))
    )
    step = output_step(wide, direct_EH, targets, weight_E, RULE)
    loss, gradient_EH = step.start(None)()
    for shard, rows in enumerate(cut):
        for start, stop in step.spans(shard, 0):
            found = step.gradient(shard, start, stop)
            gradient_LH[rows][start:stop], gradient_L[rows][start:stop] = found
    return loss, gradient_EH, gradient_LH, gradient_L


@pytest.mark.parametrize("kind", ["sparse", "sparse with values", "dense"])
@pytest.mark.parametrize(("loss", "activation"), PAIRS, ids=name_of)
def test_a_step_is_its_definition(loss, activation, kind, monkeypatch):
    """tests/model/test_wide_loss.py holds whole steps, by the library where it runs, against it."""
    monkeypatch.setattr(wide_loss, "library_runs", lambda _: False)
    assert_is_the_definition(loss, activation, kind)
