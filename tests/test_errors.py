"""Suggestions at the end of messages."""

import json

import pytest

from widenet.errors import damage_of, did_you_mean


@pytest.mark.parametrize(
    ("name", "known", "suggestion"),
    [
        ("itms", ["items", "users"], ' Did you mean "items"?'),
        ("x", ["items", "users", "items"], " Known: items, users."),
        ("x", [], ""),
        ("PERL", ["pearl", "perl"], ' Did you mean "perl"?'),
        (10**6 * "x", ["xx", "y"], " Known: xx, y."),
    ],
)
def test_the_nearest_name_or_each_known_name_once(name, known, suggestion):
    assert did_you_mean(name, known) == suggestion


def _of(read):
    with pytest.raises(Exception) as raised:  # noqa: PT011 # each reader has its own
        read()
    return damage_of(raised.value)


def test_damage_is_said_without_names_of_exceptions(tmp_path):
    assert _of(lambda: b"\xff".decode()) == "it is no UTF-8 text"
    assert _of(lambda: json.loads("{")) == "it is no JSON"
    assert _of(lambda: json.loads("[" * 100_000)) == "it is nested too deeply"
    assert _of(lambda: {}["files"]) == _of(lambda: [] + 1) == "a value is missing or of another kind"
    assert _of(tmp_path.read_bytes) == "Is a directory"
    assert damage_of(RuntimeError("the header is too large.")) == "the header is too large"
