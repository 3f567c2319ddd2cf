"""Stacked bars: parts as wide as their numbers, side by side, and said."""

import pytest

from tests.pages import Page
from widenet.pictures.stacks import stacks


def test_parts_are_as_wide_as_their_numbers_and_follow_each_other():
    rows = {"<a>": {"one": 10.0, "none": 0.0, "two": 30.0}, "b": {"two": 20.0}}
    page = Page(stacks("memory", rows, lambda number: f"{number:g} B"))
    bars = [
        {key: float(found[key]) for key in ("x", "width")} for name, found in page.elements if name == "rect"
    ]
    one, two, missing, other = bars
    assert two["width"] == pytest.approx(3 * one["width"], abs=0.05)
    assert two["x"] == pytest.approx(one["x"] + one["width"], abs=0.05)
    assert missing["width"] == 0
    assert other["width"] == pytest.approx(2 * one["width"], abs=0.05)
    assert page.texts["title"] == ["<a>: one 10 B", "<a>: two 30 B", "b: one 0 B", "b: two 20 B"]
    assert page.texts["text"] == ["<a>", "40 B", "b", "20 B"]
    assert page.texts["span"] == ["one", "two"]


def test_nothing_is_no_bar():
    assert Page(stacks("time", {"training": {"steps": 0.0}}, str)).count("rect") == 0
