"""How a kernel moves: positions and padding by hand, and what does not fit in one sentence."""

import pytest

from widenet.plan.binding import windows_of
from widenet.spec.layers import ConvolutionLayer


def windows(source, **settings):
    layer = ConvolutionLayer(kind="convolution", name="c", filters=3, **settings)
    return windows_of('network.json: layers[1].{} ("c")'.format, layer, "in", source)


def along(places, kernel, stride=1, padding="same"):
    """Positions, padding before and padding after."""
    axis = windows((1, places), kernel=(kernel,), stride=stride, padding=padding).axes[0]
    assert (axis.places, axis.kernel, axis.stride) == (places, kernel, stride)
    return axis.positions, axis.before, axis.after


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((7, 3), (7, 1, 1)),
        ((7, 2), (7, 0, 1)),
        ((7, 3, 2), (4, 1, 1)),
        ((8, 3, 2), (4, 0, 1)),
        ((9, 1, 3), (3, 0, 0)),
        ((2, 5), (2, 2, 2)),
        ((7, 3, 1, "valid"), (5, 0, 0)),
        ((8, 3, 2, "valid"), (3, 0, 0)),
        ((7, 3, 1, 2), (9, 2, 2)),
        ((8, 3, 2, 1), (4, 1, 0)),
        ((7, 3, 1, "dsstne"), (7, 1, 1)),
        ((8, 4, 1, "dsstne"), (8, 2, 1)),
        ((8, 3, 2, "dsstne"), (3, 0, 0)),
        ((3, 3, 1, "dsstne"), (1, 0, 0)),
        ((2, 5, 1, "dsstne"), (1, 2, 1)),
        ((2, 4, 3, "dsstne"), (1, 1, 1)),
    ],
    ids=str,
)
def test_positions_and_padding_along_an_axis(arguments, expected):
    assert along(*arguments) == expected
