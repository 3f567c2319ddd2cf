"""What a client reads that has sent something else than a request."""

import msgspec
import pytest

from widenet.serve.malformed import sentence_of, unknown_parameter
from widenet.serve.messages import RecommendMany, Similar
from widenet.serve.wording import in_requests

OF_K = "k must be a whole number; got"
NO_JSON = "the body is no valid JSON"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b'{"items": [5]}', "items[0] must be a text; got a whole number."),
        (b'{"itms": ["5"]}', "the body has the unknown field 'itms'. Did you mean \"items\"?"),
        (b'{"requests": [{"usr": "1"}]}', "requests[0] has the unknown field 'usr'. Did you mean \"user\"?"),
        (
            b'{"where": {"year": null}}',
            "a value of where must be true or false, a number, a text or a list; got null.",
        ),
        (
            b'{"where": {"a": [{}]}}',
            "where[...][0] must be true or false, a number or a text; got an object.",
        ),
        (b'{"k": 1.5}', f"{OF_K} a fraction."),
        (b'{"k": "5"}', f"{OF_K} a text."),
        (b'{"include_seen": 1}', "include_seen must be true or false; got a whole number."),
        (b'{"unknown": "x"}', 'unknown must be "refuse" or "skip"; got \'x\'.'),
        (
            b'{"requests": [{}, {"unknown": "skp"}]}',
            'requests[1].unknown must be "refuse" or "skip"; got \'skp\'. Did you mean "skip"?',
        ),
        (b'{"part": "\\n"}', 'part must be "validation" or "heldout"; got ' r"'\n'."),
        (b'{"part": "it\'s"}', 'part must be "validation" or "heldout"; got "it\'s".'),
        (
            b'{"part": "\\"a\' - at `$.zzz"}',
            """part must be "validation" or "heldout"; got '"a\\' - at `$.zzz'.""",
        ),
        (b"[]", "the body must be an object; got a list."),
        (b'{"items": [', f"{NO_JSON}: its end is missing."),
        (b"[1", f"{NO_JSON}: its end is missing."),
        (b"[1, }", f"{NO_JSON}: invalid character (byte 4)."),
        (b"{} 1", f"{NO_JSON}: trailing characters (byte 4)."),
        (b'{"a\\nb": 1}', "the body has the unknown field 'a\\nb'."),
        (b'{"' + 10**6 * b"x" + b'": 1}', f"the body has the unknown field '{100 * 'x'}'."),
        (b'{"items": ["\xff"]}', f"{NO_JSON}."),
    ],
)
def test_a_sentence_names_the_place_the_rule_and_what_was_sent(body, sentence):
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as refused:
        msgspec.json.decode(body, type=RecommendMany)
    told = sentence_of(refused.value, RecommendMany, body)
    assert told == f"{sentence} GET /openapi.json describes requests."
    assert told.isprintable()


def test_a_missing_field_is_named():
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(b"{}", type=Similar)
    assert sentence_of(refused.value, Similar, b"{}").startswith("the body must have the field 'item'.")


def test_the_texts_that_a_measure_takes_are_named():
    body = b'{"item": "1", "measure": "cos"}'
    with pytest.raises(msgspec.ValidationError) as refused:
        msgspec.json.decode(body, type=Similar)
    told = sentence_of(refused.value, Similar, body)
    assert told.startswith('measure must be "cosine", "dot" or "l2"; got \'cos\'.')


def test_an_unknown_parameter_is_named_with_the_nearest():
    told = unknown_parameter("serch", ["search", "attributes"])
    assert told.startswith("the route has no parameter 'serch'. Did you mean \"search\"? GET /openapi.json")
    assert len(unknown_parameter("x" * 10**6, ["search"])) < 200


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        ("`only` must name an item. Write ids.", "only must name an item. Write ids."),
        (
            "`at_most` needs attributes. Ingest with `items=FILE`.",
            "at_most needs attributes. Ingest with items=FILE.",
        ),
        ('`where` must be one of these; got "`only`".', 'where must be one of these; got "`only`".'),
    ],
)
def test_sentences_of_the_library_name_fields_of_requests(sentence, told):
    assert in_requests(sentence) == told
