"""Steps of an output by the native library, beside float64's autograd."""

from dataclasses import dataclass, replace
from itertools import pairwise
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from widenet.kernels import native, passes
from widenet.kernels.bags import RowGradient
from widenet.kernels.passes import Gradients, OutputBatch, OutputShard, make_pass


@dataclass
class Case:
    """A shard and a batch, drawn at random."""

    kind: str
    direct_EH: Tensor
    weight_RH: Tensor
    bias_R: Tensor | None
    cosine: bool
    tile: int
    examples_Z: Tensor
    units_Z: Tensor
    values_Z: Tensor
    weight_E: Tensor
    touched: RowGradient

    @classmethod
    def drawn(cls, seed, kind=None, examples=None, inner=None, units=None):
        g = torch.Generator().manual_seed(seed)

        def whole(low, high):
            return int(torch.randint(low, high + 1, (1,), generator=g))

        kind = kind or ("sigmoid", "softmax")[whole(0, 1)]
        examples, inner, units = examples or whole(1, 90), inner or whole(2, 80), units or whole(1, 700)
        num = whole(0, 3 * examples)
        cells = torch.randperm(examples * units, generator=g)[:num].sort().values
        units_Z, examples_Z = cells // examples, cells % examples
        rows_U = torch.randperm(units, generator=g)[: whole(0, min(units, 9))].sort().values
        counts_U = torch.randint(1, 4, (len(rows_U),), generator=g)
        indptr = torch.cat([torch.zeros(1, dtype=torch.int64), counts_U.cumsum(0)])
        bags_Z = torch.randint(0, examples, (int(indptr[-1]),), generator=g)
        return cls(
            kind,
            torch.randn(examples, inner, generator=g),
            torch.randn(units, inner, generator=g),
            torch.randn(units, generator=g) if whole(0, 2) else None,
            bool(whole(0, 1)),
            whole(1, 800),
            examples_Z,
            units_Z,
            torch.rand(len(cells), generator=g) + 0.1,
            torch.rand(examples, generator=g),
            RowGradient(
                rows_U,
                indptr,
                bags_Z,
                torch.rand(len(bags_Z), generator=g),
                torch.randn(examples, inner, generator=g),
            ),
        )

    def logits(self, half):
        """The logits of a softmax's targets, by the library."""
        batch = OutputBatch(self.kind, self.direct_EH, self.tile, half)
        shard = self.shard(batch, keeps=False)
        make_pass("add_shares", batch, [shard], 1)
        return shard.logits_Z

    def shard(self, batch, keeps):
        """The shard before its passes."""
        (examples, inner), units = self.direct_EH.shape, len(self.weight_RH)
        is_softmax = self.kind == "softmax"
        return OutputShard(
            self.weight_RH,
            torch.empty(units) if self.cosine else None,
            self.bias_R,
            (0, units),
            self.examples_Z,
            self.units_Z,
            torch.empty_like(self.values_Z) if is_softmax else self.values_Z,
            torch.empty(batch.kept_numbers(units)) if keeps else None,
            torch.empty(batch.num_blocks(units), examples) if is_softmax else None,
            torch.zeros(examples, inner),
            torch.zeros(examples, dtype=torch.float64),
            torch.full((examples,), -torch.inf),
            torch.zeros(len(self.units_Z)),
        )

    def made(self, keeps=True, span=None, num_threads=1, half=False):
        """Loss and gradients to the vectors, weights and biases, by the library.

        `span`: tiles at a time; `num_threads`: also the number of equal shards, of which the last is given.
        """
        examples, units = len(self.direct_EH), len(self.weight_RH)
        batch = OutputBatch(self.kind, self.direct_EH, self.tile, half, self.weight_E, self.weight_E)
        shards = [self.shard(batch, keeps) for _ in range(num_threads)]
        own, spans = shards[-1], [*pairwise([*range(0, units, self.tile * (span or units)), units])]
        if self.kind == "softmax":
            for each in spans:
                make_pass("add_shares", batch, [shard.within(*each) for shard in shards], num_threads)
            total_E = own.peak_E.double() + own.total_E.log()
            pull_Z = self.values_Z * self.weight_E[self.examples_Z]
            for shard in shards:
                shard.of_target_Z.copy_(pull_Z)
            loss = -(pull_Z * (own.logits_Z - total_E[self.examples_Z])).sum()
            sum_E = torch.zeros(examples).index_add_(0, self.examples_Z, pull_Z)
            batch = replace(batch, one_E=total_E.float(), other_E=sum_E)
            make_pass("finish_hidden", batch, shards, num_threads)
        else:
            for each in spans:
                pieces = [shard.within(*each) for shard in shards]
                make_pass("add_slopes", batch, pieces, num_threads, [Gradients()] * num_threads)
            loss = own.total_E.sum()
        weight_RH, bias_R = torch.empty_like(self.weight_RH), torch.empty(units)
        for start, stop in spans:
            given = [
                Gradients(
                    touched=self.touched, weight_TH=torch.empty_like(own_TH), bias_T=torch.empty(len(own_TH))
                )
                for own_TH in [weight_RH[start:stop]] * num_threads
            ]
            make_pass("finish", batch, [shard.within(start, stop) for shard in shards], num_threads, given)
            weight_RH[start:stop], bias_R[start:stop] = given[-1].weight_TH, given[-1].bias_T
        return loss, own.hidden_EH, weight_RH, bias_R

    def defined(self):
        """The same by autograd in float64."""
        direct_EH = self.direct_EH.double().requires_grad_()
        weight_RH = self.weight_RH.double().requires_grad_()
        bias_R = (
            (torch.zeros(len(weight_RH)) if self.bias_R is None else self.bias_R).double().requires_grad_()
        )
        vector_RH = weight_RH / weight_RH.norm(dim=1, keepdim=True) if self.cosine else weight_RH
        z_ER = direct_EH @ vector_RH.T + bias_R
        t_ER = torch.zeros_like(z_ER).index_put((self.examples_Z, self.units_Z), self.values_Z.double())
        if self.kind == "softmax":
            loss_E = -(t_ER * z_ER.log_softmax(dim=1)).sum(dim=1)
        else:
            loss_E = (softplus(z_ER, threshold=100.0) - t_ER * z_ER).sum(dim=1)
        loss = (loss_E * self.weight_E.double()).sum()
        loss.backward()
        for u, row in enumerate(self.touched.features_U.tolist()):
            low, high = self.touched.indptr[u : u + 2].tolist()
            for z in range(low, high):
                own_H = self.touched.gradient_EH[self.touched.examples_Z[z]].double()
                weight_RH.grad[row] += self.touched.values_Z[z].double() * own_H
        return loss.detach(), direct_EH.grad, weight_RH.grad, bias_R.grad

    def check(self):
        for found, expected in zip(self.made(), self.defined(), strict=True):
            scale = float(expected.abs().amax()) if expected.numel() else 0.0
            torch.testing.assert_close(found.double(), expected, rtol=2e-4, atol=5e-6 * max(scale, 0.1))


