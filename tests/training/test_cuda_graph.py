"""A training whose steps cannot be recorded is refused before it leaves anything."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import OptionError
from widenet.kernels import table
from widenet.plan.binding import bind
from widenet.plan.job import Job
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.cuda_graph import check_recordable_here

LAYERS = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "taste", "units": 3},
    {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"},
]


@pytest.fixture
def data(tmp_path):
    return dataset_from_lists(tmp_path / "data", [[0], [1]], width=3)


@pytest.fixture
def job(data, monkeypatch):
    monkeypatch.setattr(table, "has_triton", lambda: True)
    layout = bind(NetworkSpec.of({"layers": LAYERS}), TrainingSpec.of({"shards": 2}), data.manifest.fields)
    return Job.of(layout, device="cuda", cuda_graph=True)


def test_without_triton_nothing_is_recorded(job, monkeypatch):
    check_recordable_here(job)
    monkeypatch.setattr(table, "has_triton", lambda: False)
    with pytest.raises(OptionError, match="Triton cannot be imported"):
        check_recordable_here(job)


@pytest.mark.parametrize(
    ("formulas", "obstacle"),
    [
        ("TRITON_OPTIMIZERS", 'Triton has no steps of "adam"'),
        ("TRITON_ACTIVATIONS", 'Triton has no formula of the activation or the loss of output "next"'),
        ("TRITON_LOSSES", 'Triton has no formula of the activation or the loss of output "next"'),
    ],
)
def test_a_training_is_not_recorded_where_triton_lacks_a_formula(formulas, obstacle, job, monkeypatch):
    monkeypatch.setattr(table, formulas, ())
    with pytest.raises(OptionError, match=obstacle):
        check_recordable_here(job)


def test_a_training_that_cannot_be_recorded_leaves_no_run(data, tmp_path):
    with pytest.raises(OptionError, match="it does not run on a CUDA device"):
        train({"layers": LAYERS}, {"epochs": 1}, data, tmp_path / "run", device="cpu", cuda_graph=True)
    assert not (tmp_path / "run").exists()
