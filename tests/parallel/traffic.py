"""Bytes that a process sends in a step, counted as they leave it."""

from contextlib import contextmanager

import numpy as np
from torch import distributed

from tests.parallel.workers import exchange
from widenet.data.dataset import Dataset
from widenet.data.stream import Stream
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import work
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates
from widenet.training.step import train_step

EXAMPLES, HIDDEN = 16, 8


@contextmanager
def counted():
    """Within, a list of the bytes that this process sends in each travel, by the ring algorithm.

    Of N processes each sends 2 (N - 1) / N of what is reduced, and what it gives to be gathered N - 1 times.
    """
    bytes_sent, size = [], distributed.get_world_size()
    plain = {
        name: getattr(distributed, name)
        for name in ("all_reduce", "all_gather", "all_to_all_single", "broadcast", "all_gather_object")
    }

    def reducing(tensor, *arguments):
        bytes_sent.append(tensor.nbytes * 2 * (size - 1) / size)
        return plain["all_reduce"](tensor, *arguments)

    def gathering(found, tensor):
        bytes_sent.append(tensor.nbytes * (size - 1))
        return plain["all_gather"](found, tensor)

    def exchanging(arrived, sent, into, out_of):
        others = sum(out_of) - out_of[distributed.get_rank()]
        bytes_sent.append(sent[0].nbytes * others)
        return plain["all_to_all_single"](arrived, sent, into, out_of)

    try:
        for name, function in {
            **dict.fromkeys(plain),
            "all_reduce": reducing,
            "all_gather": gathering,
            "all_to_all_single": exchanging,
        }.items():
            setattr(distributed, name, function)
        yield bytes_sent
    finally:
        for name, function in plain.items():
            setattr(distributed, name, function)


def sent(width, tied):
    """Bytes that this process sends in a step, and in how many travels."""
    spec = NetworkSpec.of(
        {
            "layers": [
                {"name": "in", "kind": "input", "field": "items"},
                {"name": "h", "units": HIDDEN},
                {"name": "out", "kind": "output", "field": "items"}
                | ({"weights": {"layer": "h", "transposed": True}} if tied else {}),
            ]
        }
    )
    training = TrainingSpec.of({"epochs": 1, "optimizer": "sgd"})
    network, rule = (
        build(bind(spec, training, {"items": Width(width)}), exchange()),
        Optimizer(training.optimizer),
    )
    network.prepare_training(rule)
    chance = np.random.default_rng(width)
    batch = SparseBatch.from_lists(
        [sorted(chance.choice(width, 5, replace=False).tolist()) for _ in range(EXAMPLES)]
    )
    with counted() as bytes_sent:
        prepared = network.prepare({"items": batch}, (0, 0))
        train_step(network, rule, prepared, StepNumbers(1, rates(training, 1)))
    return sum(bytes_sent), len(bytes_sent)


def sent_and_planned(layers, plan, folder, entries=None):
    """Bytes that this process sends in the second step of a training, and what the plan says of it.

    entries: entries of an example that are read, by field.
    """
    data, spec, training = Dataset.open(folder), NetworkSpec.of(layers), TrainingSpec.of(plan)
    counts = {field: data.counts(field) for field in spec.counted_fields}
    network = build(bind(spec, training, data.fields), exchange(), counts=counts)
    rule = Optimizer(training.optimizer, training.l1, training.l2)
    network.prepare_training(rule)
    batch = next(Stream(data, spec.fields, training.batch_size, training.seed).batches(0))
    for number in (1, 2):
        with counted() as bytes_sent:
            prepared = network.prepare(batch.fields, (0, number), batch.weights)
            train_step(network, rule, prepared, StepNumbers(number, rates(training, 2)))
    job = Job(
        bind(spec, training, data.fields),
        entries,
        all_examples=data.num_examples,
        num_processes=distributed.get_world_size(),
    )
    return sum(bytes_sent), work(job, distributed.get_rank()).sent_bytes
