"""Frozen layers keep every weight that they use to the bit, and the others learn as without them."""

import pytest
import torch

from tests import sequences
from tests.parallel.matrix import LINEAR, PICTURES, SHARDS, documents, write_data
from tests.parallel.split import DIVIDED, GATES, SPLIT
from widenet.data.dataset import Dataset
from widenet.data.stream import Stream
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.product import own_examples
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates
from widenet.training.step import regularization, settle, train_step

PLAIN = {**LINEAR, "output": {}, "data": "ones", "noise": "none"}


def case(**changes):
    """A case of the matrix as layers and training."""
    network, training = documents({**PLAIN, **changes})
    return network.model_dump(mode="json")["layers"], training.model_dump(mode="json")


def along(name):
    layers, training = sequences.documents(name)[0]["layers"], sequences.documents(name)[1]
    return layers, training | {"shards": SHARDS}


CASES = {
    "an input's weight": (*case(optimizer="momentum"), "ones", ["h"]),
    "a hidden layer with a limit": (*case(limits={"weight": 0.5}), "ones", ["mid"]),
    "an output under a limited gradient": (*case(limits={"gradient": 0.05}), "ones", ["out"]),
    "a tied weight": (*case(shape="tied", optimizer="adam"), "ones", ["h"]),
    "a weight of two outputs": (*case(shape="two outputs"), "ones", ["want"]),
    "a tied and sampled one": (
        *case(shape="tied", sample={"kind": "uniform", "units": 4}, optimizer="rmsprop"),
        "ones",
        ["h"],
    ),
    "an output on an input": (*case(shape="on the input"), "ones", ["out"]),
    "one of several sources": (*case(shape="towers", precision="bfloat16"), "ones", ["h", "mix"]),
    "split layers": (*SPLIT, "narrow", ["h", "even"]),
    "filters by examples": (*DIVIDED, "pictures", ["edges"]),
    "all filters": (*DIVIDED, "pictures", ["edges", "parts", "normal"]),
    "normalized filters": (*PICTURES, "pictures", ["edges", "h"]),
    "gates": (*GATES, "sequences", ["state", "small"]),
    "attention": (*along("tied attention, adam"), "sequences", ["state"]),
    "items of a sequence": (*along("embedded lstm over a sample, rmsprop"), "sequences", ["item"]),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = write_data(tmp_path_factory.mktemp("data"))
    sequences.write(folder / "sequences")
    return folder


def frozen(layers, names):
    return [{**layer, "frozen": True} if layer["name"] in names else layer for layer in layers]


def network_of(layers, training, dataset, exchanged):
    spec, training = NetworkSpec.of({"layers": layers}), TrainingSpec.of(training)
    counts = {field: dataset.counts(field) for field in spec.counted_fields}
    return build(bind(spec, training, dataset.fields), exchanged, counts=counts)


def stepped(network, dataset, most=4):
    """Train a network for some steps."""
    training = network.layout.training
    rule = Optimizer(training.optimizer, training.l1, training.l2)
    network.prepare_training(rule)
    own = own_examples(network.layout, network.exchange)
    stream = Stream(dataset, network.spec.fields, training.batch_size, training.seed, True, own=own)
    steps = rates(training, stream.steps_per_epoch)
    for batch in list(stream.batches(0))[:most]:
        prepared = network.prepare(batch.fields, (0, batch.step), batch.weights)
        numbers = StepNumbers(batch.step + 1, steps)
        train_step(network, rule, prepared, numbers)
    settle(network, rule, steps, min(most, stream.steps_per_epoch))


def tensors(network):
    """Copies of all weights by name; those in shards one after another."""
    wide = {
        name: torch.cat([part.weight.detach().clone() for part in weight.parts.values()])
        for name, weight in network.wide.items()
    }
    return wide | {name: weight.tensor.detach().clone() for name, weight in network.trunk.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_frozen_layer_keeps_its_weights_without_state_while_all_others_learn(name, data):
    layers, training, folder, names = CASES[name]
    dataset = Dataset.open(data / folder)
    with one_thread_an_operation():
        network = network_of(frozen(layers, names), training, dataset, Exchange(SHARDS))
        before = tensors(network)
        stepped(network, dataset)
    kept = {each for each, weight in network.layout.weights.items() if not weight.trained}
    assert {each for each, weight in network.layout.weights.items() if weight.layer in names} <= kept
    after = tensors(network)
    others = {each for each in kept if network.layout.weights[each].layer not in names}
    follows = {each for each in others if each.endswith((" mean", " variance"))}
    assert all(torch.equal(before[each], after[each]) for each in kept - follows)
    assert [each for each in before.keys() - kept if torch.equal(before[each], after[each])] == []
    for each in kept:
        if each in network.wide:
            assert not any(part.state or part.moved is not None for part in network.wide[each].parts.values())
        else:
            assert network.trunk[each].state == {}


@pytest.mark.parametrize("name", CASES)
def test_the_first_step_moves_the_others_as_if_nothing_were_frozen(name, data):
    layers, training, folder, names = CASES[name]
    layers = [{key: own for key, own in layer.items() if key != "batch_normalization"} for layer in layers]
    training = {**training, "optimizer": {"kind": "sgd", "learning_rate": 0.3}, "gradient_norm_limit": None}
    dataset, found = Dataset.open(data / folder), []
    with one_thread_an_operation():
        for some in (names, []):
            network = network_of(frozen(layers, some), training, dataset, Exchange(SHARDS))
            trained = {each for each, weight in network.layout.weights.items() if weight.trained}
            stepped(network, dataset, most=1)
            found.append({each: tensor for each, tensor in tensors(network).items() if each in trained})
    for each in found[0]:
        torch.testing.assert_close(found[0][each], found[1][each], rtol=1e-4, atol=1e-6, msg=each)


def test_penalties_count_trained_weights_alone(data):
    dataset, (layers, training, *_) = Dataset.open(data / "ones"), CASES["an input's weight"]
    networks = [
        network_of(frozen(layers, names), training, dataset, Exchange(SHARDS)) for names in ([], ["h"])
    ]
    whole, part = (regularization(network, 0.0, 0.5) for network in networks)
    own = sum(float(part.weight.double().square().sum()) for part in networks[0].wide["h/in"].parts.values())
    assert part == pytest.approx(whole - 0.25 * own, rel=1e-12)


TIED = [
    {"name": "in", "kind": "input", "field": "items"},
    {"name": "h", "units": 64, "activation": "linear"},
    {"name": "out", "kind": "output", "field": "items"},
]


def job(layers, **more):
    training = TrainingSpec.of({"epochs": 1, "optimizer": "adam"})
    return Job(bind(NetworkSpec.of({"layers": layers}), training, {"items": Width(1_000_000, **more)}))
