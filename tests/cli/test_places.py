"""Every path of every command either may be a URI, or is refused in one sentence and makes no folder."""

import pytest
import typer.main

from widenet.cli.app import app, main
from widenet.cli.places import _IN_STORES


def leaves(command, words):
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
    for name, each in (below or {}).items():
        yield from leaves(getattr(each, "whole", each), [*words, name])


COMMANDS = {" ".join(words): command for words, command in leaves(typer.main.get_command(app), [])}
LOCAL = [
    (name, parameter.name)
    for name, command in COMMANDS.items()
    for parameter in command.params
    if "Path" in str(vars(parameter)) and parameter.name not in _IN_STORES.get(name, ())
]


def run(words, capsys):
    with pytest.raises(SystemExit) as end:
        main(words)
    return end.value.code, capsys.readouterr().err


def test_the_table_names_parameters_that_exist():
    for name, parameters in _IN_STORES.items():
        assert parameters <= {parameter.name for parameter in COMMANDS[name].params}, name


def test_outputs_are_among_the_paths_that_must_be_local():
    outputs = [("data split", "users_out"), ("import", "out"), ("report", "out"), ("export", "out")]
    assert {*outputs, ("knn search", "out"), ("data fetch", "out")} <= set(LOCAL)


@pytest.mark.parametrize(("name", "refused"), LOCAL)
def test_a_path_that_must_be_local_refuses_a_uri(name, refused, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = name.split()
    for parameter in COMMANDS[name].params:
        value = "s3://bucket/some-secret" if parameter.name == refused else "1"
        if parameter.required or parameter.name == refused:
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    code, message = run(words, capsys)
    assert code == 2
    assert "must be a local path; got a URI" in message
    assert "some-secret" not in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", ["train --data s3://k:SECRET@b/x --out o", "data ingest s3://b/x?a=SECRET --out o"]
)
def test_a_uri_with_credentials_is_refused_and_not_repeated(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code, message = run(words.split(), capsys)
    assert (code, "a URI must be s3://BUCKET/KEY" in message, "SECRET" in message) == (2, True, False)
    assert list(tmp_path.iterdir()) == []
