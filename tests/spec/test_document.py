"""Reading documents: text to models and back."""

import json

import pytest

from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DESIGN = {
    "name": "next book",
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": 256, "activation": "tanh", "dropout": 0.5},
        {"name": "next", "kind": "output", "field": "items", "loss": "cross_entropy"},
    ],
}
HISTORY = {"name": "history", "kind": "input", "field": "items", "denoise": 0.3, "denoise_rescale": True}
AGE = {"name": "age", "kind": "input", "field": "age", "shape": [1, 7, 6], "dropout": 0.1, "scale": "unit"}
C = {"name": "c", "kind": "convolution", "filters": 3, "kernel": [3, 2], "stride": [1, 2], "padding": [0, 1]}
ONE = {"name": "one", "units": 8, "source": "history", "initializer": {"kind": "he", "scale": 2}}
TWO = {"name": "two", "units": 8, "source": ["one", "p"], "sparseness": {"target": 0.2}, "weight_norm": 2}
NEXT = {"name": "next", "kind": "output", "field": "items", "source": "one", "predict": "hidden"}
LABEL = {"name": "label", "kind": "output", "field": "label", "source": ["two", "had"], "loss": "l2"}
RICH = {
    "layers": [
        {**HISTORY, "popularity_damping": 0.5},
        AGE,
        {**C, "batch_normalization": True, "source": "age"},
        {"name": "p", "kind": "pooling", "function": {"kind": "lrn", "n": 3}},
        {"name": "had", "kind": "input", "field": "items"},
        {**ONE, "activation": {"kind": "leaky_relu", "slope": 0.2}},
        {**TWO, "bias": False},
        {
            **NEXT,
            "cosine": {"temperature": 0.05},
            "weights": {"layer": "one", "transposed": True},
            "loss": {"kind": "cross_entropy", "targets": "sum"},
        },
        {**LABEL, "activation": {"kind": "elu"}, "loss_weight": 3},
    ]
}
TRAINING = {
    "epochs": 3,
    "seed": 2**63 - 1,
    "optimizer": {"kind": "adamw", "weight_decay": 0.1},
    "schedule": {"kind": "cosine", "floor": 0.1},
    "evaluation": {"metric": "recall@5", "stop_after": 3},
    "keep": "best",
    "gradient_norm_limit": 1,
}
GOOD = [(NetworkSpec, DESIGN), (NetworkSpec, RICH), (TrainingSpec, TRAINING), (TrainingSpec, {})]


@pytest.mark.parametrize(("model", "values"), GOOD)
def test_a_document_written_out_reads_as_the_same_document(model, values):
    document = model.of(values)
    text = document.to_json()
    assert model.parse(text) == document
    assert model.parse(text).to_json() == text
    assert text.endswith("}\n")
    assert json.loads(text).keys() == model.model_fields.keys()


def test_a_document_knows_where_it_was_read_and_is_equal_to_the_same_one_read_elsewhere(tmp_path):
    (tmp_path / "mine.json").write_text("{}")
    read = TrainingSpec.read(tmp_path / "mine.json")
    assert (read.where, TrainingSpec.of({}).where) == (str(tmp_path / "mine.json"), "training.json")
    assert NetworkSpec.of(DESIGN).where == "network.json"
    assert read == TrainingSpec.of({})
    assert hash(read) == hash(TrainingSpec.of({}))
    assert read != TrainingSpec.of({"epochs": 3})
    assert read.to_json() == TrainingSpec.of({}).to_json()
