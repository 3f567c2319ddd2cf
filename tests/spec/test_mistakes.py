"""A mistake in a document is a DocumentError that names the document and the JSON path."""

import json

import pytest

from tests.mistakes import mistake
from tests.sequences import EMBEDDED, TIED, attention
from widenet.errors import DocumentError
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.tuning.space import SpaceSpec

IN = {"name": "in", "kind": "input", "field": "items"}
H = {"name": "h", "units": 4}
OUT = {"name": "out", "kind": "output", "field": "items"}
PICTURE = {"name": "in", "kind": "input", "field": "pixels", "shape": [1, 7, 6]}


def network(entry=(), hidden=(), output=(), more=()):
    return {"layers": [{**IN, **dict(entry)}, {**H, **dict(hidden)}, {**OUT, **dict(output)}, *more]}


C = {"name": "c", "kind": "convolution", "filters": 3, "kernel": 3}


def spatial(layer):
    h = {"name": "h", "units": 3, "source": "in"}
    return {"layers": [PICTURE, layer, h, {"name": "g", "units": 3, "source": ["h", layer["name"]]}, OUT]}


def convolution(**settings):
    return spatial({**C, **settings})


def pooling(function="max", **settings):
    return spatial({"name": "p", "kind": "pooling", "function": function, **settings})


