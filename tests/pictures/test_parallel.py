"""Parallel coordinates: lines cross the axes where their values are, and a marked one lies on top."""

from tests.pages import Page
from widenet.pictures.parallel import Line, parallel

AXES = {"units": {0.0: "2", 1.0: "4"}, "a name that is far too long to stand there": {}, "metric": {}}


def test_lines_cross_the_axes_at_their_places():
    lines = [Line("best <1>", [0.0, 0.5, 1.0], 1.0, is_marked=True), Line("other", [1.0, None, 0.0], 0.0)]
    page = Page(parallel("choices", AXES, lines))
    drawn = [attributes for name, attributes in page.elements if name == "polyline"]
    (far, last), (near, middle, end) = (
        [tuple(map(float, corner.split(","))) for corner in line["points"].split()] for line in drawn
    )
    assert [x for x, _ in (near, middle, end)] == [70, 220, 370]
    assert (far[0], last[0]) == (70, 370)
    assert far[1] == end[1] < middle[1] == (near[1] + far[1]) / 2 < near[1] == last[1]
    assert float(drawn[0]["stroke-opacity"]) < float(drawn[1]["stroke-opacity"])
    assert page.texts["title"][:2] == ["other", "best <1>"]


def test_a_long_name_is_cut_at_its_beginning_and_shown_whole_when_pointed_at():
    page = Page(parallel("choices", AXES, []))
    assert "a name that is far too long to stand there" in page.texts["title"]
    assert not [text for text in page.texts["text"] if len(text) > 22]
