"""Places as windows reach them, by hand."""

import torch

from widenet.model.convolution import cropped, padded, padded_zeros, reached
from widenet.plan.windows import Axis, Windows

LINE = Windows(1, (Axis(places=4, kernel=3, stride=2, positions=2, before=1, after=0),))
NUMBERS = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])


def test_every_number_of_a_kernel_meets_the_padded_places_of_all_positions():
    found = [view.flatten().tolist() for view in reached(padded(NUMBERS, LINE.axes, -9.0), LINE)]
    assert found == [[-9, 2], [1, 3], [2, 4]]


def test_what_is_added_to_the_views_lands_at_the_places():
    total = padded_zeros(NUMBERS, (1, 1), LINE.axes)
    for number, view in enumerate(reached(total, LINE)):
        view += 10.0**number
    assert total.tolist() == [[[1, 10, 101, 10, 100]]]
    assert cropped(total, LINE.axes).tolist() == [[[10, 101, 10, 100]]]


def test_without_padding_nothing_is_copied():
    plain = (Axis(places=4, kernel=2, stride=1, positions=3, before=0, after=0),)
    assert padded(NUMBERS, plain) is NUMBERS
