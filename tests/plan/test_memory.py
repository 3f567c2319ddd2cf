"""Memory: weights and state to the byte as the network allocates them, also on a disk; the rest grows with
what it depends on; and what fits.
"""

from contextlib import nullcontext
from dataclasses import replace
from threading import Lock

import numpy as np
import pytest

from tests.parallel.matrix import EVERY_VALUE, SHARDS, WIDTHS, documents
from tests.parallel.split import DIVIDED, GATES, SPLIT
from tests.simulated.device import simulated
from tests.trainings import SETTINGS, books
from widenet.data.dataset import Dataset
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.model.storage import Scratch, file_of
from widenet.model.weight import Part as Rows
from widenet.parallel.exchange import Exchange
from widenet.plan import tiles
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import (
    check_fits,
    elsewhere_bytes,
    memory,
    smallest,
    streamed_bytes,
    window_bytes,
    with_room,
    with_snapshots,
)
from widenet.runs import train
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import loop


class Part(Exchange):
    """An exchange that holds the shards of one process of several, for building only."""

    def __init__(self, process, num_processes):
        super().__init__(SHARDS)
        self.shards = tiles.held(SHARDS, process, num_processes)


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def prepared(layout, process, num_processes, device="cpu", elsewhere=None):
    """The network of one process, with room for the optimizer's state."""
    training, network = layout.training, layout.network
    counts = {field: np.ones(layout.fields[field].width) for field in network.counted_fields}
    built = build(layout, Part(process, num_processes), device, counts, elsewhere)
    built.prepare_training(Optimizer(training.optimizer, training.l1, training.l2))
    return built


def layout_of(case):
    width = WIDTHS[case["data"]]
    fields = {"items": Width(width), "wishes": Width(width), "age": Width(3, kind="dense"), "label": Width(2)}
    return bind(*documents(case), fields)


def allocated(built, device="cpu"):
    """Bytes of weights and of state."""
    wholes = [weight.whole for weight in built.wide.values() if weight.whole is not None]
    assert (len(wholes) > 0) == (device == "cuda")
    parts = [part for weight in built.wide.values() if weight.whole is None for part in weight.parts.values()]
    parts, trunk = parts + wholes, list(built.trunk.values())
    lines = [
        line
        for output in built.outputs.values()
        if device == "cpu" and output.sampler is not None and output.sampler.ends is not None
        for line in output.sampler.ends.values()
    ]
    weights = [part.weight for part in parts] + [weight.tensor for weight in trunk]
    state = [tensor for part in [*parts, *trunk] for tensor in part.state.values()]
    moved = [part.moved for part in parts if part.moved is not None]
    return size([*weights, *built.damping.values(), *lines]), size(state + moved)


@pytest.mark.parametrize(("device", "num_processes"), [("cpu", 1), ("cpu", 3), ("cuda", 3)])
@pytest.mark.parametrize("case", EVERY_VALUE[::2], ids=str)
def test_weights_and_state_are_what_a_process_allocates(case, device, num_processes):
    layout = layout_of(case)
    job = Job(layout, num_processes=num_processes, device=device)
    for process in range(num_processes):
        with simulated() if device == "cuda" else nullcontext():
            found = allocated(prepared(layout, process, num_processes, device), device)
        needed = memory(job, process)
        assert (needed.weights, needed.state) == found


@pytest.mark.parametrize(
    ("case", "kind", "num_split"), [(SPLIT, "sparse", 4), (GATES, "sequence", 7), (DIVIDED, "sparse", 2)]
)
def test_a_process_allocates_its_shards_of_split_layers(case, kind, num_split):
    layers, training = case
    dense = {"age": Width(3, kind="dense"), "picture": Width(3 * 12 * 12, kind="dense")}
    specs = NetworkSpec.of({"layers": layers}), TrainingSpec.of({**training, "optimizer": "adam"})
    layout = bind(*specs, {"items": Width(31, kind), **dense})
    needed = memory(Job(layout, num_processes=3), 2)
    assert (needed.weights, needed.state) == allocated(prepared(layout, 2, 3))
    assert sum(weight.split for weight in layout.weights.values()) == num_split


