"""Arguments of a training: documents that are given, those of the run, or the usual ones."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, DocumentError
from widenet.runs import train


@pytest.mark.parametrize("given", ["network", "training"])
def test_an_empty_document_is_not_that_of_the_run(given, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2]], width=3)
    train(None, {"epochs": 1, "seed": 7}, data, tmp_path / "run")
    documents = {"network": None, "training": None, given: {}}
    with pytest.raises((DocumentError, CheckpointError), match=r"layers is missing|\"seed\" differ"):
        train(**documents, data=data, out=tmp_path / "run", resume=True)
