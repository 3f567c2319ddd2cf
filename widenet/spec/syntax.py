"""Mistakes in JSON text: what breaks which rule, and what to do about it."""

import json
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

_IN_QUOTES = "names and texts must stand in double quotes"
_NUMBERS = "numbers are written as 10, -0.5 or 1e-3"
_TABLE = (
    ("Unterminated string", "", "the text that begins here has no end", "Close it with a double quote."),
    (
        "Invalid control",
        "",
        "a text must not hold line ends or tabs",
        'Close it with ", or write \\n or \\t.',
    ),
    ("Invalid \\", "", "a backslash must begin an escape, such as \\n", "Write two for a backslash."),
    ("", r"\s*\Z", "the text ends before its brackets are closed", "Complete it."),
    ("", r"//|/\*|#", "JSON has no comments", "Remove this one."),
    ("Extra data", "", "nothing may follow the first value", "Remove it."),
    ("", "['`\u2018\u2019\u201c\u201d]", _IN_QUOTES, 'Write " instead of {}.'),
    ("Expecting ':'", "", "a colon must stand between a name and its value", "Add it."),
    ("Expecting ','", r"(?<=\d)[\w.]", _NUMBERS, "Correct this one."),
    ("Expecting ','", r"[}\]]", '"{}" must close the last bracket that is open', "Correct the brackets."),
    ("Expecting ','", "", "a comma must stand between two entries", "Add it."),
    ("Expecting property", r"\w{1,30}", _IN_QUOTES, 'Write "{}".'),
    ("Expecting property", "", "a name in double quotes must stand here", "Add it, or correct the brackets."),
    ("", "[-+.]", _NUMBERS, "Correct this one."),
    ("", "True", "JSON has no {}", "Write true."),
    ("", "False", "JSON has no {}", "Write false."),
    ("", "None", "JSON has no {}", "Write null."),
    ("", r"[^\W\d]\w{0,30}", _IN_QUOTES, 'Write "{}".'),
    ("", "", "a value must stand here", 'Write a number, "text", true, false, null, a list or an object.'),
)
"""How a message of Python's reader begins, what stands at its place, and the rule and the remedy, in which {}
is what stands there. The first that fits counts.
"""


class RepeatedKeyError(ValueError):
    """An object of JSON has a key twice."""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object from its keys and values, for `json.loads`; raises RepeatedKeyError."""
    values = dict(pairs)
    if len(values) < len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name in counts if counts[name] > 1)
        raise RepeatedKeyError(f'the key "{twice}" stands twice in one object')
    return values


@dataclass(frozen=True)
class SyntaxMistake:
    """The first place where a text is not JSON.

    Attributes:
        position: Number of characters before the place.
        rule: The rule that it breaks, as a clause.
        remedy: What to do, as a sentence.
    """

    position: int
    rule: str
    remedy: str

    @classmethod
    def of(cls, error: json.JSONDecodeError) -> "SyntaxMistake":
        """Return the mistake that Python's reader has found."""
        text, position = error.doc, error.pos
        if not text.strip():
            return cls(position, "the text is empty", "Write a JSON object.")
        # Later versions of Python name the comma, earlier ones the bracket.
        before = text[:position].rstrip()
        last = len(before) - before.endswith(",")
        if comma := re.compile(r",\s*([}\]])").match(text, last):
            return cls(last, f'no comma may stand before "{comma[1]}"', "Remove it.")
        for begins, pattern, rule, remedy in _TABLE:
            there = re.compile(pattern).match(text, position)
            if error.msg.startswith(begins) and there:
                return cls(position, rule.replace("{}", there[0]), remedy.replace("{}", there[0]))
        raise AssertionError("the last row fits every mistake")

    def after(self, text: str) -> str:
        """Return the mistake as sentences that begin with its line and column in a text."""
        before = text[: self.position]
        line, column = before.count("\n") + 1, self.position - before.rfind("\n")
        return f"line {line}, column {column}: {self.rule}. {self.remedy}"