@pytest.mark.parametrize("case", EVERY_VALUE[::3], ids=str)
def test_the_file_holds_what_the_plan_says_and_memory_the_rest(case, tmp_path):
    layout = layout_of(case)
    job = Job(layout, num_processes=3, weights_in="disk")
    for process in range(3):
        file = Scratch(tmp_path)
        built = prepared(layout, process, 3, elsewhere=file)
        parts = [part for weight in built.wide.values() for part in weight.parts.values()]
        tensors = [tensor for part in parts for tensor in part.tensors().values()]
        in_file = size([tensor for tensor in tensors if file_of(tensor) is file])
        assert in_file == elsewhere_bytes(job, process)
        everything, kept = memory(replace(job, weights_in="device"), process), memory(job, process)
        assert kept.weights + kept.state == everything.weights + everything.state - in_file
        assert (kept.window > 0) == (in_file > 0)
        assert kept.window <= in_file


def job(*, units=64, width=10**5, kind="sparse", training=(), output=(), **more):
    """A job of an autoencoder."""
    network = {
        "layers": [
            {"name": "in", "kind": "input", "field": "items"},
            {"name": "mid", "units": units},
            {"name": "out", "kind": "output", "field": "items", **dict(output)},
        ]
    }
    spec = TrainingSpec.of({"batch_size": 512, **dict(training)})
    return Job(bind(NetworkSpec.of(network), spec, {"items": Width(width, kind)}), **more)


SIGMOID = {"activation": "sigmoid"}


def test_a_small_training_holds_no_more_memory_back_than_its_weights_and_state():
    assert memory(job(width=100)).workspace < 2**24


@pytest.mark.parametrize(("kind", "line"), [("uniform", 0), ("popularity", 8)])
def test_a_sample_needs_room_for_itself_and_the_targets_whatever_the_width(kind, line):
    sample = {"sample": {"kind": kind, "units": 5000}}
    small, large = (memory(job(width=width, output=sample)) for width in (10**6, 10**8))
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


GB = 10**9


@pytest.mark.parametrize("device_bytes", [400 * GB, 100 * GB, 10 * GB])
def test_the_smallest_number_fits_and_the_next_smaller_does_not(device_bytes):
    large = job(units=100, width=10**8, training={"shards": 8, "optimizer": "adam"}, device="cuda")
    found = smallest(large, device_bytes)
    assert memory(found).total <= device_bytes
    for number in range(1, found.num_processes):
        assert memory(with_room(replace(found, num_processes=number), device_bytes)).total > device_bytes
    if found.training.shards > 8:
        half = found.training.shards // 2
        training = found.training.model_copy(update={"shards": half})
        fewer = replace(found, layout=replace(found.layout, training=training), num_processes=half)
        assert memory(fewer).total > device_bytes


@pytest.mark.parametrize("limit", [None, 1.0])
@pytest.mark.parametrize("device_bytes", [5 * GB, 18 * GB, 24 * GB])
def test_a_device_keeps_the_logits_that_it_has_room_for(device_bytes, limit):
    training = {"optimizer": "adam", "gradient_norm_limit": limit, "batch_size": 2048}
    asked = job(units=100, width=10**6, training=training, device="cuda")
    found, least = with_room(asked, device_bytes), replace(asked, kept_bytes=0)
    assert memory(least).total <= memory(found).total <= device_bytes
    check_fits(asked, memory(least).total)
    assert found.keeps(asked.network.outputs[0], 0) == (device_bytes > 22 * GB)
    assert with_room(replace(asked, device="cpu"), device_bytes) == replace(asked, device="cpu")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_job_has_snapshots_where_the_machine_has_room_for_those_of_all_its_processes(device):
    asked = job(training={"checkpoints": {"every_steps": 1}}, num_processes=2, device=device)
    needed = memory(asked)
    copied = memory(replace(asked, device="cpu"))  # without the rows that align shards on a device
    each = needed.total - needed.program if device == "cpu" else copied.weights + copied.state
    assert with_snapshots(asked, 2, 2 * each).in_background
    assert not with_snapshots(asked, 2, 2 * each - 1).in_background


