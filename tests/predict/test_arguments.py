"""What a caller in Python gives by mistake is one sentence, never an error of numpy, torch or Python."""

import numpy as np
import pytest

from tests.mistakes import check_sentence
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, OptionError
from widenet.runs import Model, train

NETWORK = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "mid", "units": 3},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arguments")
    rows, values = [[0, 1], [1, 2]], [[1.0, 1.0], [1.0, 2.0]]
    data = dataset_from_lists(folder / "data", rows, values=values, heldout=[[2], [0]], width=5)
    return train(NETWORK, {"epochs": 1, "shards": 2}, data, folder / "run")


MISTAKES = {
    "a text": (
        lambda m: m.recommend("12"),
        OptionError,
        "items must be a list of ids or titles; got the text '12'",
    ),
    "a text to understand": (
        lambda m: m.understood("12"),
        OptionError,
        "items must be a list of ids or titles; got the text '12'",
    ),
    "nothing": (lambda m: m.recommend([]), OptionError, "items must name at least one item"),
    "a number": (
        lambda m: m.recommend(3),
        OptionError,
        r"items must be a list of ids or titles; got 3\. Write \[3\]",
    ),
    "numbers": (
        lambda m: m.recommend(["1", 2.5]),
        OptionError,
        r"each a text or a whole number; got 2\.5\. Write '2\.5'",
    ),
    "a number that is missing": (
        lambda m: m.recommend(["1", float("nan")]),
        OptionError,
        r"each a text or a whole number; got nan\. Leave out what is missing\.",
    ),
    "an array without axes": (
        lambda m: m.recommend(np.array("1")),
        OptionError,
        r"items must be a list of ids or titles; got array\('1'",
    ),
    "bytes": (lambda m: m.recommend(b"12"), OptionError, "items must be a list of ids or titles; got b'12'"),
    "a field without axes": (
        lambda m: m.recommend(fields={"items": np.array("1")}),
        OptionError,
        r"each a text or a whole number; got array\('1'",
    ),
    "a value that is true": (
        lambda m: m.explain("1", ["0"], values=[True]),
        OptionError,
        "values must be numbers; got True",
    ),
    "values in no order": (
        lambda m: m.recommend(["0", "1"], values={1.0, 2.0}),
        OptionError,
        "values must be in order, because each belongs to an item; got a set. Write a list.",
    ),
    "values of a set": (
        lambda m: m.recommend({"0", "1"}, values=[1.0, 2.0]),
        OptionError,
        "items must be in order, because each has a value; got a set. Write a list.",
    ),
    "values of sets": (
        lambda m: m.recommend([{"0", "1"}], values=[[1.0, 2.0]]),
        OptionError,
        "items must be in order, because each has a value",
    ),
    "values of a field that is a set": (
        lambda m: m.recommend(fields={"items": {"0", "1"}}, values=[1.0, 2.0]),
        OptionError,
        "items must be in order, because each has a value",
    ),
    "reasons with values of a set": (
        lambda m: m.explain("1", {"0", "1"}, values=[1.0, 2.0]),
        OptionError,
        "items must be in order, because each has a value",
    ),
    "an undefined value": (
        lambda m: m.recommend(["1"], values=[np.nan]),
        DataError,
        "values must be finite numbers that a float32",
    ),
    "a huge value": (
        lambda m: m.recommend(["1"], values=[1e39]),
        DataError,
        "values must be finite numbers that a float32",
    ),
    "a value in quotes": (
        lambda m: m.recommend(["1"], values=["2"]),
        OptionError,
        "values must be numbers; got '2'",
    ),
    "few values": (
        lambda m: m.recommend(["1", "2"], values=[1.0]),
        OptionError,
        "one number for each of 2 items; got 1",
    ),
    "a lonely value": (
        lambda m: m.recommend(["1", "2"], values=1.0),
        OptionError,
        "values must be a list of numbers, a list of lists of numbers or None; got 1.0",
    ),
    "k in quotes": (lambda m: m.recommend(["1"], k="3"), OptionError, "k must be a whole number; got '3'"),
    "half a k": (lambda m: m.recommend(["1"], k=2.5), OptionError, r"k must be a whole number; got 2\.5"),
    "no k": (
        lambda m: m.predict(m.run.path.parent / "data", k=None),
        OptionError,
        "k must be a whole number; got None",
    ),
    "no data": (lambda m: m.predict(5), OptionError, "data must be a Dataset or a path; got 5"),
    "no data to evaluate": (
        lambda m: m.evaluate(None),
        OptionError,
        "data must be a Dataset or a path; got None",
    ),
    "no filter": (
        lambda m: m.predict(m.run.path.parent / "data", never=5),
        OptionError,
        "never must be a path, a list of texts or whole numbers or None; got 5",
    ),
    "no run": (lambda _: Model.load(5), OptionError, "run must be a path; got 5"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(mistake, model):
    check_sentence(model, *MISTAKES[mistake])


def test_numbers_and_names_of_numpy_and_any_sequence_are_welcome(model):
    expected = model.recommend(["0", "1"], k=2)
    assert model.recommend(np.array(["0", "1"]), k=np.int64(2)) == expected
    assert model.recommend(np.array([0.0, 1.0]), k=2) == expected
    assert model.recommend(("0", "1"), k=2, values=np.ones(2)) == expected
    assert model.evaluate(model.run.path.parent / "data", ks=np.array([1, 2])) == model.evaluate(
        model.run.path.parent / "data", ks=(1, 2)
    )
