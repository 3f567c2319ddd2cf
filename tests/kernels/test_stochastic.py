"""Rounding by chance: right in the mean, exact where nothing is to be rounded, the same bits by every
implementation.
"""

from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch

from widenet.kernels import constants, stochastic

IMPLEMENTATIONS = ["torch", "numba"]
WORD = 2**64 - 1


def numbers(rows=40, columns=301):
    """Numbers of all magnitudes, some of them special."""
    generator = torch.Generator().manual_seed(3)
    scale = torch.exp(torch.randn(rows, 1, generator=generator) * 20)
    drawn = torch.randn(rows, columns, generator=generator) * scale
    drawn[:, ::7] *= 1e-3
    drawn[3] = 0
    drawn[4, 5], drawn[5, 6], drawn[6, 7], drawn[6, 8] = torch.inf, -torch.inf, torch.nan, 3.4e38
    drawn[7], drawn[8] = torch.randn(columns, generator=generator) * 1e-38, 1e-44
    return drawn


UNITS = torch.randint(0, 10**9, (40,), generator=torch.Generator().manual_seed(4))


@pytest.fixture(params=IMPLEMENTATIONS)
def _each(request, monkeypatch):
    use(request.param, monkeypatch)


def use(implementation, monkeypatch):
    if implementation == "numba":
        pytest.importorskip("numba")
    monkeypatch.setattr(stochastic, "runner", lambda *_: implementation)
    return implementation


def bits(tensor):
    return tensor.view({4: torch.int32, 2: torch.int16, 1: torch.uint8}[tensor.element_size()]).numpy()


def mixed(word):
    """SplitMix64's result of a state, in whole numbers of Python."""
    word = (word ^ (word >> 30)) * constants.MIXERS[0] & WORD
    word = (word ^ (word >> 27)) * constants.MIXERS[1] & WORD
    return word ^ (word >> 31)


