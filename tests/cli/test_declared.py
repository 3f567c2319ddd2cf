"""Commands and functions whose arguments a dataclass declares once."""

import inspect

import pytest

import widenet
from tests.commands import resolved
from widenet.arguments import declared
from widenet.data.ingest_arguments import IngestArguments
from widenet.data.split import SplitArguments
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
