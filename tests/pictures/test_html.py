"""HTML from values: text is escaped wherever it stands, numbers are short and to the right."""

import pytest

from tests.pages import Page
from widenet.pictures.html import Html, brief, joined, table, tag

EVIL = "<script>alert('1')</script> \" onload=\"x & y"


def test_text_is_escaped_and_html_is_not():
    html = tag("p", EVIL, tag("b", "5 < 6"), title=EVIL)
    page = Page(html)
    assert page.elements == [("p", {"title": EVIL}), ("b", {})]
    assert page.texts == {"p": [EVIL], "b": ["5 < 6"]}


def test_every_kind_of_cell_is_escaped():
    page = Page(table([EVIL, "n"], [[EVIL, "1"]]))
    assert "script" not in page.names
    assert page.texts["td"] == [EVIL, "1"]


def test_attributes_have_their_names_in_html():
    assert tag("line", x1=1.5, class_="a", stroke_width=2.0, hidden=True, id=None, open=False) == (
        '<line x1="1.5" class="a" stroke-width="2" hidden></line>'
    )
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert joined(["<", Html("<br>"), 3]) == "&lt;<br>3"


def test_columns_of_numbers_stand_to_the_right():
    page = Page(table(["name", "n", "mixed"], [["a", "1,000", "-"], ["b", "25 %", "2"]]))
    cells = [attributes["style"].split(";")[0] for name, attributes in page.elements if name == "td"]
    assert cells == ["text-align:left", "text-align:right", "text-align:left"] * 2
    page = Page(table(["name", "n"], [["a", "-"]], numbers=True))
    assert [attributes["style"].split(";")[0] for name, attributes in page.elements if name == "td"] == [
        "text-align:left",
        "text-align:right",
    ]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (12345, "12,345"),
        (2000.0, "2,000"),
        (1234.56, "1,234.6"),
        (0.123456, "0.1235"),
        (1e-7, "1e-07"),
        ("x", "x"),
        (True, "True"),
        (2.0, "2"),
    ],
)
def test_numbers_are_short(value, said):
    assert brief(value) == said
