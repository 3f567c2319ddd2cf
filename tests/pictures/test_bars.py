"""Bars: a longer one for a larger share, which it says."""

from tests.pages import Page
from widenet.pictures.bars import bars


def test_bars_are_as_long_as_their_shares_and_say_them():
    page = Page(bars("shares", ["few", "many <b>"], {"here": [0.1, 0.4], "there": [0.2, 0.0]}))
    assert page.texts["title"] == [
        "few: here 10.00%",
        "few: there 20.00%",
        "many <b>: here 40.00%",
        "many <b>: there 0.00%",
    ]
    widths = [float(attributes["width"]) for name, attributes in page.elements if name == "rect"]
    assert widths[2] / widths[0] == 4
    assert widths[1] / widths[0] == 2
    assert widths[3] == 1
