"""Graphs: a box below all that lead to it, long names cut, nothing outside the picture."""

from tests.pages import Page
from widenet.pictures.graph import graph

BOXES = {"a": ("red", ["one"]), "b": ("red", ["one", "two"]), "c": ("blue", []), "d" * 60: ("blue", ["<i>"])}
ARROWS = [("a", "c"), ("b", "c"), ("c", "d" * 60), ("a", "d" * 60)]


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


def test_a_long_name_is_cut_and_said_in_full():
    page = Page(graph("g", BOXES, ARROWS))
    assert page.texts["title"] == ["d" * 60]
    assert "d" * 35 + "\u2026" in page.texts["text"]
    assert "<i>" in page.texts["text"]


def test_no_boxes_are_a_picture_too():
    assert Page(graph("g", {}, [])).count("rect") == 0


def test_long_lines_are_wrapped_and_boxes_that_share_weights_are_joined():
    words = "a setting of many words that says more than one line of a box can hold"
    boxes = {"a": ("red", [words]), "b": ("red", []), "c<": ("blue", [])}
    page = Page(graph("g", boxes, [("a", "b"), ("b", "c<")], shared=[("a", "c<")]))
    first, *_ = [float(found["height"]) for name, found in page.elements if name == "rect"]
    lines = page.texts["text"][1:-2]
    assert " ".join(lines) == words
    assert len(lines) > 1
    assert first > 17 * len(lines)
    (joint,) = [found for name, found in page.elements if name == "path" and found.get("class") == "shared"]
    assert page.texts["title"] == ["a and c< share their weights"]
    across = [float(pair.split(",")[0]) for pair in joint["d"].replace("M", "").replace("C", "").split()]
    assert min(across) >= 0