def on_disk(batch_size=64, units=128, width=10**7, optimizer="adam", entries=20.0, output=(), **more):
    training = {"optimizer": optimizer, "batch_size": batch_size}
    more = {"num_threads": 2, "counted_entries": {"items": entries}, "weights_in": "disk", **more}
    return job(units=units, width=width, training=training, output=output, **more)


@pytest.fixture
def moves(monkeypatch):
    """Calls a function with the file, the descriptor, whether it writes, and the bytes of each request."""

    def watch(note):
        move, counting = Scratch.move, Lock()  # threads read and write

        def moving(file, descriptor, writes, address, place, size):
            with counting:
                note(file, descriptor, writes, size)
            move(file, descriptor, writes, address, place, size)

        monkeypatch.setattr(Scratch, "move", moving)

    return watch


@pytest.mark.parametrize(("units", "optimizer"), [(128, "adam"), (75, "sgd")])
@pytest.mark.parametrize("batch_size", [1, 500])
def test_a_thread_holds_no_more_than_its_window(batch_size, units, optimizer, moves, tmp_path, monkeypatch):
    """Counted: bytes of requests that are read and not yet written, whose place memory needs."""
    for name, num_bytes in (("REQUEST_BYTES", 2**16), ("BLOCK_BYTES", 1)):
        monkeypatch.setattr(tiles, name, num_bytes)
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 2**14)
    asked, file = on_disk(batch_size, units, optimizer=optimizer), Scratch(tmp_path)
    part = Rows(file.zeros((40_000, units)), store=file)
    part.prepare(Optimizer(asked.training.optimizer), remembers=False)
    held = most = 0

    def note(_, __, writes, size):
        nonlocal held, most
        held -= writes * size
        most = max(most, held)
        held += (not writes) * size

    moves(note)
    for _ in part.tiles(40_000, tiles.tile_units(batch_size, "cpu"), updates=True):
        pass
    window = window_bytes(replace(asked, num_threads=3), 0) - window_bytes(asked, 0)
    assert 0 < most <= window


OUT = {"name": "next", "kind": "output", "field": "items", "source": "taste"}


def ending(*outputs, **training):
    network = {"layers": [*SETTINGS["sgd, l2"][0]["layers"][:2], *({**OUT, **output} for output in outputs)]}
    return network, {"batch_size": 5, "shards": 3, **training}


STREAMED = {
    "nesterov": SETTINGS["nesterov"],
    "adam, tied": SETTINGS["adam, tied"],
    "linear_max": ending({"activation": "linear_max", "loss": "l2", "delta_norm": 0.05}, optimizer="adam"),
    "two outputs": ending({}, {**SIGMOID, "name": "more", "weights": {"layer": "next"}}, optimizer="rmsprop"),
    "limited rows": ending({**SIGMOID, "weight_norm": 0.5}, optimizer="rmsprop"),
}


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Books of which a shard's rows are whole pages."""
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=20, width=3 * 1024, titles=None)


@pytest.mark.parametrize("name", STREAMED)
def test_tiles_are_read_and_written_about_as_often_as_the_plan_says(name, wide, moves, tmp_path, monkeypatch):
    counts, steps, step = [0, 0], [], loop.train_step

    def stepped(*arguments):
        steps.append(True)
        loss = step(*arguments)
        steps[-1] = False
        return loss

    def note(file, descriptor, writes, size):
        counts[writes] += size * (descriptor == file.direct and any(steps))

    monkeypatch.setattr(loop, "train_step", stepped)
    moves(note)
    network, training = STREAMED[name]
    training = {**training, "epochs": 1, "evaluation": None, "keep": "last"}
    train(network, training, wide, tmp_path / "run", weights_in="disk")
    fields = Dataset.open(wide.path).manifest.fields
    layout = bind(NetworkSpec.of(network), TrainingSpec.of(training), fields)
    read, written = streamed_bytes(Job(layout, {"items": 0.0}, 20, weights_in="disk"), 0)
    assert len(steps) == 4
    assert counts[True] == written * 4 > 0
    assert read * 4 == pytest.approx(counts[False], rel=0.25)
