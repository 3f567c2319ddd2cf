"""What is said of a dataset whose held-out entries a model may have been trained on."""

import re
import shutil

import pytest

from widenet import dataset_from_lists, train

ROWS = [[e % 5, 5 + e % 4] for e in range(12)]
HELDOUT = [[9] for _ in ROWS]
LAYERS = [{"name": "history", "kind": "input", "field": "items"}, {"name": "taste", "units": 2}]
TRAINING = {"batch_size": 4, "shards": 1, "epochs": 1}


def network(**output):
    return {"layers": [*LAYERS, {"name": "next", "kind": "output", **output}]}


def test_a_run_whose_start_is_gone_says_that_nobody_can_tell_what_that_saw(tmp_path):
    data = dataset_from_lists(tmp_path / "data", ROWS, heldout=HELDOUT)
    other = dataset_from_lists(tmp_path / "other", [[*row, 9] for row in ROWS])
    for name, where, start in (("first", other, None), ("second", data, "first"), ("third", data, "second")):
        model = train(
            network(field="items"), TRAINING, where, tmp_path / name, start_from=start and tmp_path / start
        )
    began = f"{tmp_path}/first, with whose weights {tmp_path}/third began,"
    seen = (
        f"{data.path} does not hold the examples that {began} was trained on: of the 12 entries of its"
        " heldout part, 12 were trained on."
    )
    assert model.caveats(data) == [seen]
    with pytest.warns(UserWarning, match=re.escape(seen)) as warned:
        model.evaluate(data)
    assert [each.filename for each in warned] == [__file__]
    shutil.rmtree(tmp_path / "first")
    assert model.caveats(data) == [
        f"{began} is not at hand: what {data.path} holds out may have been trained on."
    ]


@pytest.mark.parametrize("part", ["validation", "heldout"])
def test_nothing_is_held_out_of_a_dense_field(tmp_path, part):
    names = ("data", "other")
    data, other = (
        dataset_from_lists(tmp_path / name, ROWS, dense={"taste": [[float(len(name))]] * 12})
        for name in names
    )
    model = train(network(field="taste", activation="linear", loss="l2"), TRAINING, data, tmp_path / "run")
    assert model.caveats(other, part) == []
