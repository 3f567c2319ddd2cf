"""Sections of a report: times as people say them."""

import pytest

from widenet.report.sections import duration


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.1234, "0.123 s"), (99, "99 s"), (100, "2 min"), (5400, "90 min"), (6000, "1 h 40 min"), (360000, "100 h 0 min")],
)
def test_times_are_short(seconds, said):
    assert duration(seconds) == said
