"""Which trainings a CUDA graph can hold, and the sentence that says why another cannot."""

from typing import get_args

import pytest

from widenet.errors import OptionError
from widenet.model.losses import loss_of
from widenet.plan.binding import bind
from widenet.plan.graph import check_recordable
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.spec.activations import PlainActivation
from widenet.spec.losses import CROSS_ENTROPIES, Loss
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

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
    return Job.of(
        bind(network, TrainingSpec.of({"shards": 2, **dict(training)}), fields), **{"device": "cuda", **more}
    )


REFUSED = {
    '"gradient_norm_limit" asks for the length of each gradient': (
        [INPUT, TASTE, OUTPUT],
        {"gradient_norm_limit": 1.0},
    ),
    '"brake" asks for the loss before each step': ([INPUT, TASTE, OUTPUT], {"brake": True}),
    'under "momentum" weights move that a batch does not touch': (
        [INPUT, TASTE, OUTPUT],
        {"optimizer": "momentum"},
    ),
    'under "nesterov" weights move that a batch does not touch': (
        [INPUT, TASTE, OUTPUT],
        {"optimizer": "nesterov"},
    ),
    'under "sgd" with l2 weights move that a batch does not touch': (
        [INPUT, TASTE, OUTPUT],
        {"optimizer": "sgd", "l2": 0.1},
    ),
    "it reads a sequence": ([INPUT, RECURRENT, {**OUTPUT, "predict": "next"}],),
    'layer "c" is a convolution layer': ([*PIXELS, OUTPUT],),
    'layer "taste" has dropout, whose random numbers the host draws': (
        [INPUT, {**TASTE, "dropout": 0.1}, OUTPUT],
    ),
    'layer "taste" has a weight_norm over a sparse input': ([INPUT, {**TASTE, "weight_norm": 1.0}, OUTPUT],),
    'output "next" is trained on a sample': (
        [INPUT, TASTE, {**OUTPUT, "sample": {"kind": "uniform", "units": 3}}],
    ),
    'output "next" is trained without its logits': ([INPUT, TASTE, LINEAR], {"optimizer": "sgd"}),
    'output "next" shares its weights': ([INPUT, TASTE, TIED],),
    'output "next" stands on a sparse input': ([INPUT, OUTPUT],),
    'output "next" has the activation "relu_max" under "l1"': (
        [INPUT, TASTE, {**OUTPUT, "activation": "relu_max", "loss": "l1"}],
    ),
    'output "next" has dense targets': ([INPUT, TASTE, {**OUTPUT, "field": "pixels"}],),
    'output "next" has "others": "ignore"': ([INPUT, TASTE, {**OUTPUT, "others": "ignore"}],),
    'output "next" has a delta_boost': ([INPUT, TASTE, {**OUTPUT, "delta_boost": {"target": 2.0}}],),
    'output "next" has a delta_norm': ([INPUT, TASTE, {**OUTPUT, "delta_norm": 1.0}],),
}
TAKEN = [
    ([INPUT, TASTE, OUTPUT], {"optimizer": "adam", "l2": 0.1, "l1": 0.1, "precision": "bfloat16"}),
    (
        [
            INPUT,
            {**TASTE, "batch_normalization": True},
            {"name": "deep", "units": 4, "weight_norm": 1.0},
            LINEAR,
        ],
        {"optimizer": "rmsprop"},
    ),
    ([INPUT, TASTE, {**OUTPUT, "activation": "softmax"}], {"optimizer": "adadelta"}),
    ([INPUT, TASTE, {**OUTPUT, "field": "pixels", "activation": "softmax"}], {"optimizer": "sgd"}),
]


@pytest.mark.parametrize(("obstacle", "asked"), REFUSED.items())
def test_what_no_graph_can_hold_is_named(obstacle, asked):
    with pytest.raises(OptionError) as raised:
        check_recordable(job(*asked))
    assert (
        str(raised.value)
        == f"A CUDA graph of a training's steps is asked for, but {obstacle}. Train without it."
    )


def test_a_cpu_has_none():
    with pytest.raises(OptionError, match=r"but it does not run on a CUDA device\. Train without it\.$"):
        check_recordable(job([INPUT, TASTE, OUTPUT], device="cpu"))


def test_of_several_processes_the_remedy_is_one():
    with pytest.raises(
        OptionError, match=r"but it runs in several processes\. Train without it, or with `processes=1`\.$"
    ):
        check_recordable(job([INPUT, TASTE, OUTPUT], num_processes=2))


@pytest.mark.parametrize("documents", TAKEN)
def test_other_trainings_are_taken(documents):
    check_recordable(job(*documents))


@pytest.mark.parametrize("loss", get_args(Loss))
def test_cross_entropies_are_the_losses_whose_slopes_are_by_the_logit(loss):
    (kind,) = get_args(loss.model_fields["kind"].annotation)
    assert loss_of(loss(kind=kind), PlainActivation(kind="softmax")).slope_of_logit == (
        kind in CROSS_ENTROPIES
    )
