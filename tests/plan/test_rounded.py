"""Weights in bfloat16: their bytes are planned to the byte, and what does not go with them is refused."""

import pytest
import torch

from widenet.errors import FitError, OptionError
from widenet.model.build import build
from widenet.parallel.local import LocalExchange
from widenet.plan.binding import bind
from widenet.plan.fit import elsewhere
from widenet.plan.job import Job
from widenet.plan.layout import Width
from widenet.plan.memory import memory
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.optimizers import Optimizer

HISTORY = {"name": "history", "kind": "input", "field": "items"}
TASTE = {"name": "taste", "units": 300}
NEXT = {"name": "next", "kind": "output", "field": "items"}


def layout(taste=(), output=(), width=1000, layers=None, described=(), **training):
    network = {"layers": layers or [HISTORY, TASTE | dict(taste), NEXT | dict(output)]}
    settings = {"weight_precision": "bfloat16", **training}
    fields = {"items": Width(width, described=dict(described)), "age": Width(3, "dense")}
    return bind(NetworkSpec.of(network), TrainingSpec.of(settings), fields)


@pytest.mark.parametrize(
    ("optimizer", "settings"),
    [
        ("sgd", {}),
        ("rmsprop", {"weight_rounding": "compensated"}),
        ("adam", {"state_precision": "float8"}),
        ("adam", {"weight_rounding": "compensated", "state_precision": "float8"}),
    ],
)
def test_the_plan_is_right_to_the_byte(optimizer, settings):
    bound = layout(optimizer=optimizer, **settings)
    network = build(bound, LocalExchange(bound.num_shards), counts={})
    network.prepare_training(Optimizer(bound.training.optimizer))
    parts = [part.tensors() for wide in network.wide.values() for part in wide.parts.values()]
    weights = [tensors.pop("weight") for tensors in parts]
    parts += [own.state for own in network.trunk.values()]
    weights += [own.tensor for own in network.trunk.values()]
    planned = memory(Job.of(bound))
    assert planned.weights == sum(weight.nbytes for weight in weights)
    assert planned.state == sum(tensor.nbytes for tensors in parts for tensor in tensors.values())


def test_weights_take_at_most_055_of_float32_and_with_state_in_8_bits_a_third():
    small, whole = (
        memory(Job.of(layout(state_precision="float8"))),
        memory(Job.of(layout(weight_precision="float32"))),
    )
    assert small.weights <= 0.505 * whole.weights
    assert small.weights + small.state <= 0.34 * (whole.weights + whole.state)


def test_ten_million_vectors_of_256_numbers_with_adam_take_under_40_gb():
    bound = layout(TASTE | {"units": 256}, width=10**7, state_precision="float8", batch_size=4096)
    needed = memory(Job.of(bound, num_threads=16))
    assert needed.total < 40e9
    assert needed.weights + needed.state < 21e9


WEIGHTLESS = NEXT | {"field": "age", "activation": "linear", "loss": "l2", "weightless": True, "bias": False}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"layers": [HISTORY, NEXT]}, r"needs a hidden layer between .* got none at .*\[1\]\.source"),
        ({"taste": {"weight_norm": 1.0}}, r"does not go with a limit on lengths, .*\[1\]\.weight_norm"),
        ({"output": {"weight_norm": 1.0}}, r"does not go with a limit on lengths, .*\[2\]\.weight_norm"),
        ({"taste": {"frozen": True}}, r'would round frozen vectors; got .*\[1\]\.frozen \("taste"\)'),
        (
            {"taste": {"described_by": ["genre"]}, "described": {"genre": 5}},
            r"does not go with vectors that follow attributes, .*\[1\]\.described_by",
        ),
        (
            {"layers": [HISTORY | {"field": "age"}, WEIGHTLESS]},
            "is for the vectors of sparse inputs and of outputs over hidden layers; the network has none",
        ),
    ],
)
def test_what_does_not_go_with_bfloat16_is_refused(settings, sentence):
    with pytest.raises(FitError, match=f'training.json: weight_precision "bfloat16" {sentence}'):
        layout(**settings)


def test_other_devices_and_places_are_refused_and_never_chosen():
    job = Job.of(layout())
    assert elsewhere(job) is None
    with pytest.raises(OptionError, match='needs the device "cpu"; got "cuda"'):
        Job.of(layout(), device="cuda")
    with pytest.raises(OptionError, match='keeps its weights in memory; got `weights_in` "disk"'):
        Job.of(layout(), weights_in="disk")


def test_first_numbers_are_the_nearest_to_those_of_float32():
    rounded, exact = layout(), layout(weight_precision="float32")
    networks = [build(bound, LocalExchange(bound.num_shards), counts={}) for bound in (rounded, exact)]
    for (_, own), (_, other) in zip(*(network.rows("taste/history") for network in networks), strict=True):
        assert torch.equal(own, other.bfloat16().float())
