"""Commands and functions whose arguments a dataclass declares once."""

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import widenet
from tests.commands import resolved
from tests.mistakes import mistake
from widenet.arguments import Argument, check_bounds, declared, with_fields_of
from widenet.cli.declared import values_of, with_flags_of
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.split import SplitArguments
from widenet.errors import OptionError
from widenet.runs.run_arguments import (
    CompareArguments,
    EvaluateArguments,
    LoadArguments,
    PredictArguments,
    RecommendArguments,
    TrainArguments,
)
from widenet.tuning.tune_arguments import TuneArguments

FACES = [
    pytest.param(["data", "ingest"], widenet.ingest, IngestArguments, id="ingest"),
    pytest.param(["data", "split"], widenet.split, SplitArguments, id="split"),
    pytest.param(["train"], widenet.train, TrainArguments, id="train"),
    pytest.param(["tune"], widenet.tune, TuneArguments, id="tune"),
    pytest.param(["evaluate"], widenet.Model.load, LoadArguments, id="load"),
    pytest.param(["evaluate"], widenet.Model.evaluate, EvaluateArguments, id="evaluate"),
    pytest.param(["compare"], widenet.compare, CompareArguments, id="compare"),
    pytest.param(["predict"], widenet.Model.predict, PredictArguments, id="predict"),
    pytest.param(["recommend"], widenet.Model.recommend, RecommendArguments, id="recommend"),
]


@pytest.mark.parametrize(("words", "function", "owner"), FACES)
def test_command_function_and_docstring_have_every_declared_argument(words, function, owner):
    flags = {parameter.name: parameter for parameter in resolved(words)[0].params}
    keywords = inspect.signature(function).parameters
    lines = [line.strip() for line in inspect.getdoc(function).splitlines()]
    for name, (_, argument) in declared(owner).items():
        assert f"{name}: {argument.help}" in lines
        if argument.flag == "":
            assert name not in flags or name in ("sources", "out")
            continue
        start, *_ = argument.help.removesuffix(".").split("`")
        assert flags[name].help.startswith(start)
        assert flags[name].default in (keywords[name].default, None)


@dataclass
class Lent:
    book: Annotated["Any", Argument("The book.", form="BOOK")]
    days: Annotated[int, Argument("How long. See `renew`.", at_least=1, at_most=30)] = 14
    renew: Annotated[bool | None, Argument("Again.")] = None
    notes: Annotated[dict[str, str] | None, Argument("Remarks.")] = None

    def __post_init__(self):
        check_bounds(self)


def test_a_command_is_called_with_the_declared_arguments():
    calls = []
    app = typer.Typer()

    @app.command()
    @with_flags_of(Lent)
    def lend(who: str, loud: bool = False, **words):
        calls.append((who, loud, values_of(Lent, words)))

    ran = CliRunner().invoke(app, ["ann", "dune", "--days", "3", "--no-renew", "--loud"])
    assert ran.exit_code == 0, ran.output
    [(who, loud, values)] = calls
    assert (who, loud, str(values.pop("book"))) == ("ann", True, "dune")
    assert values == {"days": 3, "renew": False, "notes": None}
    helps = {flag.name: flag.help for flag in typer.main.get_command(app).params}
    assert helps["days"] == "How long. See `--renew`."


def test_a_number_outside_its_bounds_is_refused():
    @with_fields_of(Lent)
    def lend(arguments: Lent) -> int:
        return arguments.days

    assert lend("dune", days=30) == 30
    for days in (0, 1_000):
        with mistake(OptionError, option="days"):
            lend("dune", days=days)
