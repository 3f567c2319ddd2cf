"""Curves for a browser: every finite number of every line, at its place, and as few letters as it needs."""

import json
import math

from tests.pages import Page
from widenet.pictures.curves import COLOURS
from widenet.ui.pages import plot, strict


def numbers(html):
    (figure,) = [found for name, found in Page(html).elements if name == "figure"]
    return json.loads(figure["data-numbers"])


def test_lines_share_an_axis_and_lack_numbers_where_they_have_none():
    found = numbers(plot("recall", {"a<": [(1, 0.125), (3, 1 / 3)], "b": [(2, math.nan), (4, 5.0)]}))
    assert found["names"] == ["a<", "b"]
    assert found["colours"] == list(COLOURS[:2])
    assert found["xs"] == [1, 3, 4]
    assert found["ys"] == [[0.125, 0.333333, None], [None, None, 5]]


def test_the_kept_epoch_is_marked_and_the_policy_of_pages_takes_nothing_away():
    html = plot("loss", {'style="x"': [(1, 2.0)]}, mark=(1.0, "kept: epoch 1"))
    assert numbers(strict(html)) == numbers(html)
    assert numbers(html)["mark"] == [1, "kept: epoch 1"]
    assert Page(html).texts["b"] == ["loss"]


def test_without_a_finite_number_a_figure_says_so():
    assert "no values" in Page(plot("loss", {"loss": [(1, math.inf)]})).text
    assert "no values" in Page(plot("loss", {})).text
