"""Memory: weights and state to the byte as the network allocates them; the rest grows with what it depends
on.
"""

from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest

from tests.parallel.matrix import EVERY_VALUE, SHARDS, WIDTHS, documents
from tests.parallel.split import DIVIDED, GATES, SPLIT
from tests.simulated.device import simulated
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import memory
from widenet.plan.tiles import held
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


class Part(Exchange):
    """An exchange that holds the shards of one process of several, for building only."""

    def __init__(self, process, num_processes):
        super().__init__(SHARDS)
        self.shards = held(SHARDS, process, num_processes)


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize(("device", "num_processes"), [("cpu", 1), ("cpu", 3), ("cpu", 8), ("cuda", 3)])
@pytest.mark.parametrize("case", EVERY_VALUE[::2], ids=str)
def test_weights_and_state_are_what_a_process_allocates(case, device, num_processes):
    network, training = documents(case)
    width = WIDTHS[case["data"]]
    fields = {"items": Width(width), "wishes": Width(width), "age": Width(3, kind="dense"), "label": Width(2)}
    job = Job(bind(network, training, fields), num_processes=num_processes, device=device)
    for process in range(num_processes):
        counts = {field: np.ones(width) for field in network.counted_fields}
        with simulated() if device == "cuda" else nullcontext():
            built = build(bind(network, training, fields), Part(process, num_processes), device, counts)
            built.prepare_training(Optimizer(training.optimizer, training.l1, training.l2))
        wholes = [weight.whole for weight in built.wide.values() if weight.whole is not None]
        assert (len(wholes) > 0) == (device == "cuda")
        parts = [
            part for weight in built.wide.values() if weight.whole is None for part in weight.parts.values()
        ] + wholes
        trunk = list(built.trunk.values())
        lines = [
            output.sampler.ends
            for output in built.outputs.values()
            if device == "cpu" and output.sampler is not None and output.sampler.ends is not None
        ]
        counted = [*built.damping.values(), *(tensor for ends in lines for tensor in ends.values())]
        weights = size([part.weight for part in parts] + [weight.tensor for weight in trunk] + counted)
        states = [tensor for part in [*parts, *trunk] for tensor in part.state.values()]
        moved = [part.moved for part in parts if part.moved is not None]
        assert (memory(job, process).weights, memory(job, process).state) == (
            weights,
            size(states) + size(moved),
        )


@pytest.mark.parametrize("process", [0, 2])
@pytest.mark.parametrize(
    ("case", "kind", "num_split"), [(SPLIT, "sparse", 4), (GATES, "sequence", 7), (DIVIDED, "sparse", 2)]
)
def test_a_process_allocates_its_shards_of_split_layers(case, kind, num_split, process):
    layers, training = case
    network, training = NetworkSpec.of({"layers": layers}), TrainingSpec.of({**training, "optimizer": "adam"})
    dense = {"age": Width(3, kind="dense"), "picture": Width(3 * 12 * 12, kind="dense")}
    layout = bind(network, training, {"items": Width(31, kind), **dense})
    job = Job(layout, num_processes=3)
    built = build(layout, Part(process, 3))
    built.prepare_training(Optimizer(training.optimizer))
    parts = [part for weight in built.wide.values() for part in weight.parts.values()]
    weights = [part.weight for part in parts] + [weight.tensor for weight in built.trunk.values()]
    states = [tensor for part in [*parts, *built.trunk.values()] for tensor in part.state.values()]
    moved = [part.moved for part in parts if part.moved is not None]
    needed = memory(job, process)
    assert (needed.weights, needed.state) == (size(weights), size(states) + size(moved))
    assert sum(weight.split for weight in layout.weights.values()) == num_split


def job(**changes):
    output = {
        "activation": changes.pop("activation", "softmax"),
        "sample": changes.pop("sample", None),
        "delta_norm": changes.pop("delta_norm", None),
        "neighbourhood": changes.pop("neighbourhood", None),
        "predict": changes.pop("predict", "all"),
    }
    network = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": changes.pop("units", 64)},
            {"name": "out", "kind": "output", "field": "items", **output},
        ]
    }
    training = TrainingSpec.of({"batch_size": 512, **changes.pop("training", {})})
    items = Width(changes.pop("width", 10**5), changes.pop("kind", "sparse"))
    return Job(bind(NetworkSpec.of(network), training, {"items": items}), **changes)


@pytest.mark.parametrize(("kind", "line"), [("uniform", 0), ("popularity", 8)])
def test_a_sample_needs_room_for_itself_and_the_targets_whatever_the_width(kind, line):
    small, large = (
        memory(job(width=width, sample={"kind": kind, "units": 5000}, activation="softmax"))
        for width in (10**6, 10**8)
    )
    assert small.workspace == large.workspace
    chosen = 5000 + 512 * 100
    rows, logits = 2 * 4 * (64 + 1) * chosen, 4 * 512 * chosen
    assert rows + logits < small.workspace < 1.8 * (rows + logits)
    assert small.weights - memory(job(width=10**6)).weights == line * 10**6


def test_checkpoints_within_epochs_need_a_copy_of_weights_and_state_in_the_memory_of_the_machine():
    seldom, asked = job(), job(training={"checkpoints": {"every_steps": 100}})
    before, after = memory(seldom), memory(asked)
    assert after == replace(before, snapshot=before.weights + before.state)
    assert after.total == before.total + after.snapshot
    assert memory(replace(asked, has_snapshots=False)) == before
    assert memory(replace(asked, device="cuda")) == memory(replace(seldom, device="cuda"))
