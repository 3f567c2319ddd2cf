"""Pictures and HTML: text is escaped, finite numbers are points that say themselves, boxes have an order."""

import math

import pytest

from tests.pages import Page
from widenet.pictures.curves import curves, ticks
from widenet.pictures.graph import graph
from widenet.pictures.html import Html, joined, tag

EVIL = "<script>alert('1')</script> \" onload=\"x & y"
BOXES = {"a": ("red", ["one"]), "b": ("red", ["one", "two"]), "c": ("blue", []), "d" * 60: ("blue", ["<i>"])}
ARROWS = [("a", "c"), ("b", "c"), ("c", "d" * 60), ("a", "d" * 60)]


def test_text_is_escaped_and_html_is_not():
    html = tag("p", EVIL, tag("b", "5 < 6"), title=EVIL)
    page = Page(html)
    assert page.elements == [("p", {"title": EVIL}), ("b", {})]
    assert page.texts == {"p": [EVIL], "b": ["5 < 6"]}


def test_attributes_have_their_names_in_html():
    assert tag("line", x1=1.5, class_="a", stroke_width=2.0, hidden=True, id=None, open=False) == (
        '<line x1="1.5" class="a" stroke-width="2" hidden></line>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert joined(["<", Html("<br>"), 3]) == "&lt;<br>3"


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


def test_what_is_not_finite_is_left_out():
    page = Page(curves("loss", {"loss": [(1, math.nan), (2, 3.0), (3, math.inf)]}))
    assert page.texts["title"] == ["loss, epoch 2: 3"]
    assert "no values" in Page(curves("loss", {"loss": [(1, math.nan)]})).text


def test_each_box_stands_below_what_leads_to_it_and_within_the_picture():
    page = Page(graph("g", BOXES, ARROWS))
    places = [
        {key: float(found[key]) for key in ("x", "y", "width", "height")}
        for name, found in page.elements
        if name == "rect"
    ]
    a, b, c, d = places
    assert a["y"] == b["y"] < c["y"] < d["y"]
    assert a["x"] + a["width"] < b["x"]
    _, _, width, height = map(float, dict(page.elements)["svg"]["viewbox"].split())
    assert all(
        place["x"] >= 0 and place["x"] + place["width"] <= width and place["y"] + place["height"] <= height
        for place in places
    )
    assert page.count("path") == len(ARROWS)
