"""Numbers that are rounded by chance are right in the mean, and small steps are kept."""

import pytest
import torch

from labs.numbers.stored import FORMS, Stored, by_chance, in_8_bits, trained


def test_rounding_by_chance_gives_a_neighbour_and_the_number_in_the_mean():
    generator = torch.Generator().manual_seed(0)
    numbers = torch.tensor([1.001, -3.3e-5, 0.0, 7e20]).repeat(20_000, 1)
    rounded = by_chance(numbers, generator).float()
    assert ((rounded / numbers - 1).abs().nan_to_num() < 2**-7).all()
    torch.testing.assert_close(rounded.double().mean(0), numbers[0].double(), rtol=1e-4, atol=0)


@pytest.mark.parametrize("are_squares", [False, True])
def test_8_bits_have_few_values_near_the_numbers_and_their_mean(are_squares):
    generator = torch.Generator().manual_seed(0)
    numbers = torch.linspace(0.01, 1, 256)
    numbers = numbers if are_squares else numbers * torch.tensor([1.0, -1.0]).repeat(128)
    found = torch.stack([in_8_bits(numbers, are_squares, generator) for _ in range(2000)])
    assert len(found.unique()) <= 256
    assert ((found / numbers - 1).abs() <= 2 ** -(3 + are_squares)).all()
    torch.testing.assert_close(found.double().mean(0), numbers.double(), rtol=5e-3, atol=0)
    tiny = torch.tensor([1.0, 1e-30, 0.0])
    assert ((in_8_bits(tiny, True, generator) > 0) == (tiny > 0)).all()


def test_small_steps_are_lost_by_the_nearest_number_alone():
    ends = {}
    for name, (rounding, _, _) in FORMS.items():
        stored = Stored(torch.ones(1000), rounding)
        for _ in range(1000):
            stored.step(torch.full((1000,), 1e-4))
        ends[name] = float(stored.read().mean())
    assert ends.pop("bfloat16, to the nearest") == 1.0
    assert [*ends.values()] == pytest.approx([1.1] * len(ends), abs=0.01)


def test_every_form_trains():
    for rounding, has_small_state, _ in FORMS.values():
        assert trained(rounding, has_small_state, 1, 64).read().isfinite().all()
