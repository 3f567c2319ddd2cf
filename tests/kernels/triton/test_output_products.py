"""The passes of an output with the products inside: against the definition in float64, over any lots of
shards, and with and without room.
"""

import pytest
import torch

from tests.kernels.triton.test_tile_others import STEPS
from tests.model.test_wide_loss import CONTRASTIVE, MARGIN, document, name_of, targets_of
from widenet.kernels import reference, table
from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton import (
    hidden_gradient,
    output_products,
    shard_losses,
    softmax_delta,
    span,
    target_deltas,
    target_products,
    weight_step,
)
from widenet.kernels.triton.steps import Steps
from widenet.model import fused_output
from widenet.model.layers.output import WideOutput
from widenet.model.part import Part
from widenet.model.targets import Targets
from widenet.model.wide_loss import GradientSinks, output_step, run
from widenet.model.wide_weight import WHOLE, WideWeight
from widenet.parallel.local import LocalExchange
from widenet.plan import tiles
from widenet.plan.shards import Shards, as_slice
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec

E, H, L = 17, 19, 71


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Programs of few numbers, and two tiles a shard."""
    monkeypatch.setitem(table.TABLE, "tile", ("triton",))
    for module in (span, output_products, softmax_delta, target_deltas, weight_step):
        monkeypatch.setattr(module, "COLUMNS", 16)
    for module, names in (
        (output_products, ("_EXAMPLES", "_INNER")),
        (softmax_delta, ("_EXAMPLES",)),
        (hidden_gradient, ("_EXAMPLES", "_INNER", "_UNITS")),
        (weight_step, ("_EXAMPLES", "_INNER")),
        (target_products, ("_INNER",)),
        (target_deltas, ("_ENTRIES",)),
        (shard_losses, ("_NUMBERS",)),
    ):
        for name in names:
            # A product needs 16 numbers at once, of which operands in float32 have half.
            halves = name == "_INNER" or (module is weight_step and name == "_EXAMPLES")
            monkeypatch.setattr(module, name, 32 if halves else 16)
    monkeypatch.setattr(hidden_gradient, "_LEAST", 32)
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(tiles.TILE_CELLS, device, 1)
    monkeypatch.setattr(tiles, "LEAST_UNITS", 13)


def numbers(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def laid_out(shards, numbers_L, device, with_state):
    """The numbers of all shards in one allocation."""
    rows = torch.zeros(shards.count * shards.room, *numbers_L.shape[1:], device=device)
    wide = WideWeight(shards, {})
    whole = Part(rows, {"velocity": torch.zeros_like(rows)} if with_state else {})
    wide.lay_out(whole, range(shards.count))
    for shard, part in wide.parts.items():
        part.weight.copy_(numbers_L[as_slice(shards.units(shard))])
    return wide


def stepped(
    spec, batch, weight_LH, bias_L, direct_EH, weight_E, device, *, num_shards=3, half=False, kept=2**30
):
    """Loss, gradients to vectors, weight and biases, and the weight after a step of momentum."""
    shards, gradient_L = Shards(len(weight_LH), num_shards), torch.zeros(len(weight_LH))
    weight = laid_out(shards, weight_LH, device, with_state=True)
    bias = None if bias_L is None else laid_out(shards, bias_L, device, with_state=False)
    wide = WideOutput(
        spec, weight, bias, LocalExchange(num_shards), half=half, tf32=not half, kept_bytes=kept
    )

    def take_biases(shard, gradient_R):
        for own in range(num_shards) if shard == WHOLE else [shard]:
            first = own * shards.room if shard == WHOLE else 0
            gradient_L[as_slice(shards.units(own))] = gradient_R[first : first + shards.size(own)].cpu()

    def refuse(*_):
        raise AssertionError("a tile by itself")

    steps = Steps("momentum", Penalties(), (0.9, 0.0, 0.5))
    sinks = GradientSinks(refuse, take_biases, launched_steps=lambda: steps)
    step = output_step(
        wide, direct_EH.to(device), Targets.of_sparse(batch.to(device), shards), weight_E.to(device)
    )
    loss, gradient_EH = run(step, sinks).result()
    velocity, moved = torch.empty_like(weight_LH), torch.empty_like(weight_LH)
    for shard, part in weight.parts.items():
        units = as_slice(shards.units(shard))
        velocity[units], moved[units] = part.state["velocity"].cpu(), part.weight.cpu()
    return loss.cpu(), gradient_EH.cpu(), velocity, gradient_L, moved


def given(num_examples=E, hidden=H, width=L):
    weights = torch.rand(num_examples, generator=torch.Generator().manual_seed(4))
    return (
        numbers(width, hidden) / hidden**0.5,
        numbers(width, seed=1),
        numbers(num_examples, hidden, seed=2),
        weights,
    )


def output_of(loss, activation):
    return NetworkSpec.of(document(loss, activation)).outputs[0]


def rounded(tensor, half, device):
    """The tensor as the products of a device take it, float64; in TF32, matrix units ignore the last bits."""
    if half:
        return tensor.bfloat16().double()
    if device.type == "cpu":
        return tensor.double()
    return (tensor.view(torch.int32) & ~0x1FFF).view(torch.float32).double()


def assert_near(found, expected, tolerance):
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.shape == theirs.shape
        if ours.numel():
            assert float((ours.double() - theirs).abs().max()) <= tolerance * max(
                1.0, float(theirs.abs().max())
            )


PAIRS = [
    *STEPS,
    ({"kind": "data_scaled_marginal_cross_entropy", **MARGIN}, "sigmoid"),
    ("l1", "gelu"),
    (CONTRASTIVE, "selu"),
]


CASES = [(*pair, "sparse with values", False) for pair in PAIRS] + [
    (*pair, "sparse", True) for pair in STEPS[:2]
]


@pytest.mark.parametrize(("loss", "activation", "kind", "half"), CASES, ids=name_of)
def test_a_step_is_its_definition(loss, activation, kind, half, device):
    spec, (weight_LH, bias_L, direct_EH, weight_E) = output_of(loss, activation), given()
    _, batch = targets_of(kind, torch.Generator().manual_seed(5), E, L, loss)
    operands = rounded(direct_EH, half, device), rounded(weight_LH, half, device), bias_L.double()
    expected = reference.wide_loss(spec, *operands, batch, weight_E.double())
    found = stepped(spec, batch, weight_LH, bias_L, direct_EH, weight_E, device, half=half)
    # The interpreter does not round to TF32, and truncates to bfloat16 where a device rounds.
    exact = device.type == "cpu" and not half
    assert_near(found[:1], expected[:1], 1e-5 if exact else 1e-3)
    assert_near(found[1:4], expected[1:], 2e-5 if exact else 2.0**-7)
    assert torch.equal(found[4], weight_LH - 0.5 * found[2])


SHAPES = {
    "one example": ([[3, 5]], 37, 31),
    "no targets": ([[], [], []], 5, 31),
    "all units on": ([list(range(41))] * 2, 64, 41),
    "fewer units than shards": ([[0], [1], []], 3, 2),
    "units that end a tile": ([[12, 13], [22, 23, 25], [35, 36]], 65, 69),
}


@pytest.mark.parametrize(
    ("activation", "half"), [("softmax", False), pytest.param("sigmoid", True, marks=pytest.mark.long)]
)
@pytest.mark.parametrize(("rows", "hidden", "width"), SHAPES.values(), ids=SHAPES)
def test_a_step_of_any_shape_is_right(rows, hidden, width, half, activation, device):
    spec, batch = output_of("cross_entropy", activation), SparseBatch.from_lists(rows)
    weight_LH, _, direct_EH, weight_E = given(len(rows), hidden, width)
    no_bias = torch.zeros(width, dtype=torch.float64)
    operands = rounded(direct_EH, half, device), rounded(weight_LH, half, device), no_bias
    expected = reference.wide_loss(spec, *operands, batch, weight_E.double())
    found = stepped(spec, batch, weight_LH, None, direct_EH, weight_E, device, half=half)
    tolerance = 2.0**-7 if half or device.type == "cuda" else 2e-5
    assert_near(found[:4], expected, tolerance)


def test_no_examples_move_nothing(device):
    batch, (weight_LH, bias_L, direct_EH, weight_E) = SparseBatch.from_lists([]), given(0)
    loss, gradient_EH, *_, moved = stepped(
        output_of("cross_entropy", "softmax"),
        batch,
        weight_LH,
        bias_L,
        direct_EH,
        weight_E,
        device,
        half=True,
    )
    assert (loss, gradient_EH.shape) == (0, (0, H))
    assert torch.equal(moved, weight_LH)


@pytest.mark.parametrize("activation", ["softmax", "sigmoid"])
def test_of_a_target_named_twice_the_last_counts_and_the_loss_has_both(activation, device):
    spec, parameters = output_of("cross_entropy", activation), given(2)
    values = torch.tensor([0.25, 1.0, 0.5, 0.75])
    twice = SparseBatch.from_lists([[7, 7, 30], [7]]).with_values(values)
    weight_LH, bias_L, direct_EH, weight_E = parameters
    found = stepped(spec, twice, weight_LH, bias_L, direct_EH, weight_E, device)
    shards, gradient_LH, gradient_L = Shards(L, 3), torch.zeros(L, H), torch.zeros(L)

    def take(shard, start, stop, gradient_TH):
        gradient_LH[as_slice(shards.units(shard)[start:stop])] = gradient_TH.cpu()

    def take_biases(shard, gradient_R):
        gradient_L[as_slice(shards.units(shard))] = gradient_R.cpu()

    weight, bias = (laid_out(shards, each, device, with_state=False) for each in (weight_LH, bias_L))
    wide = WideOutput(spec, weight, bias, LocalExchange(3))
    step = output_step(
        wide, direct_EH.to(device), Targets.of_sparse(twice.to(device), shards), weight_E.to(device)
    )
    loss, gradient_EH = run(step, GradientSinks(take, take_biases)).result()
    expected = loss.cpu(), gradient_EH.cpu(), gradient_LH, gradient_L
    assert_near(found[:4], expected, 2e-5 if device.type == "cpu" else 2e-3)


@pytest.mark.parametrize(
    ("activation", "half"),
    [
        ("softmax", False),
        *(pytest.param(name, True, marks=pytest.mark.long) for name in ("softmax", "sigmoid")),
    ],
)
def test_the_bits_do_not_depend_on_the_shards_of_a_launch_and_on_room(activation, half, device, monkeypatch):
    spec, parameters = output_of("cross_entropy", activation), given()
    _, batch = targets_of("sparse with values", torch.Generator().manual_seed(5), E, L, "cross_entropy")

    def with_lots_of(count, kept):
        def lots(output):
            [whole] = all_at_once(output)
            for first in range(0, 4, count):
                held, room = whole.shards[first : first + count], whole.room
                rows = first * room, (first + count) * room
                bias_R = whole.bias_R[slice(*rows)]
                yield fused_output._Lot(held, whole.weight.views(*rows), bias_R, room)

        all_at_once = fused_output._lots
        with monkeypatch.context() as patch:
            patch.setattr(fused_output, "_lots", lots)
            return stepped(spec, batch, *parameters, device, num_shards=4, half=half, kept=kept)

    expected = with_lots_of(4, 2**30)
    for count, kept in ((4, 0), (2, 2**30)):
        found = with_lots_of(count, kept)
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize("num_others", [None, 1, 1030])
def test_a_shard_adds_losses_of_more_blocks_than_it_takes_at_once(num_others, device, monkeypatch):
    """At its own size: 1,024 at once, and the last ones alone."""
    monkeypatch.undo()
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    generator = torch.Generator().manual_seed(0)
    targets_SB = torch.randn(3, 2_050, dtype=torch.float64, generator=generator)
    others_SBP = None
    expected_S = targets_SB.sum(dim=1)
    if num_others is not None:
        others_SBP = torch.randn(3, num_others, 2, dtype=torch.float64, generator=generator)
        expected_S = expected_S + others_SBP.sum(dim=(1, 2))
    on_device = None if others_SBP is None else others_SBP.to(device)
    found_S = shard_losses.shard_losses(on_device, targets_SB.to(device))
    assert shard_losses._NUMBERS == 1_024
    torch.testing.assert_close(found_S.cpu(), expected_S, rtol=1e-12, atol=1e-12)
    alone_S = shard_losses.shard_losses(
        None if on_device is None else on_device[:1], targets_SB[:1].to(device)
    )
    assert torch.equal(alone_S, found_S[:1])
