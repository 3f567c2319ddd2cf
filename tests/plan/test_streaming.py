"""Weights on a disk: the plan counts what the network puts there and what it keeps, to the byte."""

from dataclasses import replace
from threading import Lock

import numpy as np
import pytest

from tests.parallel.matrix import EVERY_VALUE, WIDTHS, documents
from tests.plan.test_memory import Part as Process
from tests.plan.test_memory import size
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.model.storage import Scratch, file_of
from widenet.model.weight import Part
from widenet.plan import tiles
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import elsewhere_bytes, memory, window_bytes
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec


@pytest.mark.parametrize("num_processes", [1, 3])
@pytest.mark.parametrize("case", EVERY_VALUE[::3], ids=str)
def test_the_file_holds_what_the_plan_says_and_memory_the_rest(case, num_processes, tmp_path):
    network, training = documents(case)
    width = WIDTHS[case["data"]]
    fields = {"items": Width(width), "wishes": Width(width), "age": Width(3, kind="dense"), "label": Width(2)}
    layout = bind(network, training, fields)
    job = Job(layout, num_processes=num_processes, weights_in="disk")
    for process in range(num_processes):
        counts = {field: np.ones(width) for field in network.counted_fields}
        file = Scratch(tmp_path)
        built = build(layout, Process(process, num_processes), "cpu", counts, file)
        built.prepare_training(Optimizer(training.optimizer, training.l1, training.l2))
        tensors = [
            tensor
            for weight in built.wide.values()
            for part in weight.parts.values()
            for tensor in part.tensors().values()
        ]
        in_file = [tensor for tensor in tensors if file_of(tensor) is file]
        assert size(in_file) == elsewhere_bytes(job, process)
        everything, kept = memory(replace(job, weights_in="device"), process), memory(job, process)
        assert kept.weights + kept.state == everything.weights + everything.state - size(in_file)
        assert (kept.window > 0) == (len(in_file) > 0)
        assert kept.window <= size(in_file)


def job_of(
    batch_size=64,
    units=128,
    width=10**7,
    optimizer="adam",
    num_threads=2,
    sample=None,
    entries=20.0,
):
    network = NetworkSpec.of(
        {
            "layers": [
                {"name": "in", "kind": "input", "field": "items"},
                {"name": "mid", "units": units},
                {"name": "out", "kind": "output", "field": "items", "sample": sample},
            ]
        }
    )
    training = TrainingSpec.of({"optimizer": optimizer, "batch_size": batch_size})
    return Job(
        bind(network, training, {"items": Width(width)}),
        {"items": entries},
        num_threads=num_threads,
        weights_in="disk",
    )


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("batch_size", [1, 5, 500])
@pytest.mark.parametrize("units", [128, 75])
def test_a_thread_holds_no_more_than_its_window(batch_size, units, optimizer, tmp_path, monkeypatch):
    """Counted: bytes of requests that are read and not yet written, whose place memory needs."""
    for name, num_bytes in (("REQUEST_BYTES", 2**16), ("BLOCK_BYTES", 1)):
        monkeypatch.setattr(tiles, name, num_bytes)
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 2**14)
    job, move, counting = job_of(batch_size, units, optimizer=optimizer), Scratch.move, Lock()
    file = Scratch(tmp_path)
    part = Part(file.zeros((40_000, units)), store=file)
    part.prepare(Optimizer(job.training.optimizer), remembers=False)
    held = most = 0

    def moving(file, descriptor, writes, address, place, size):
        nonlocal held, most
        with counting:
            held -= writes * size
            most = max(most, held)
            held += (not writes) * size
        move(file, descriptor, writes, address, place, size)

    monkeypatch.setattr(Scratch, "move", moving)
    for _ in part.tiles(40_000, tiles.tile_units(batch_size, "cpu"), updates=True):
        pass
    window = window_bytes(replace(job, num_threads=3), 0) - window_bytes(job, 0)
    assert 0 < most <= window
