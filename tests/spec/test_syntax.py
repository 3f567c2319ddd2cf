"""Mistakes in JSON text: the place, the rule and the remedy, in our words."""

import json

import pytest

from widenet.spec.document import SyntaxMistake

END = "the text ends before its brackets are closed. Complete it."
QUOTES = "names and texts must stand in double quotes. Write "
NUMBER = "numbers are written as 10, -0.5 or 1e-3. Correct this one."
ESCAPE = "a backslash must begin an escape, such as \\n. Write two for a backslash."
BRACKET = '"{}" must close the last bracket that is open. Correct the brackets.'
COMMA = 'no comma may stand before "{}". Remove it.'
ENTRIES = "a comma must stand between two entries. Add it."
COMMENT = "JSON has no comments. Remove this one."
VALUE = 'a value must stand here. Write a number, "text", true, false, null, a list or an object.'


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (" \n", (2, 1), "the text is empty. Write a JSON object."),
        ('{"a": [1', (1, 9), END),
        ('{"a": 1,', (1, 9), END),
        ('{"a":\n 1,\n\n}', (2, 3), COMMA.format("}")),
        ("[1, ]", (1, 3), COMMA.format("]")),
        ("[1, # one\n2]", (1, 5), COMMENT),
        ('{"a": 1 // one\n}', (1, 9), COMMENT),
        ("/* */ 1", (1, 1), COMMENT),
        ("{'a': 1}", (1, 2), QUOTES + "\" instead of '."),
        ('{"a": \u201cb\u201d}', (1, 7), QUOTES + '" instead of \u201c.'),
        ("{a: 1}", (1, 2), QUOTES + '"a".'),
        ("{1: 1}", (1, 2), QUOTES + '"1".'),
        ('{"a": adam}', (1, 7), QUOTES + '"adam".'),
        ('{"a": True}', (1, 7), "JSON has no True. Write true."),
        ('{"a" 1}', (1, 6), "a colon must stand between a name and its value. Add it."),
        ('{"a": 1\n "b": 2}', (2, 2), ENTRIES),
        ('{"a": [1}', (1, 9), BRACKET.format("}")),
        ('{"a": .5}', (1, 7), NUMBER),
        ('{"a": 1.}', (1, 8), NUMBER),
        ('{"a": 1_000}', (1, 8), NUMBER),
        ('{"a": 01}', (1, 8), NUMBER),
        ('{"a": "x', (1, 7), "the text that begins here has no end. Close it with a double quote."),
        (
            '{"a": "x\n"}',
            (1, 9),
            'a text must not hold line ends or tabs. Close it with ", or write \\n or \\t.',
        ),
        (r'{"a": "\d"}', (1, 8), ESCAPE),
        ("{} {}", (1, 4), "nothing may follow the first value. Remove it."),
        ('{"a": }', (1, 7), VALUE),
        ("{]}", (1, 2), "a name in double quotes must stand here. Add it, or correct the brackets."),
    ],
)
def test_a_mistake_has_its_place_rule_and_remedy(text, place, said):
    with pytest.raises(json.JSONDecodeError) as raised:
        json.loads(text)
    line, column = place
    assert SyntaxMistake.of(raised.value).after(text) == f"line {line}, column {column}: {said}"