RING = [{"name": "g", "units": 2, "source": ["f"]}, {"name": "f", "units": 2, "source": "h"}]
STATE = [
    {"name": "state", "kind": "recurrent", "units": 4, "source": "h"},
    {"name": "again", "kind": "output", "field": "items", "weights": {"layer": "state"}},
]
SHOWN = [
    {**IN, "denoise": 0.5},
    {**IN, "name": "had"},
    {**H, "source": ["in", "had"]},
    {**OUT, "predict": "hidden"},
]
SHARED = {"layer": "h", "transposed": True}
G = {"name": "g", "units": 2, "source": "in"}
NETWORK = [
    # What pydantic finds.
    (5, ""),
    ([], ""),
    ({}, "layers"),
    ({"layers": [3]}, "layers[0]"),
    ({"epochs": 3}, "epochs"),
    (network({}, {}, {"cosine": {"temprature": 1}}), "layers[2].cosine.temprature"),
    (network({}, {"activation": {"kind": "leaky_relu", "slop": 1}}), "layers[1].activation.slop"),
    (network({}, {"kind": "hiden"}), "layers[1]"),
    (network({}, {"activation": "tahn"}), "layers[1].activation"),
    (network({}, {"activation": {"slope": 0.1}}), "layers[1].activation.kind"),
    (network({}, {"units": "4"}), "layers[1].units"),
    (network({}, {"units": 100.0}), "layers[1].units"),
    (network({}, {"units": 2**40}), "layers[1].units"),
    (network({"units": "aut"}), "layers[0].units"),
    (network({"denoise": 1}), "layers[0].denoise"),
    (network({"name": "a/b"}), "layers[0].name"),
    (network({"name": "\ud800"}), ""),
    (network({}, {"bias_start": float("nan")}), "layers[1].bias_start"),
    (network({}, {"bias_start": -1e-40}), "layers[1].bias_start"),
    (network({}, {}, {"cosine": {"temperature": 1e-300}}), "layers[2].cosine.temperature"),
    (
        network({}, {"initializer": {"kind": "uniform", "limit": 0.1, "low": 0.2}}),
        "layers[1].initializer",
    ),
    (network({}, {}, {"weights": [{"layr": "h"}]}), "layers[2].weights[0].layr"),
    # Names and sources.
    (network({}, {"source": []}), "layers[1].source"),
    (network({}, {"source": [], "skip": "in", "weight_norm": 1.0}), "layers[1].source"),
    (network({}, {"source": "inn"}), "layers[1].source"),
    (network({}, {"source": ["in", "in"]}), "layers[1].source"),
    (network({}, {"source": "out"}), "layers[1].source"),
    (network({}, {"source": "h"}), "layers"),
    (network({}, {"source": ["in", "g"]}, {}, RING), "layers"),
    ({"layers": [H, IN, OUT]}, "layers[0].source"),
    (network({}, {"name": "in"}), "layers[1].name"),
    (network({}, {"name": "out bias"}), "layers[1].name"),
    ({"layers": [IN, H]}, "layers"),
    (network({}, {"source": "in"}, {"source": "in"}), "layers[1]"),
    (
        {"layers": [*EMBEDDED, attention(name="first"), attention(source=["item", "first"]), TIED]},
        "layers[3].source",
    ),
    # Settings that do not go together.
    (network({}, {}, {"predict": "hidden"}), "layers[2].predict"),
    ({"layers": SHOWN}, "layers[3].predict"),
    (network({}, {}, {"loss": "hinge"}), "layers[2].loss"),
    (network({}, {}, {"activation": "tanh"}), "layers[2].loss"),
    (
        network({}, {}, {"loss": {"kind": "cross_entropy", "targets": "sum"}, "activation": "sigmoid"}),
        "layers[2].loss.targets",
    ),
    (network({}, {}, {"sample": {"kind": "uniform", "power": 1}}), "layers[2].sample.power"),
    (network({}, {}, {"sample": "uniform", "loss": "l2"}), "layers[2].sample"),
    (network({}, {}, {"others": "ignore"}), "layers[2].others"),
    (
        network({}, {}, {"others": "ignore", "sample": "uniform", "loss": "l2", "activation": "linear"}),
        "layers[2].others",
    ),
    (network({}, {}, {"sample": "uniform", "weight_norm": 2.5}), "layers[2].weight_norm"),
    (network({}, {}, {"weightless": True}), "layers[2].bias"),
    (network({}, {}, {"repeats": [1.0]}), "layers[2].repeats"),
    (network({"field": "other"}, {}, {"neighbourhood": {}}), "layers[2].neighbourhood"),
    (network({}, {"described_by": ["a", "a"]}), "layers[1].described_by"),
    (network({}, {"described_by": "a", "weight_norm": 1.0}), "layers[1].weight_norm"),
    (network({}, {}, {"described_by": "a", "weights": SHARED}), "layers[2].described_by"),
    (network({}, {"activation": "relu", "sparseness": {}}), "layers[1].sparseness"),
    (network({}, {"activation": "gelu", "dropout_form": "rest"}), "layers[1].dropout_form"),
    # Shared weights.
    (network({}, {}, {"weights": [SHARED] * 2}), "layers[2].weights"),
    (network({}, {}, {"weights": {"layer": "H"}}), "layers[2].weights.layer"),
    (network({}, {}, {"weights": {"layer": "out"}}), "layers[2].weights.layer"),
    (network(more=STATE), "layers[4].weights.layer"),
    (network({}, {"weights": {"layer": "out"}}, {"weights": {"layer": "h"}}), "layers[1].weights.layer"),
    (network({}, {}, {"weights": {**SHARED, "source": "in"}}), "layers[2].weights.source"),
    (network({}, {}, {"weights": {**SHARED, "layer_source": "inn"}}), "layers[2].weights.layer_source"),
    (
        {"layers": [IN, {**IN, "name": "two"}, {**H, "source": ["in", "two"]}, {**OUT, "weights": SHARED}]},
        "layers[3].weights.layer_source",
    ),
    (
        {"layers": [IN, H, G, {**OUT, "source": ["h", "g"], "weights": {"layer": "h", "source": "h"}}]},
        "layers[3].weights",
    ),
    (network({}, {}, {"weights": SHARED, "weight_norm": 1.0}), "layers[2].weight_norm"),
    # Channels and places.
    (convolution(kernel=[3, 0]), "layers[1].kernel[1]"),
    (convolution(kernel=[1, 1, 1, 1]), "layers[1].kernel"),
    (convolution(kernel=[3, 3], stride=[2]), "layers[1].stride"),
    (convolution(kernel=[3, 1], padding=1), "layers[1].padding"),
    (convolution(weight_norm=1.0), "layers[1].weight_norm"),
    (convolution(skip="out"), "layers[1].skip"),
    (convolution(skip=["in", "in"]), "layers[1].skip"),
    (convolution(weights={"layer": "h"}), "layers[1].weights.layer"),
    (
        {"layers": [PICTURE, C, {**C, "name": "d", "weights": {**SHARED, "layer": "c"}}, OUT]},
        "layers[2].weights.transposed",
    ),
    (pooling(), "layers[1].kernel"),
    (pooling("lrn", kernel=2), "layers[1].kernel"),
    (pooling("cosine"), "layers[1].source"),
    (pooling(kernel=2, source=["in", "h"]), "layers[1].source"),
]
TRAINING = [
    (None, ""),
    (network(), "layers"),
    ({"epochs": "3"}, "epochs"),
    ({"weight_precision": "bfloat16"}, "weight_precision"),
    ({"optimizer": "adm"}, "optimizer"),
    ({"optimizer": "cosine"}, "optimizer"),
    ({"optimizer": {"kind": "sgd", "momentum": 0.9}}, "optimizer.momentum"),
    ({"optimizer": {"kind": "adam", "learning_rate": 1e39}}, "optimizer.learning_rate"),
    ({"optimizer": {"kind": "sgd", "learning_rate": 1.0}, "l2": 1.0}, "optimizer.learning_rate"),
    ({"seed": 2**63}, "seed"),
    ({"keep": "best"}, "keep"),
    ({"evaluation": {"part": "test"}}, "evaluation.part"),
    ({"checkpoints": {"keep": 3}}, "checkpoints.keep"),
]
LAYERS = [IN, {**H, "units": {"from": [4, 8]}}, OUT]
SPACE = [
    ({"network": {}, "training": {}, "trials": 3}, "trials"),
    ({"network": {}, "training": {}}, ""),
    ({"layers": LAYERS}, "layers"),
    *(
        ({"network": {"layers": LAYERS}, "training": training}, place)
        for training, place in [
            ({"l2": {"from": []}}, "training.l2.from"),
            ({"l2": {"from": [1], "log": True}}, "training.l2.log"),
            ({"l2": {"from": [1, 1]}}, "training.l2"),
            ({"l2": {"from": [1], "between": [1, 2]}}, "training.l2.between"),
            ({"l2": {"between": ["1", 2]}}, "training.l2.between[0]"),
            ({"l2": {"between": [2, 1]}}, "training.l2"),
            ({"l2": {"between": [0, 1], "log": True}}, "training.l2"),
            ({"epochs": {"from": [1, 2]}}, "training.epochs"),
            ({"evaluation": {"metric": {"from": ["ndcg@5", "ndcg@9"]}}}, "training.evaluation.metric"),
        ]
    ),
]
CASES = [
    *((NetworkSpec, values, place) for values, place in NETWORK),
    *((TrainingSpec, values, place) for values, place in TRAINING),
    *((SpaceSpec, values, place) for values, place in SPACE),
]


