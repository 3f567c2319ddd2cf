"""Curves: every finite number is a point that says itself, axes are round."""

import math

import pytest

from tests.pages import Page
from widenet.pictures.curves import curves, ticks


@pytest.mark.parametrize(
    ("values", "about", "whole", "expected"),
    [
        ([0.01, 0.049], 4, False, [0.01, 0.02, 0.03, 0.04, 0.05]),
        ([1, 8], 5, True, [0, 2, 4, 6, 8]),
        ([1, 2], 5, True, [1, 2]),
        ([3, 3], 5, True, [2, 3, 4]),
        ([5.0], 4, False, [2, 4, 6, 8]),
        ([0.0, 0.0], 4, False, [-1, -0.5, 0, 0.5, 1]),
        ([-3e9, 7e9], 4, False, [-5e9, 0, 5e9, 1e10]),
    ],
)
def test_ticks_are_round_and_reach_around_the_values(values, about, whole, expected):
    assert ticks(values, about, whole) == expected


def test_every_point_says_its_numbers():
    page = Page(curves("recall", {"a": [(1, 0.125), (2, 0.25)], "b<": [(1, 0.5)]}))
    assert page.texts["title"] == ["a, epoch 1: 0.125", "a, epoch 2: 0.25", "b<, epoch 1: 0.5"]
    assert page.count("polyline") == 2
    assert {"a", "b<"} <= set(page.texts["span"])


def test_a_larger_number_stands_higher_and_a_later_one_further_right():
    page = Page(curves("loss", {"loss": [(1, 1.0), (2, 3.0), (4, 2.0)]}))
    first, second, third = [
        (float(found["cx"]), float(found["cy"])) for name, found in page.elements if name == "circle"
    ]
    assert first[0] < second[0] < third[0]
    assert third[0] - second[0] == pytest.approx(2 * (second[0] - first[0]), abs=0.02)
    assert second[1] < third[1] < first[1]


@pytest.mark.parametrize("most", [9, 900, 90_000, 9_000_000])
def test_no_number_of_an_axis_is_cut_off(most):
    page = Page(curves("loss", {"loss": [(1, 50), (most, 1)]}))
    width = float(next(found["viewbox"] for name, found in page.elements if name == "svg").split()[2])
    numbers = [found for name, found in page.elements if name == "text" and float(found["y"]) > 190]
    said = [text for text in page.texts["text"] if text.replace(",", "").isdigit()]
    last = next(found for found in reversed(numbers) if found.get("fill-opacity") is None)
    half = 7 * len(said[-1]) / 2
    assert float(last["x"]) + (0 if last["text-anchor"] == "end" else half) <= width


def test_what_is_not_finite_is_left_out():
    page = Page(curves("loss", {"loss": [(1, math.nan), (2, 3.0), (3, math.inf)]}))
    assert page.texts["title"] == ["loss, epoch 2: 3"]
    assert "no values" in Page(curves("loss", {"loss": [(1, math.nan)]})).text


def test_a_legend_may_stand_elsewhere():
    assert Page(curves("loss", {"a": [(1, 1)], "b": [(1, 2)]}, named=False)).count("span") == 0


def test_an_epoch_can_be_marked():
    lines = {"loss": [(1, 3.0), (2, 2.0), (3, 1.0)]}
    page = Page(curves("loss", lines, mark=(2.0, "kept: epoch 2")))
    (mark,) = [found for name, found in page.elements if found.get("stroke-dasharray")]
    dots = [float(found["cx"]) for name, found in page.elements if name == "circle"]
    assert float(mark["x1"]) == float(mark["x2"]) == dots[1]
    assert "kept: epoch 2" in page.texts["text"]
    assert "kept" not in Page(curves("loss", lines, mark=(9.0, "kept"))).text


def test_a_long_line_says_some_of_its_points_and_the_last():
    page = Page(curves("loss", {"loss": [(x, 1.0 + x) for x in range(1, 1001)]}))
    assert page.texts["title"][-1] == "loss, epoch 1,000: 1001"
    assert len(page.texts["title"]) == 200
    (line,) = [found["points"] for name, found in page.elements if name == "polyline"]
    assert len(line.split()) == 1000
