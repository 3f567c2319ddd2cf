"""Neighbours at a start from another run: known units keep theirs by the ids of features, new ones count."""

import pytest

from tests.starts import CATALOGUES, OLD, grown
from tests.trainings import books, tied_near
from widenet.predict.terms import table_of
from widenet.runs import Model, train

TRAINING = {"epochs": 1, "batch_size": 16, "shards": 3}
TERM = {"neighbours": 4, "popularity": 0.4}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    return train(tied_near(**TERM), TRAINING, books(folder / "data"), folder / "run", device="cpu")


def nearest(model, ids):
    """The neighbours of each unit with their similarities, by ids."""
    [output] = model.network.outputs.values()
    names = [*ids, *(f"nameless {unit}" for unit in range(len(ids), output.width + 1))]
    return {
        names[unit]: {names[one]: near for one, near in zip(*row, strict=True) if one < output.width}
        for unit, row in enumerate(
            zip(
                *(each.tolist() for each in table_of(output)),
                strict=True,
            )
        )
    }


@pytest.mark.parametrize("catalogue", CATALOGUES)
@pytest.mark.parametrize("shards", [3, 2])
def test_known_units_keep_their_neighbours_and_new_ones_count_them(shards, catalogue, before, tmp_path):
    ids, training = CATALOGUES[catalogue], {**TRAINING, "shards": shards}
    data = grown(tmp_path / "data", ids)
    fresh = train(tied_near(**TERM), training, data, tmp_path / "fresh", device="cpu")
    further = train(
        tied_near(**TERM), training, data, tmp_path / "run", device="cpu", start_from=before.run.path
    )
    was, counted, found = nearest(before, OLD), nearest(fresh, ids), nearest(further, ids)
    for name in ids:
        kept = {one: near for one, near in was.get(name, {}).items() if one in ids}
        assert found[name] == (kept if name in OLD else counted[name]), name
    assert any(found[name] for name in OLD if name in ids)
    assert ("order" in catalogue) == any(found[name] for name in set(ids) - {*OLD})
    assert nearest(Model.load(further.run.path), ids) == found
