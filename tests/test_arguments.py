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
from tests.mistakes import mistake
from widenet.arguments import Location, typed
from widenet.errors import ArgumentError, DocumentError, OptionError, WidenetError


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
    "given",
    [
        {"place": 5},
        {"names": "xy"},
        {"k": True},
        {"k": 3.0},
        {"exclude": "no"},
        {"fields": {"a": 3}},
        {"kind": "c"},
        {"plase": 1},
        {"share": [1] * 99},
    ],
)
def test_a_wrong_argument_is_named(given):
    with mistake(ArgumentError, "work", next(iter(given))) as caught:
        work(**{"place": "x"} | given)
    assert isinstance(caught.value, OptionError)
    assert isinstance(caught.value, TypeError)
    with mistake(ArgumentError, "work", "place"):
        work()


@typed
def moves(source: Path | str, out: Location, several: Sequence[str | Path] = ()):
    return source, out, several


def test_a_path_must_be_local_unless_its_type_says_more():
    for uri in ["s3://b/secret", Path("gs://b/secret"), "https://secret/x"]:
        for given in ({"source": uri}, {"several": ["a", uri]}):
            with mistake(OptionError, option=next(iter(given))) as caught:
                moves(**{"source": "a", "out": "b"} | given)
            assert "secret" not in str(caught.value)
    moves("runs/s3/x", "s3://b/x")


def test_numbers_of_numpy_paths_and_iterables_are_taken():
    given = {"k": np.int64(4), "share": np.float32(1), "exclude": np.True_, "names": np.array(["x"])}
    assert work(Path("x"), **given)[0] == 4
    assert work("x", range(3), share=1, fields={"a": ("b",)}, say=print, kind="a")[0] == 3
    assert work("x", iter(["x"]))[0] == 3


INPUT, OUTPUT = ({"name": kind, "kind": kind, "field": "items"} for kind in ("input", "output"))


def test_documents_are_made_of_keywords_as_of_files():
    assert len(widenet.Network(layers=[INPUT, {"name": "hidden", "units": 2}, OUTPUT]).layers) == 3
    with mistake(DocumentError, "training.json"):
        widenet.Training(epochs="3")
    for kind in (widenet.Network, widenet.Training):
        with pytest.raises(ArgumentError):
            kind(3)


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
    documents = {"network": run / "network.json", "training": run / "training.json"}
    calls = [
        (widenet.ingest, {"sources": [log], "out": out}),
        (widenet.split, {"source": data, "out": out, "validation": 0.5}),
        (widenet.describe, {"folder": data}),
        (widenet.dataset_from_lists, {"path": out, "items": [[0]]}),
        (widenet.train, {**documents, "data": data, "out": out}),
        (widenet.write_report, {"runs": run}),
        (widenet.Dataset.open, {"path": data}),
        (widenet.SparseBatch.from_lists, {"rows": [[1]]}),
        (widenet.Network.read, {"path": "network.json"}),
        (widenet.Training, {}),
        (widenet.Network, {"layers": (INPUT, OUTPUT)}),
        (widenet.Model.load, {"run": run}),
        (model.evaluate, {"data": data}),
        (model.recommend, {"users": "0", "data": data}),
        (model.similar, {"items": "1"}),
        (model.explain, {"item": "1", "items": ["2"]}),
        (model.predict, {"data": data}),
        (widenet.Neighbours.of, {"vectors": [[1.0]]}),
        (widenet.Neighbours.of_model, {"model": model}),
        (near.search, {"queries": [[1.0, 2.0]]}),
        (widenet.BatchedNeighbours, {"neighbours": near}),
    ]
    documented = {"network", "training", "sources", "heldout", "queries"}
    for function, given in calls:
        for name in [*inspect.signature(function).parameters, "no_argument_at_all"]:
            with pytest.raises(WidenetError) as raised:
                function(**given | {name: Odd()})
            assert name in str(raised.value) or name in documented, raised.value
    assert not out.exists()
