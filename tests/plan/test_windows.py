"""How a kernel moves: positions and padding by hand, and what does not fit in one sentence."""

import pytest

from widenet.plan.binding import windows_of
from widenet.plan.layout import Axis
from widenet.spec.layers import ConvolutionLayer, PoolingLayer


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


def test_a_number_counts_for_every_axis_and_a_list_for_each():
    found = windows((4, 7, 6), kernel=3, stride=(1, 2), padding="valid")
    assert found.axes == (Axis(7, 3, 1, 5, 0, 0), Axis(6, 3, 2, 2, 0, 0))
    assert (found.channels, found.places, found.kernel, found.positions, found.inputs) == (
        4,
        (7, 6),
        (3, 3),
        (5, 2),
        36,
    )


def test_windows_of_a_pooling_layer_lie_side_by_side_where_nothing_else_is_said():
    layer = PoolingLayer(kind="pooling", name="p", function={"kind": "max"}, kernel=(2, 3))
    assert windows_of(str, layer, "in", (4, 6, 6)).positions == (3, 2)


def test_a_flat_source_is_one_channel_for_a_list_of_one():
    assert windows((9,), kernel=(3,)).axes == (Axis(9, 3, 1, 9, 1, 1),)
