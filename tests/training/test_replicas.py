"""Replicas that are averaged: a loop of torch in float64, the bits of any number of processes, resuming."""

import json

import numpy as np
import pytest
import torch
from torch import distributed

from tests.parallel.traffic import counted
from tests.trainings import SETTINGS, WIDTH, books
from widenet import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.errors import DisagreementError, DocumentError, FitError, NumericsError, OptionError
from widenet.model.build import build
from widenet.parallel.group import exchange_for
from widenet.parallel.local import LocalExchange
from widenet.plan.averaging import average_bytes
from widenet.plan.job import Job
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.training.optimizers import Optimizer
from widenet.training.replicas import Replicas
from widenet.training.weights import check_weights

REPLICAS, BATCH, EPOCHS = 2, 3, 2
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 5, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
KINDS = {
    "sgd": (torch.optim.SGD, {}),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}),
    "rmsprop": (torch.optim.RMSprop, {"alpha": 0.9, "eps": 1e-8}),
    "adagrad": (torch.optim.Adagrad, {"eps": 1e-8}),
}
OURS = {
    "momentum": {"momentum": 0.9},
    "rmsprop": {"decay": 0.9, "epsilon": 1e-8},
    "adagrad": {"epsilon": 1e-8},
}


def training(kind, every, **more):
    return {
        "epochs": EPOCHS,
        "batch_size": BATCH,
        "shards": 3,
        "shuffle": False,
        "optimizer": {"kind": kind, "learning_rate": 0.05, **OURS.get(kind, {})},
        "averaging": {"replicas": REPLICAS, "every": every},
        "histograms": False,
        **more,
    }


def weights_of(network):
    """Every weight as the twin has it, float64: matrices [inputs, units], biases [units]."""
    found = {}
    for name in network.wide:
        whole = torch.cat([rows for _, rows in network.rows(name)]).double()
        found[name] = (
            whole.T.contiguous() if name == "next" else whole.squeeze(1) if "bias" in name else whole
        )
    return found | {name: trunk.tensor.detach().double() for name, trunk in network.trunk.items()}


def initial(document, data):
    layout = check_training(NetworkSpec.of(NETWORK), TrainingSpec.of(document), data)
    return weights_of(build(layout, LocalExchange(3), counts={}))


def loss_of(weights, rows_EL):
    hidden = torch.tanh(rows_EL @ weights["taste/history"] + weights["taste bias"])
    logits = hidden @ weights["next"] + weights["next bias"]
    shares = rows_EL / rows_EL.sum(dim=1, keepdim=True)
    return -(shares * torch.log_softmax(logits, dim=1)).sum(dim=1).mean()


def steps_of(num_examples, batch=REPLICAS * BATCH):
    """First and last example of every step; the last step takes an example that would be alone."""
    starts = [start for start in range(0, num_examples, batch) if num_examples - start >= REPLICAS]
    return [*zip(starts, [*starts[1:], num_examples], strict=True)]


def trained_by_torch(rows_NL, start, kind, every):
    """The mean loss of each epoch, and the weights of a plain loop over replicas."""
    optimizer, settings = KINDS[kind]
    replicas = [
        {name: weight.clone().requires_grad_() for name, weight in start.items()} for _ in range(REPLICAS)
    ]
    rules = [optimizer(weights.values(), lr=0.05, **settings) for weights in replicas]
    losses = []
    for _ in range(EPOCHS):
        total = 0.0
        for number, (first, last) in enumerate(steps := steps_of(len(rows_NL)), start=1):
            middle = first + (last - first) // REPLICAS
            for weights, rule, own in zip(
                replicas, rules, (slice(first, middle), slice(middle, last)), strict=True
            ):
                rule.zero_grad()
                loss = loss_of(weights, rows_NL[own])
                loss.backward()
                rule.step()
                total += loss.item() * (own.stop - own.start)
            if number % every == 0 or number == len(steps):
                average(replicas, rules)
        losses.append(total / len(rows_NL))
    return losses, replicas[0]


@torch.no_grad()
def average(replicas, rules):
    for of_replicas in zip(*(weights.values() for weights in replicas), strict=True):
        states = [rule.state[weight] for rule, weight in zip(rules, of_replicas, strict=True)]
        kept = [
            [value for value in state.values() if torch.is_tensor(value) and value.dim()] for state in states
        ]
        for tensors in (of_replicas, *zip(*kept, strict=True)):
            mean = sum(tensors) / len(tensors)
            for tensor in tensors:
                tensor.copy_(mean)


