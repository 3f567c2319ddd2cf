"""Numbers that are rounded by chance are right in the mean, and small steps are kept."""

import pytest
import torch

from labs.numbers.stored import FORMS, Stored


def test_small_steps_are_lost_by_the_nearest_number_alone():
    ends = {}
    for name, (rounding, _, _) in FORMS.items():
        stored = Stored(torch.ones(1000), rounding)
        for _ in range(1000):
            stored.step(torch.full((1000,), 1e-4))
        ends[name] = float(stored.read().mean())
    assert ends.pop("bfloat16, to the nearest") == 1.0
    assert [*ends.values()] == pytest.approx([1.1] * len(ends), abs=0.01)