def test_steps_of_three_hundred_shapes_are_those_of_autograd():
    for seed in range(1000, 1300):
        Case.drawn(seed).check()


@pytest.mark.parametrize("kind", ["sigmoid", "softmax"])
@pytest.mark.parametrize(
    ("examples", "inner", "units"), [(1, 1, 1), (16, 32, 264), (33, 17, 265), (300, 64, 73)]
)
def test_a_step_at_the_edges_of_blocks_is_that_of_autograd(kind, examples, inner, units):
    Case.drawn(7, kind, examples, inner, units).check()


PAIRS = ["avx512_bf16", "amx_bf16"]


@pytest.fixture
def pairs(request, monkeypatch):
    """What multiplies pairs of bfloat16; None: nothing does."""
    is_here = request.param == "avx512_bf16" and native.level() == "v4" and "avx512_bf16" in native._flags()
    if not is_here and request.param not in (None, native.multiplies_bfloat16()):
        pytest.skip(f"the processor or this copy of the library has no {request.param}")
    monkeypatch.setattr(passes, "multiplies_bfloat16", lambda: request.param)


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize(
    ("pairs", "half"), [(None, False), (None, True), *((name, True) for name in PAIRS)], indirect=["pairs"]
)
@pytest.mark.parametrize("seed", range(8))
def test_no_bit_depends_on_what_is_kept_or_at_hand_or_on_threads(seed, half):
    case = Case.drawn(seed)
    expected = case.made(half=half)
    for other in ({"keeps": False}, {"span": 1}, {"num_threads": 3}):
        assert [torch.equal(*pair) for pair in zip(case.made(half=half, **other), expected, strict=True)] == [
            True
        ] * 4


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("pairs", PAIRS, indirect=True)
def test_pairs_give_what_rounded_numbers_give(monkeypatch):
    cases = [Case.drawn(seed) for seed in range(4000, 4200)]
    for case in cases:
        case.direct_EH = case.direct_EH.bfloat16().float()
    found = [case.made(half=True) for case in cases]
    monkeypatch.setattr(passes, "multiplies_bfloat16", lambda: None)
    for of_pairs, case in zip(found, cases, strict=True):
        for one, other in zip(of_pairs, case.made(half=True), strict=True):
            assert other.numel() == 0 or float((one - other).norm() / other.norm().clamp_min(1e-3)) < 3e-3


