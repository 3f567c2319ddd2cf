"""The options of an ingest: its keywords, the command line's, and what they are together."""

import inspect
from dataclasses import fields
from typing import get_type_hints

import typer.main

from tests.commands import whole
from widenet.arguments import declared
from widenet.cli import app
from widenet.data.ingest import ingest
from widenet.data.options import Options


def test_the_keywords_of_ingest_are_the_options_with_their_defaults():
    sources, out, *keywords = inspect.signature(ingest).parameters.values()
    assert (sources.name, out.name) == ("sources", "out")
    plain = get_type_hints(Options)
    assert {each.name: (each.default, each.annotation) for each in keywords} == {
        each.name: (each.default, plain[each.name]) for each in fields(Options)
    }
    assert all(each.kind is each.KEYWORD_ONLY for each in keywords)


def test_the_docstring_of_ingest_has_a_sentence_for_each_option():
    lines = [line.strip() for line in inspect.getdoc(ingest).splitlines()]
    said = declared(Options)
    assert [f"{name}: {argument.help}" in lines for name, (_, argument) in said.items()] == [True] * len(said)
    assert set(get_type_hints(Options)) - set(said) == {"threads", "on_progress", "on_rows"}


def test_the_command_line_has_every_option_but_those_of_a_program():
    command = whole(typer.main.get_command(app).commands["data"]).commands["ingest"]
    asked = {each.opts[0].removeprefix("--").replace("-", "_") for each in command.params}
    known = {each.name for each in fields(Options)}
    assert asked - known == {"sources", "out", "json"}
    assert known - asked == {"threads", "on_progress", "on_rows"}


def test_counting_rows_makes_values_that_a_least_value_uses_up():
    assert Options(duplicates="sum").has_values
    assert not Options(duplicates="sum", min_value=2).has_values
    assert not Options(duplicates="sum", min_value=2).roles.needs_value
    assert Options(min_value=2).roles.needs_value
    assert Options(duplicates="sum", min_value=2, keep_values=True).has_values
