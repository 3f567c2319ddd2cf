"""The options of an ingest: its keywords, the command line's, and what they are together."""

import inspect
from dataclasses import fields

from widenet.data.ingest import ingest
from widenet.data.options import Options


def test_the_keywords_of_ingest_are_the_options_with_their_defaults():
    sources, out, *keywords = inspect.signature(ingest).parameters.values()
    assert (sources.name, out.name) == ("sources", "out")
    assert {each.name: each.default for each in keywords} == {
        each.name: each.default for each in fields(Options)
    }
    assert all(each.kind is each.KEYWORD_ONLY for each in keywords)


def test_counting_rows_makes_values_that_a_least_value_uses_up():
    assert Options(duplicates="sum").has_values
    assert not Options(duplicates="sum", min_value=2).has_values
    assert not Options(duplicates="sum", min_value=2).roles.needs_value
    assert Options(min_value=2).roles.needs_value
    assert Options(duplicates="sum", min_value=2, keep_values=True).has_values