def chance(key, unit, column):
    state = mixed((key + constants.GOLDEN * (unit + 1)) & WORD)
    word = mixed((state + constants.GOLDEN * (column // 2 + 1)) & WORD)
    return word >> 32 * (column % 2) & 0xFFFFFFFF


def test_bits_of_chance_are_those_of_splitmix64():
    # The first words of the generator's own program for the seed 1234567.
    words = [mixed(1234567 + step * constants.GOLDEN & WORD) for step in (1, 2, 3)]
    assert words == [6457827717110365317, 3203168211198807973, 9817491932198370423]
    found = stochastic.random_bits(2**64 - 9, UNITS[:5], 7)
    expected = [[chance(2**64 - 9, unit, column) for column in range(7)] for unit in UNITS[:5].tolist()]
    assert found.tolist() == expected


@pytest.mark.usefixtures("_each")
def test_every_number_becomes_the_neighbour_that_the_chance_says():
    values = torch.cat([numbers()[:3, :50].flatten(), torch.tensor([1.0, -1.0, 1 + 2**-23, 2 - 2**-23])])
    rounded = stochastic.to_bfloat16(values[None], 77, UNITS[:1])[0].float().tolist()
    for column, (value, found) in enumerate(zip(values.tolist(), rounded, strict=True)):
        word = np.float32(abs(value)).view(np.uint32)
        below, above = (
            Fraction(float((np.uint32(word >> 16) + np.uint32(more) << np.uint32(16)).view(np.float32)))
            for more in (0, 1)
        )
        share = (Fraction(abs(value)) - below) / (above - below)
        is_above = share + Fraction(chance(77, int(UNITS[0]), column) >> 16, 2**16) >= 1
        assert abs(Fraction(found)) == (above if is_above else below)
        assert np.signbit(found) == np.signbit(value)


@pytest.mark.parametrize("value", [1.0 + 2**-20, -0.3, 7e-39, 1.9999999, 3.0])
def test_the_mean_over_all_chances_is_the_number(value, monkeypatch):
    use("torch", monkeypatch)
    monkeypatch.setattr(stochastic, "random_bits", lambda *_: torch.arange(2**16)[:, None] << 16)
    found = stochastic.to_bfloat16(torch.full((2**16, 1), value), 0, torch.zeros(2**16, dtype=torch.int64))
    counts = Counter(found.flatten().float().tolist())
    assert len(counts) <= 2
    mean = sum(Fraction(rounded) * count for rounded, count in counts.items()) / 2**16
    assert mean == Fraction(float(np.float32(value)))


@pytest.mark.usefixtures("_each")
def test_a_larger_number_never_becomes_smaller_by_the_same_chance(monkeypatch):
    ascending = torch.sort(torch.randn(500, generator=torch.Generator().manual_seed(1)))[0]
    monkeypatch.setattr(
        stochastic, "random_bits", lambda _, units, columns: torch.full((len(units), columns), 0x7FFF1234)
    )
    found = stochastic.to_bfloat16(ascending[:, None], 1, torch.zeros(500, dtype=torch.int64)).flatten()
    assert bool((found.float().diff() >= 0).all())


@pytest.mark.usefixtures("_each")
def test_numbers_in_bfloat16_infinities_and_nan_stay():
    exact = numbers().bfloat16().float()
    found = stochastic.to_bfloat16(exact, 5, UNITS)
    assert torch.equal(found.float().nan_to_num(nan=7e7), exact.nan_to_num(nan=7e7))
    special = torch.tensor([[torch.inf, -torch.inf, 0.0, -0.0]])
    nan = torch.tensor([[0x7FFFFFFF, -1, 0x7F800001]], dtype=torch.int32).view(torch.float32)
    assert stochastic.to_bfloat16(special, 5, UNITS[:1]).float().tolist()[0][:4] == [
        torch.inf,
        -torch.inf,
        0,
        0,
    ]
    assert bool(stochastic.to_bfloat16(nan, 5, UNITS[:1]).isnan().all())


@pytest.mark.parametrize("is_square", [False, True])
def test_implementations_give_the_same_bits(is_square, monkeypatch):
    found = []
    for implementation in IMPLEMENTATIONS:
        use(implementation, monkeypatch)
        codes, tops = stochastic.packed(
            numbers().abs() if is_square else numbers(), is_square, 2**63 + 5, UNITS
        )
        whole = stochastic.to_bfloat16(numbers(), 2**63 + 5, UNITS), codes, tops
        found.append([bits(part) for part in (*whole, stochastic.unpacked(codes, tops, is_square))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.usefixtures("_each")
def test_a_chance_belongs_to_its_unit_and_column_wherever_they_stand():
    order = torch.randperm(40, generator=torch.Generator().manual_seed(2))
    whole, some = numbers(), numbers()[order][:9]
    for make in (stochastic.to_bfloat16, lambda *rest: stochastic.packed(rest[0], False, *rest[1:])[0]):
        expected = bits(make(whole, 9, UNITS))[order[:9].numpy()]
        np.testing.assert_array_equal(bits(make(some, 9, UNITS[order[:9]])), expected)


def steps_of(values, mantissa_bits):
    """The distance of two codes at each number, float64, by the definition: a shared exponent a block."""
    steps = np.empty(values.shape)
    for start in range(0, values.shape[1], stochastic.BLOCK):
        block = np.abs(values[:, start : start + stochastic.BLOCK])
        top = np.floor(np.log2(block.max(axis=1, keepdims=True) * (1 + 2.0**-mantissa_bits)))
        own = np.floor(np.log2(np.maximum(block, 1e-300)))
        steps[:, start : start + stochastic.BLOCK] = 2.0 ** (np.maximum(own, top - 14) - mantissa_bits)
    return steps


@pytest.mark.usefixtures("_each")
@pytest.mark.parametrize("is_square", [False, True])
def test_numbers_in_8_bits_are_within_a_step_of_a_float64_oracle(is_square):
    generator = torch.Generator().manual_seed(6)
    drawn = torch.randn(40, 600, generator=generator) * torch.exp(
        torch.randn(40, 600, generator=generator) * 3
    )
    values = drawn.square() if is_square else drawn
    codes, tops = stochastic.packed(values, is_square, 4, UNITS)
    assert (codes.dtype, tops.shape) == (torch.uint8, (40, 3))
    found = stochastic.unpacked(codes, tops, is_square).double().numpy()
    error = np.abs(found - values.double().numpy())
    assert (error <= steps_of(values.double().numpy(), 3 + is_square)).all()
    assert not is_square or bool((found > 0).all())
    again = stochastic.packed(stochastic.unpacked(codes, tops, is_square), is_square, 99, UNITS)
    np.testing.assert_array_equal(stochastic.unpacked(*again, is_square).double().numpy(), found)


@pytest.mark.parametrize(("value", "largest"), [(-0.3, 1.0), (2.0**-17 * 1.3, 1.0)])
def test_the_mean_of_8_bits_over_all_chances_is_the_number(value, largest, monkeypatch):
    use("torch", monkeypatch)
    chances = torch.cat([torch.arange(2**20).view(2**13, 128) << 12, torch.zeros(2**13, 1).long()], dim=1)
    monkeypatch.setattr(stochastic, "random_bits", lambda *_: chances)
    values = torch.tensor([[value] * 128 + [largest]]).expand(2**13, 129)
    codes, tops = stochastic.packed(values, False, 0, torch.zeros(2**13, dtype=torch.int64))
    found, counts = torch.unique(stochastic.unpacked(codes, tops, False)[:, :-1], return_counts=True)
    pairs = zip(found.tolist(), counts.tolist(), strict=True)
    mean = sum(Fraction(rounded) * count for rounded, count in pairs) / 2**20
    lost = Fraction(2) ** -37 if abs(value) < 2**-14 else 0  # 2^-20 of the smallest code
    assert abs(mean - Fraction(float(np.float32(value)))) <= lost


@pytest.mark.usefixtures("_each")
def test_a_block_keeps_an_infinity_and_nan():
    codes, tops = stochastic.packed(numbers(), False, 1, UNITS)
    found = stochastic.unpacked(codes, tops, False)
    assert found[4, 5] == torch.inf
    assert found[5, 6] == -torch.inf
    assert bool(found[6, 7].isnan())
    assert bool(found[4, 256:].isfinite().all())
