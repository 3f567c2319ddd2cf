"""Suggestions at the end of messages."""

import pytest

from widenet.errors import did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "suggestion"),
    [
        ("itms", ["items", "users"], ' Did you mean "items"?'),
        ("x", ["items", "users", "items"], " Known: items, users."),
        ("x", [], ""),
    ],
)
def test_the_nearest_name_or_each_known_name_once(name, known, suggestion):
    assert did_you_mean(name, known) == suggestion