@pytest.mark.parametrize(("model", "values", "place"), CASES, ids=str)
def test_a_mistake_names_the_document_and_the_path(model, values, place):
    with mistake(DocumentError, place=f"{model.usual_name}: {place}" if place else model.usual_name):
        model.of(values, model.usual_name)


@pytest.mark.parametrize(
    ("text", "line", "column", "place"),
    [
        ("", 1, 1, ""),
        ('{"epochs": 3,\n "seed" 4}', 2, 9, ""),
        ('{"seed": 4} {}', 1, 13, ""),
        ('{"epochs": 3, "epochs": 4}', None, None, ""),
        ('{"l2": 1e999}', None, None, ": l2"),
        ("[" * 100_000, None, None, ""),
        (f'{{"seed": {"1" * 5000}}}', None, None, ""),
    ],
    ids=lambda text: str(text)[:20],
)
def test_text_that_is_no_document_has_the_place(text, line, column, place):
    with mistake(DocumentError, place=f"t.json{place}", line=line, column=column):
        TrainingSpec.parse(text, "t.json")


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b'{"name": "\xff"}')
    for path in (tmp_path / "no.json", tmp_path, tmp_path / "bytes.json"):
        with mistake(DocumentError, place=path):
            NetworkSpec.read(path)
    (tmp_path / "net.json").write_text(json.dumps(network({}, {"units": 0})))
    with mistake(DocumentError, place=f"{tmp_path / 'net.json'}: layers[1].units"):
        NetworkSpec.read(tmp_path / "net.json")


LOOP = {}
LOOP["epochs"] = LOOP


@pytest.mark.parametrize(
    "values", [{"epochs": {1, 2}}, {(1, 2): 3}, {"name": b"x"}, LOOP], ids=["set", "key", "bytes", "loop"]
)
def test_python_values_that_json_does_not_have_are_refused(values):
    with mistake(DocumentError, place="document"):
        TrainingSpec.of(values)


def test_the_nearest_valid_name_is_suggested():
    for values, name in (
        (network({}, {"activaton": "relu"}), "activation"),
        (network({}, {"source": "inn"}), "in"),
        (network({}, {}, {"loss": {"kind": "cross_entropy", "targts": "sum"}}), "targets"),
    ):
        with pytest.raises(DocumentError) as caught:
            NetworkSpec.of(values)
        assert f'"{name}"' in caught.value.rule
