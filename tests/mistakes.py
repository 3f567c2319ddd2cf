"""Mistakes of callers in Python, which are one sentence each."""

import pytest


def check_sentence(model, call, error, message):
    """Check that a call with a model raises an error whose message is one line that matches."""
    with pytest.raises(error, match=message) as caught:
        call(model)
    assert "\n" not in str(caught.value)
