"""Arguments of a wrong type: refused by every public function in one sentence that names function,
argument, rule and value.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import widenet
from widenet.arguments import typed
from widenet.errors import ArgumentError, OptionError, WidenetError


@typed
def work(
    place: Path | str,
    names: Sequence[str] | None = None,
    *,
    k: int = 3,
    share: float | None = None,
    exclude: bool = False,
    fields: Mapping[str, Sequence[str]] | None = None,
    anything: Any = None,
    say: Callable[[str], None] | None = None,
    kind: Literal["a", "b"] | None = None,
):
    return k, (place, names, share, exclude, fields, anything, say, kind)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"place": 5}, "place must be a path; got 5."),
        ({"names": "xy"}, "names must be a list of texts or None; got 'xy'."),
        ({"k": "3"}, "k must be a whole number; got '3'."),
        ({"k": True}, "k must be a whole number; got True."),
        ({"k": 3.0}, "k must be a whole number; got 3.0."),
        ({"share": "0.5"}, "share must be a number or None; got '0.5'."),
        ({"exclude": "no"}, "exclude must be True or False; got 'no'."),
        (
            {"fields": {"a": 3}},
            "fields must be a dictionary of lists of texts by texts or None; got {'a': 3}, a dict.",
        ),
        ({"say": 3}, "say must be a function or None; got 3."),
        ({"kind": 3}, "kind must be one of 'a', 'b' or None; got 3."),
        ({"plase": 1}, 'plase is not an argument. Did you mean "place"?'),
        ({"share": [1] * 99}, f"share must be a number or None; got {str([1] * 99)[:60]}…, a list."),
    ],
)
def test_a_wrong_argument_is_named_with_its_rule_and_value(given, message):
    with pytest.raises(ArgumentError) as raised:
        work(**{"place": "x"} | given)
    assert str(raised.value) == f"work: {message} See `help(widenet.work)`."
    assert isinstance(raised.value, OptionError)
    assert isinstance(raised.value, TypeError)


def test_an_option_of_the_command_line_is_said_as_python_has_it():
    said = (
        r"Model\.recommend: include_seen is not an argument\. Write exclude_seen=False\. See"
        r" `help\(widenet\.Model\.recommend\)`\."
    )
    with pytest.raises(ArgumentError, match=said):
        widenet.Model.recommend(None, ["The Hobbit"], include_seen=True)
    with pytest.raises(ArgumentError, match=r"include_seen is not an argument\. Known: place, names"):
        work("x", include_seen=True)


@pytest.mark.parametrize(
    ("option", "call"),
    [
        ({"heldout_users": 0.1}, "widenet.split_users(..., users=SHARE)"),
        ({"users_out": "new"}, "widenet.split_users(..., users_out=DIR)"),
    ],
)
def test_an_option_of_another_function_names_the_function(option, call):
    with pytest.raises(ArgumentError) as raised:
        widenet.split("data", "out", **option)
    said = f"split: {next(iter(option))} is not an argument. Use {call}. See `help(widenet.split)`."
    assert str(raised.value) == said


def test_a_missing_argument_is_named():
    with pytest.raises(ArgumentError, match=r"work: missing a required argument: 'place'\. See"):
        work()


def test_numbers_of_numpy_paths_and_iterables_are_taken():
    given = {
        "k": np.int64(4),
        "share": np.float32(1),
        "exclude": np.True_,
        "names": np.array(["x"]),
        "anything": object(),
    }
    assert work(Path("x"), **given)[0] == 4
    assert work("x", range(3), share=1, fields={"a": ("b",)}, say=print, kind="a")[0] == 3
    assert work("x", iter(["x"]), kind="another, which is for the function to say")[0] == 3


def test_a_typed_function_keeps_its_name_and_signature():
    assert work.__name__ == "work"
    assert list(inspect.signature(work).parameters)[:2] == ["place", "names"]


INPUT, OUTPUT = ({"name": kind, "kind": kind, "field": "items"} for kind in ("input", "output"))


def test_documents_are_made_of_keywords_as_of_files():
    assert len(widenet.Network(layers=[INPUT, {"name": "hidden", "units": 2}, OUTPUT]).layers) == 3
    with pytest.raises(WidenetError) as raised:
        widenet.Training(epochs="3")
    assert str(raised.value) == 'training.json: epochs must be a whole number, without quotes; got "3".'


@pytest.mark.parametrize("kind", [widenet.Network, widenet.Training])
def test_a_document_of_no_keywords_says_what_takes_a_file_or_plain_values(kind):
    name = kind.__name__.removesuffix("Spec")
    with pytest.raises(ArgumentError) as raised:
        kind(3)
    remedy = f"Give plain values to {name}.of, the path of a file to {name}.read. See `help(widenet.{name})`."
    assert str(raised.value) == f"{name} takes its fields by name; got 3. {remedy}"


class Odd:
    """Of no type that anything takes."""


@pytest.fixture
def model(tmp_path):
    network = {"layers": [INPUT, {"name": "hidden", "units": 2}, OUTPUT]}
    data = widenet.dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], heldout=[[2], [0]], width=3)
    return widenet.train(network, {"epochs": 1, "batch_size": 2}, data, tmp_path / "run", device="cpu")


def test_every_argument_of_every_public_function_refuses_what_it_does_not_take(tmp_path, model):
    data, run, near = tmp_path / "data", tmp_path / "run", widenet.Neighbours.of([[1.0, 2.0]])
    out, log = tmp_path / "out", tmp_path / "log.csv"
    log.write_text("user,item\na,x\n")
    calls = [
        (widenet.ingest, {"sources": [log], "out": out}),
        (widenet.split, {"source": data, "out": out, "validation": 0.5}),
        (widenet.split_users, {"source": data, "out": out, "users_out": tmp_path / "others", "users": 0.5}),
        (widenet.describe, {"folder": data}),
        (widenet.dataset_from_lists, {"path": out, "items": [[0]]}),
        (
            widenet.train,
            {"network": run / "network.json", "training": run / "training.json", "data": data, "out": out},
        ),
        (widenet.write_report, {"runs": run}),
        (widenet.Dataset.open, {"path": data}),
        (widenet.SparseBatch.from_lists, {"rows": [[1]]}),
        (widenet.Network.read, {"path": "network.json"}),
        (widenet.Training, {}),
        (widenet.Network, {"layers": (INPUT, OUTPUT)}),
        (widenet.Model.load, {"run": run}),
        (model.evaluate, {"data": data}),
        (model.recommend, {"items": ["1"]}),
        (model.similar, {"items": "1"}),
        (model.explain, {"item": "1", "items": ["2"]}),
        (model.recommend, {"users": "0", "data": data}),
        (model.history_of, {"user": "0", "data": data}),
        (model.predict, {"data": data}),
        (widenet.Neighbours.of, {"vectors": [[1.0]]}),
        (widenet.Neighbours.of_model, {"model": model}),
        (near.search, {"queries": [[1.0, 2.0]]}),
        (widenet.BatchedNeighbours, {"neighbours": near}),
    ]
    for function, given in calls:
        for name in [*inspect.signature(function).parameters, "no_argument_at_all"]:
            with pytest.raises(WidenetError) as raised:
                function(**given | {name: Odd()})
            assert name in str(raised.value) or name in (
                "network",
                "training",
                "sources",
                "heldout",
                "queries",
            ), raised.value
    assert not out.exists()
