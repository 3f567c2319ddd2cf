"""Which trainings a CUDA graph can hold, and the sentence that says why another cannot."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.errors import OptionError
from widenet.plan.binding import Width
from widenet.plan.job import Job
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import cuda_graph
from widenet.training.cuda_graph import check_recordable

INPUT, TASTE = {"name": "in", "kind": "input", "field": "items"}, {"name": "taste", "units": 3}
OUTPUT = {"name": "next", "kind": "output", "field": "items", "activation": "sigmoid"}
PIXELS = [
    {"name": "in", "kind": "input", "field": "pixels", "shape": [1, 6, 6]},
    {"name": "c", "kind": "convolution", "filters": 2, "kernel": 3},
]
TIED = {**OUTPUT, "weights": {"layer": "taste", "transposed": True}}
LINEAR = {**OUTPUT, "activation": "linear", "loss": "l2"}
RECURRENT = {"name": "taste", "kind": "recurrent", "units": 3}


def job(layers, training=(), **more):
    sequences = any(layer.get("kind") == "recurrent" for layer in layers)
    widths = {"items": Width(300, "sequence" if sequences else "sparse"), "pixels": Width(36, "dense")}
    network = NetworkSpec.of({"layers": layers})
    fields = {name: widths[name] for name in network.fields}
    return Job.of(network, TrainingSpec.of({"shards": 2, **dict(training)}), fields, **{"device": "cuda", **more})


REFUSED = {
    "it does not run on a CUDA device": ([INPUT, TASTE, OUTPUT], {}, {"device": "cpu", "cuda_graph": True}),
    "it runs in several processes": ([INPUT, TASTE, OUTPUT], {}, {"num_processes": 2, "cuda_graph": True}),
    '"gradient_norm_limit" asks for the length of each gradient': ([INPUT, TASTE, OUTPUT], {"gradient_norm_limit": 1.0}),
    '"brake" asks for the loss before each step': ([INPUT, TASTE, OUTPUT], {"brake": True}),
    'under "momentum" weights move that a batch does not touch': ([INPUT, TASTE, OUTPUT], {"optimizer": "momentum"}),
    'under "nesterov" weights move that a batch does not touch': ([INPUT, TASTE, OUTPUT], {"optimizer": "nesterov"}),
    'under "sgd" with l2 weights move that a batch does not touch': ([INPUT, TASTE, OUTPUT], {"optimizer": "sgd", "l2": 0.1}),
    "it reads a sequence": ([INPUT, RECURRENT, {**OUTPUT, "predict": "next"}],),
    'layer "c" is a convolution layer': ([*PIXELS, OUTPUT],),
    'layer "taste" has dropout, whose random numbers the host draws': ([INPUT, {**TASTE, "dropout": 0.1}, OUTPUT],),
    'layer "taste" has a weight_norm over a sparse input': ([INPUT, {**TASTE, "weight_norm": 1.0}, OUTPUT],),
    'output "next" is trained on a sample': ([INPUT, TASTE, {**OUTPUT, "sample": {"kind": "uniform", "units": 3}}],),
    'output "next" is trained without its logits': ([INPUT, TASTE, LINEAR], {"optimizer": "sgd"}),
    'output "next" shares its weights': ([INPUT, TASTE, TIED],),
    'output "next" stands on a sparse input': ([INPUT, OUTPUT],),
    'output "next" has the activation "relu_max" under "l1"': ([INPUT, TASTE, {**OUTPUT, "activation": "relu_max", "loss": "l1"}],),
    'output "next" has dense targets': ([INPUT, TASTE, {**OUTPUT, "field": "pixels"}],),
    'output "next" has "others": "ignore"': ([INPUT, TASTE, {**OUTPUT, "others": "ignore"}],),
    'output "next" has a delta_boost': ([INPUT, TASTE, {**OUTPUT, "delta_boost": {"target": 2.0}}],),
    'output "next" has a delta_norm': ([INPUT, TASTE, {**OUTPUT, "delta_norm": 1.0}],),
}
TAKEN = [
    ([INPUT, TASTE, OUTPUT], {"optimizer": "adam", "l2": 0.1, "l1": 0.1, "precision": "bfloat16"}),
    ([INPUT, {**TASTE, "batch_normalization": True}, {"name": "deep", "units": 4, "weight_norm": 1.0}, LINEAR], {"optimizer": "rmsprop"}),
    ([INPUT, TASTE, {**OUTPUT, "activation": "softmax"}], {"optimizer": "adadelta"}),
    ([INPUT, TASTE, {**OUTPUT, "field": "pixels", "activation": "softmax"}], {"optimizer": "sgd"}),
]


@pytest.mark.parametrize(("obstacle", "asked"), REFUSED.items())
def test_what_no_graph_can_hold_is_named(obstacle, asked, monkeypatch):
    monkeypatch.setattr(cuda_graph, "has_triton", lambda: True)
    documents, more = asked[:2], asked[2] if len(asked) > 2 else {}
    with pytest.raises(OptionError) as raised:
        check_recordable(job(*documents, **more))
    assert str(raised.value) == f"A CUDA graph of a training's steps is asked for, but {obstacle}. Train without it."


@pytest.mark.parametrize("documents", TAKEN)
def test_other_trainings_are_taken_where_triton_is(documents, monkeypatch):
    monkeypatch.setattr(cuda_graph, "has_triton", lambda: True)
    check_recordable(job(*documents))
    monkeypatch.setattr(cuda_graph, "has_triton", lambda: False)
    with pytest.raises(OptionError, match="Triton cannot be imported"):
        check_recordable(job(*documents))


def test_a_training_that_cannot_be_recorded_leaves_no_run(tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0], [1]], width=3)
    with pytest.raises(OptionError, match="it does not run on a CUDA device"):
        train({"layers": [INPUT, TASTE, OUTPUT]}, {"epochs": 1}, data, tmp_path / "run", device="cpu", cuda_graph=True)
    assert not (tmp_path / "run").exists()
