"""The settings that stand for DSSTNE's arithmetic, and documents that name a dialect instead."""

import json

import pytest

from tests.older import run_with_dialect
from widenet.data.lists import dataset_from_lists
from widenet.errors import DocumentError
from widenet.runs import Model, train
from widenet.spec.network import NetworkSpec

IN = {"name": "in", "kind": "input", "field": "items"}
OUT = {"name": "out", "kind": "output", "field": "items", "activation": "sigmoid"}
TIED = {**OUT, "weights": {"layer": "h", "transposed": True}}


def network(*hidden, out=OUT, **more):
    return NetworkSpec.of({"layers": [IN, *hidden, out], **more})


def test_a_dialect_of_widenet_says_nothing():
    assert network({"name": "h", "units": 3}, dialect="widenet") == network({"name": "h", "units": 3})


@pytest.mark.parametrize("activation", ["sigmoid", {"kind": "elu", "alpha": 2.0}, "gelu"])
def test_dsstnes_dialect_becomes_settings(activation):
    hidden = {"name": "h", "units": 3, "activation": activation, "dropout": 0.5, "sparseness": {}}
    plain = {"name": "i", "units": 3, "activation": activation}
    found = network(hidden, plain, dialect="dsstne")
    assert found.optimizer.model_dump() == {"floor": 1e-9, "step_offset": 1}
    forms = ["mask" if activation == "gelu" else "rest", "mask"]
    assert [layer.dropout_form for layer in found.hidden] == forms
    assert (found.hidden[0].sparseness.after_dropout, found.hidden[0].sparseness.pull_outside) == (True, True)
    assert found.shared_gradient == "sum"
    assert NetworkSpec.parse(found.to_json()) == found


def test_in_dsstnes_dialect_those_that_share_weights_move_them_by_the_mean():
    hidden = {"name": "h", "units": 3, "activation": "linear", "bias": False}
    assert network(hidden, out=TIED, dialect="dsstne").shared_gradient == "mean"


def test_settings_that_the_document_has_stay():
    hidden = {"name": "h", "units": 3, "dropout": 0.5, "sparseness": {"pull_outside": False}}
    found = network(hidden, dialect="dsstne", optimizer={"floor": 1e-4})
    assert found.optimizer.model_dump() == {"floor": 1e-4, "step_offset": None}
    assert found.hidden[0].sparseness.pull_outside is False


@pytest.mark.parametrize("dialect", ["keras", None, 3, ["dsstne"]])
def test_another_dialect_is_refused(dialect):
    with pytest.raises(DocumentError, match=r"network.json: dialect must be \"widenet\" or \"dsstne\"; got "):
        NetworkSpec.of({"layers": [IN, OUT], "dialect": dialect}, "network.json")


@pytest.mark.parametrize("values", [{"layers": 3}, {"layers": [3]}, {}, {"layers": [{"name": 3}, OUT]}])
def test_a_wrong_document_with_a_dialect_is_one_sentence(values):
    with pytest.raises(DocumentError):
        NetworkSpec.of({"dialect": "dsstne", **values})


CONFIG = {
    "Version": 0.7,
    "Name": "AE",
    "SparsenessPenalty": {"p": 0.2, "beta": 1.5},
    "Layers": [
        {"Name": "Input", "Kind": "Input", "DataSet": "items", "Sparse": True},
        {"Name": "Hidden", "N": 5, "Activation": "Sigmoid", "Sparse": True, "pDropout": 0.4},
        {
            "Name": "Output",
            "Kind": "Output",
            "DataSet": "items",
            "SharedWeights": {
                "SourceInputLayer": "Input",
                "SourceOutputLayer": "Hidden",
                "Transposed": True,
            },
        },
    ],
}


@pytest.mark.parametrize("kind", ["adagrad", "adam"])
def test_a_run_that_names_a_dialect_is_read_and_resumed_to_the_bits_of_an_undisturbed_one(kind, tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[i % 7, 7 + i % 4] for i in range(20)], width=11)
    training = {"epochs": 2, "batch_size": 4, "shards": 2, "optimizer": kind}
    whole = train(CONFIG, training, data, tmp_path / "whole", device="cpu")
    steps = iter(range(9))
    with pytest.raises(KeyboardInterrupt):
        train(
            CONFIG,
            training,
            data,
            tmp_path / "run",
            device="cpu",
            interrupted=lambda: next(steps, None) is None,
        )
    run = run_with_dialect(tmp_path / "run", "dsstne")
    values = json.loads((run / "network.json").read_text())
    assert values["dialect"] == "dsstne"
    assert "optimizer" not in values
    Model.load(run, "cpu")
    resumed = train(CONFIG, None, data, run, resume=True, device="cpu")
    assert resumed.fingerprint() == whole.fingerprint()
    old = run_with_dialect(tmp_path / "whole", "dsstne")
    assert Model.load(old, "cpu").fingerprint() == whole.fingerprint()