@pytest.mark.usefixtures("pairs")
@pytest.mark.parametrize("pairs", [None, *PAIRS], indirect=True)
def test_rounding_leaves_the_gradient_of_a_target_that_is_nearly_certain():
    case = Case.drawn(2, "softmax", 24, 32, 90)
    case.cosine, case.bias_R, case.direct_EH = False, None, case.direct_EH.bfloat16().float()
    case.weight_RH = (0.02 * case.weight_RH).bfloat16().float()
    case.examples_Z, case.units_Z = torch.arange(24), torch.arange(24)
    case.values_Z, none = torch.ones(24), torch.zeros(0, dtype=torch.int64)
    case.touched = RowGradient(none, torch.zeros(1, dtype=torch.int64), none, None, case.direct_EH)
    own_EH = case.direct_EH / case.direct_EH.square().sum(dim=1, keepdim=True)
    case.weight_RH[:24] = (10 * own_EH).bfloat16().float()  # of probability .99 and more
    found, expected = case.made(half=True)[2][:24].double(), case.defined()[2][:24]
    assert float((found - expected).norm() / expected.norm()) < 0.02


@pytest.mark.parametrize("units", [1, 338, 70_000])
@pytest.mark.parametrize("level", [-60.0, -9.0, 0.0, 9.0, 20.0])
def test_the_loss_of_a_sigmoid_is_that_of_softplus(units, level):
    case = Case.drawn(units, "sigmoid", 6, 3, units)
    case.bias_R, case.cosine, none = torch.full((units,), level), False, torch.zeros(0, dtype=torch.int64)
    case = replace(case, examples_Z=none, units_Z=none, values_Z=torch.zeros(0))
    torch.testing.assert_close(case.made()[0], case.defined()[0], rtol=1e-6, atol=3e-16 * units)


def test_what_is_not_finite_gives_no_finite_loss():
    for bad in (torch.nan, torch.inf):
        for kind in ("sigmoid", "softmax"):
            case = Case.drawn(3, kind, 5, 4, 9)
            case.weight_RH[4, 2] = bad
            assert not bool(torch.isfinite(case.made()[0]))


def test_operands_are_rounded_as_torch_rounds():
    case = Case.drawn(4, "softmax", 5, 40, 90)
    case.cosine, case.direct_EH = False, case.direct_EH.bfloat16().float()
    edges = [0.0, -0.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-7 + 2**-8, 1e-40, 3e-39]
    case.weight_RH.view(-1)[: len(edges)] = torch.tensor(edges)
    rounded = replace(case, weight_RH=case.weight_RH.bfloat16().float())
    with mock.patch.object(passes, "chosen_bits", return_value="portable"):
        assert torch.equal(case.logits(half=True), rounded.logits(half=False))
