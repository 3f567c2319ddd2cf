"""Sentences of the library in the words of requests: it names its arguments as Python does, in backticks."""

import re

_ARGUMENT = re.compile(r"`([a-z]\w*(?:=[^`]+)?)`")
_QUOTED = re.compile(r'("(?:[^"\\]|\\.)*"|\'`[^`]*`\')')
"""Quoted text: a client's own, which may look like an argument."""


def in_requests(sentence: str) -> str:
    """Return a sentence with fields of requests in place of arguments."""
    pieces = _QUOTED.split(sentence)
    pieces[::2] = [_ARGUMENT.sub(r"\1", piece) for piece in pieces[::2]]
    return "".join(pieces)
