"""A training whose steps cannot be recorded is refused before it leaves anything."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import OptionError
from widenet.plan.binding import bind
from widenet.plan.job import Job
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import cuda_graph
from widenet.training.cuda_graph import check_recordable_here

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "taste", "units": 3},
    {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
]


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0], [1]], width=3)


def test_without_triton_nothing_is_recorded(data, monkeypatch):
    job = Job.of(
        bind(NetworkSpec.of({"layers": LAYERS}), TrainingSpec.of({"shards": 2}), data.manifest.fields),
        device="cuda",
        cuda_graph=True,
    )
    monkeypatch.setattr(cuda_graph, "has_triton", lambda: True)
    check_recordable_here(job)
    monkeypatch.setattr(cuda_graph, "has_triton", lambda: False)
    with pytest.raises(OptionError, match="Triton cannot be imported"):
        check_recordable_here(job)


def test_a_training_that_cannot_be_recorded_leaves_no_run(data, tmp_path):
    with pytest.raises(OptionError, match="it does not run on a CUDA device"):
        train({"layers": LAYERS}, {"epochs": 1}, data, tmp_path / "run", device="cpu", cuda_graph=True)
    assert not (tmp_path / "run").exists()
