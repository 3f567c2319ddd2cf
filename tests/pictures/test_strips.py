"""Strips: cells stand at their places and are as strong as their shares, and columns say what they are."""

import re

from tests.pages import Page
from widenet.pictures.strips import strips

CELL = re.compile(r"M([\d.]+) ([\d.]+)h([\d.]+)v([\d.]+)h-([\d.]+)z")


def cells(page):
    """x, y, width and opacity of every run of cells."""
    return [
        (*(float(number) for number in cell.group(1, 2, 3)), float(found["fill-opacity"]))
        for name, found in page.elements
        if name == "path"
        for cell in CELL.finditer(found["d"])
    ]


def test_a_cell_is_as_strong_as_the_root_of_its_share_and_neighbours_of_a_row_are_one():
    shares = [[0.25, 0.0, 1.0], [0.25, 0.0, 0.01], [0.25, 1.0, 0.0]]
    page = Page(strips("<taste>", [1, 2, 7], shares, {0: "top", 2.5: "<low>"}, ["<a>", "b", "c"]))
    left, middle, right = (52 + place * 296 / 3 for place in range(3))
    close = [tuple(round(number, 1) for number in cell[:3]) + cell[3:] for cell in cells(page)]
    third = round(296 / 3, 1)
    assert sorted(close) == sorted(
        [
            (left, 8, 296.0, 0.5),
            (round(right, 1), 15, third, 1.0),
            (left, 22, third, 1.0),
            (round(middle, 1), 22, third, 0.12),
        ]
    )
    assert page.texts["title"] == ["<a>", "b", "c"]
    assert page.texts["text"] == ["top", "<low>", "1", "2", "7", "epoch"]
    assert page.texts["b"] == ["<taste>"]
    assert [found["aria-label"] for name, found in page.elements if name == "svg"] == ["<taste>"]


def test_of_many_columns_some_are_labelled_and_the_last_one_always_is():
    columns = list(range(1, 25))
    page = Page(strips("taste", columns, [[1.0]] * 24, {}, [""] * 24))
    assert page.texts["text"] == ["4", "8", "12", "16", "20", "24", "epoch"]
    assert len(cells(page)) == 1


def test_nothing_is_no_picture():
    assert Page(strips("taste", [], [], {}, [])).count("svg") == 0
    assert cells(Page(strips("taste", [1], [[0.0]], {}, [""]))) == []