def dense(data):
    whole = data.sparse("items", slice(0, data.num_examples))
    rows_NL = torch.zeros(data.num_examples, WIDTH, dtype=torch.float64)
    for row in range(data.num_examples):
        rows_NL[row, whole.indices[whole.indptr[row] : whole.indptr[row + 1]].long()] = 1
    return rows_NL


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("every", "num_examples"), [(1, 20), (3, 20), (2, 13)])
def test_training_is_that_of_a_plain_loop_over_replicas(kind, every, num_examples, tmp_path):
    data, document = books(tmp_path / "data", num_examples=num_examples), training(kind, every)
    model = train(NETWORK, document, data, tmp_path / "run")
    losses, weights = trained_by_torch(dense(data), initial(document, data), kind, every)
    log = [json.loads(line)["loss"] for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert log == pytest.approx(losses, rel=1e-6)
    for name, found in weights_of(model.network).items():
        torch.testing.assert_close(found, weights[name].detach(), rtol=2e-5, atol=2e-6)


def test_under_sgd_averages_after_every_step_are_steps_of_a_batch_of_all_replicas(tmp_path):
    data = books(tmp_path / "data", num_examples=22)
    averaged = train(NETWORK, training("sgd", 1), data, tmp_path / "averaged")
    whole = train(
        NETWORK,
        training("sgd", 1, averaging=None, batch_size=REPLICAS * BATCH),
        data,
        tmp_path / "whole",
    )
    one, other = weights_of(averaged.network), weights_of(whole.network)
    for name in one:
        torch.testing.assert_close(one[name], other[name], rtol=1e-5, atol=1e-6)


CASES = ["momentum", "adam, normalized", "rmsprop, on the input", "sgd, drifting"]
AVERAGING = {"replicas": 3, "every": 2}


def averaged(name, data, folder, replicas=3, **more):
    """What training replicas gives: the weights and the log, without its seconds."""
    network, document = SETTINGS[name]
    averaging = {**AVERAGING, "replicas": replicas}
    model = train(network, {**document, "batch_size": 2, "averaging": averaging}, data, folder, **more)
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return model.fingerprint(), [
        {key: value for key, value in line.items() if "second" not in key} for line in lines
    ]


def all_averaged(data, folder):
    return [averaged(name, Dataset.open(data), folder / name) for name in CASES]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data").path


@pytest.fixture(scope="module")
def alone(data, tmp_path_factory):
    return all_averaged(data, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize("size", [2, 3])
def test_any_number_of_processes_gives_the_same_bits_and_losses(size, data, alone, groups, tmp_path):
    assert groups(size)(all_averaged, data, tmp_path) == [alone] * size
    assert len({fingerprint for fingerprint, _ in alone}) == len(CASES)


def four(data, folder):
    return averaged("momentum", Dataset.open(data), folder, replicas=4)


def test_one_two_and_four_processes_average_four_replicas_alike(data, groups, tmp_path):
    alone = four(data, tmp_path / "1")
    for size in (2, 4):
        assert groups(size)(four, data, tmp_path / f"{size}") == [alone] * size


def test_another_number_of_steps_or_replicas_gives_other_bits(data, alone, tmp_path):
    network, document = SETTINGS["momentum"]
    found = {alone[0][0]}
    for averaging in (None, {"replicas": 3, "every": 3}, {"replicas": 2, "every": 2}):
        document = {**document, "batch_size": 2, "averaging": averaging}
        found.add(train(network, document, Dataset.open(data), tmp_path / str(averaging)).fingerprint())
    assert len(found) == 4


def resumed(data, folder, name):
    return averaged(name, Dataset.open(data), folder, resume=True)


@pytest.mark.parametrize("name", ["momentum", "adam, normalized"])
def test_an_interrupted_training_resumes_to_the_bit_in_another_number_of_processes(
    name, data, alone, groups, tmp_path
):
    asked = iter(range(9))
    with pytest.raises(KeyboardInterrupt):
        averaged(name, Dataset.open(data), tmp_path / "run", interrupted=lambda: next(asked) == 2)
    newest = max(path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*"))
    assert newest == "epoch-00001-step-000000002"
    assert groups(2)(resumed, data, tmp_path / "run", name) == [alone[CASES.index(name)]] * 2


def test_a_checkpoint_by_steps_waits_for_the_next_average(data, alone, tmp_path):
    network, document = SETTINGS["momentum"]
    checkpoints = {"every_steps": 5, "every_epochs": 9, "keep_last": 9}
    document = {**document, "batch_size": 2, "averaging": AVERAGING, "checkpoints": checkpoints}
    model = train(network, document, Dataset.open(data), tmp_path / "run")
    saved = sorted(path.name for path in (tmp_path / "run" / "checkpoints").glob("epoch-*"))
    # 4 steps an epoch: the fifth of the training is the first of the second epoch, whose second averages
    assert saved[0] == "epoch-00001-step-000000002"
    assert model.fingerprint() == alone[0][0]


def overflowing(folder):
    """The error of a training in which only the examples of the second replica overflow."""
    rows = [[number % 5] for number in range(8)]
    weights = [1e38 if number in (3, 7) else 1.0 for number in range(8)]
    rank = distributed.get_rank()
    data = dataset_from_lists(folder / f"data-{rank}", rows, width=5, weights=weights)
    document = training("sgd", 4, batch_size=2, optimizer={"kind": "sgd", "learning_rate": 1e30})
    with pytest.raises(NumericsError) as raised:
        train(NETWORK, document, data, folder / "run")
    return str(raised.value)


def test_an_error_of_one_replica_is_that_of_all_processes(groups, tmp_path):
    one, other = groups(2)(overflowing, tmp_path)
    assert one == other
    assert "epoch 1, step" in one


def flipped(data):
    """What the processes say when one of them has another bit in its copy of a wide weight."""
    spec = TrainingSpec.of(training("adam", 9))
    layout = check_training(NetworkSpec.of(NETWORK), spec, Dataset.open(data))
    network = build(layout, exchange_for(3, torch.device("cpu"), REPLICAS), counts={})
    check_weights(network, "", "here")
    if distributed.get_rank() == 1:
        network.wide["taste/history"].parts[2].weight.view(torch.int32)[1, 3] ^= 1
    with pytest.raises(DisagreementError) as raised:
        check_weights(network, "", "here")
    return str(raised.value)


def test_a_bit_that_differs_in_one_copy_is_found(data, groups):
    one, other = groups(2)(flipped, data)
    assert one == other
    assert "taste/history.2.weight" in one


def sent_by_an_average(data):
    """Bytes that this process sends, and what the plan says of them."""
    dataset, num_processes = Dataset.open(data), distributed.get_world_size()
    spec = TrainingSpec.of(training("adam", 9, averaging={"replicas": 3, "every": 9}))
    layout, rule = check_training(NetworkSpec.of(NETWORK), spec, dataset), Optimizer(spec.optimizer)
    exchange = exchange_for(3, torch.device("cpu"), 3)
    networks = exchange.group.each(lambda _: build(layout, exchange, counts={}))
    for network in networks:
        network.prepare_training(rule)
    exchange.group.collect = lambda value, _: [value]
    with counted() as bytes_sent:
        Replicas(networks, spec.averaging, exchange.group).meet(lambda _: None)
    return sum(bytes_sent), average_bytes(Job.of(layout, num_processes=num_processes))


@pytest.mark.parametrize("size", [2, 3])
def test_the_plan_counts_what_an_average_sends(size, data, groups):
    measured, planned = groups(size)(sent_by_an_average, data)[0]
    assert measured == pytest.approx(planned, rel=0.01)


def test_equal_numbers_are_their_own_mean():
    numbers = torch.from_numpy(np.random.default_rng(0).standard_normal(999).astype(np.float32))
    numbers *= torch.logspace(-38, 38, 999)
    assert torch.equal(LocalExchange(3).mean([numbers] * 3, ""), numbers)


def test_documents_that_cannot_be_averaged_are_refused(data, tmp_path):
    def train_with(**more):
        train(NETWORK, training("sgd", 2, **more), Dataset.open(data), tmp_path / "run")

    with pytest.raises(DocumentError, match="brake must be false with averaging"):
        train_with(brake=True)
    with pytest.raises(DocumentError, match='weight_precision must be "float32" with averaging'):
        train_with(weight_precision="bfloat16")
    with pytest.raises(
        FitError, match=r"averaging\.replicas must be at most the number of examples, 23; got 24"
    ):
        train_with(averaging={"replicas": 24, "every": 2})
    with pytest.raises(OptionError, match=r'`weights_in` must be "device" with .*; got "disk"'):
        train(NETWORK, training("sgd", 2), Dataset.open(data), tmp_path / "run", weights_in="disk")
    assert not (tmp_path / "run").exists()


def too_many(data, folder):
    with pytest.raises(OptionError) as raised:
        train(NETWORK, training("sgd", 2), Dataset.open(data), folder)
    return str(raised.value)


def test_more_processes_than_replicas_are_refused(data, groups, tmp_path):
    for said in groups(3)(too_many, data, tmp_path / "run"):
        assert said.startswith("the number of processes must be from 1 to 2, averaging.replicas in training")
        assert said.endswith("got 3. Start fewer processes, or train more replicas.")


def test_without_averaging_there_is_one_replica_that_meets_itself():
    replicas = Replicas(["a network"])
    replicas.step(["a batch"], lambda *_: 0.5)
    assert replicas.meet(lambda _: pytest.fail("settled")) == [[0.5]]
