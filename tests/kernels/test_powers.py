"""Powers against the C library's, and their bits at every place and for every number of threads."""

import pytest
import torch

from widenet.kernels.fixed_point import power, powers

NUMBERS = torch.arange(1, 100_003, dtype=torch.float64)


@pytest.mark.parametrize(
    "compute",
    [
        lambda numbers: power(numbers / 70_000, 0.75),
        lambda numbers: power(numbers, -0.375),
        lambda numbers: powers(0.999, numbers),
    ],
)
def test_a_power_depends_on_its_number_alone(compute):
    whole = compute(NUMBERS)
    for threads in (1, 3):
        torch.set_num_threads(threads)  # the room's fixture sets it back
        for start, stop in ((0, len(NUMBERS)), (3, 100_000), (40_001, 40_002), (99_990, 99_997)):
            assert torch.equal(compute(NUMBERS[start:stop]), whole[start:stop])
