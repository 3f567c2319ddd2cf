"""What a caller in Python gives by mistake is one sentence, never an error of numpy, torch or Python."""

import numpy as np
import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import DataError, OptionError
from widenet.runs import train

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
    "a text": (lambda m: m.recommend("12"), OptionError, "items"),
    "a text to understand": (lambda m: m.understood("12"), OptionError, "items"),
    "nothing": (lambda m: m.recommend([]), OptionError, "items"),
    "a number": (lambda m: m.recommend(3), OptionError, "items"),
    "numbers": (lambda m: m.recommend(["1", 2.5]), OptionError, "items"),
    "a number that is missing": (lambda m: m.recommend(["1", float("nan")]), OptionError, "items"),
    "an array without axes": (lambda m: m.recommend(np.array("1")), OptionError, "items"),
    "bytes": (lambda m: m.recommend(b"12"), OptionError, "items"),
    "a field without axes": (lambda m: m.recommend(fields={"items": np.array("1")}), OptionError, "items"),
    "a value that is true": (lambda m: m.explain("1", ["0"], values=[True]), OptionError, "values"),
    "values in no order": (lambda m: m.recommend(["0", "1"], values={1.0, 2.0}), OptionError, "values"),
    "values of a set": (lambda m: m.recommend({"0", "1"}, values=[1.0, 2.0]), OptionError, "items"),
    "values of sets": (lambda m: m.recommend([{"0", "1"}], values=[[1.0, 2.0]]), OptionError, "items"),
    "values of a field that is a set": (
        lambda m: m.recommend(fields={"items": {"0", "1"}}, values=[1.0, 2.0]),
        OptionError,
        "items",
    ),
    "reasons with values of a set": (
        lambda m: m.explain("1", {"0", "1"}, values=[1.0, 2.0]),
        OptionError,
        "items",
    ),
    "an undefined value": (lambda m: m.recommend(["1"], values=[np.nan]), DataError, "values"),
    "a huge value": (lambda m: m.recommend(["1"], values=[1e39]), DataError, "values"),
    "a value in quotes": (lambda m: m.recommend(["1"], values=["2"]), OptionError, "values"),
    "few values": (lambda m: m.recommend(["1", "2"], values=[1.0]), OptionError, "values"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_its_argument(name, model):
    call, error, option = MISTAKES[name]
    with mistake(error, option=option):
        call(model)
