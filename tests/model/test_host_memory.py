"""Wide weights in the host's memory: on a simulated device they have the bits of weights on the device, and
no more crosses than a step needs.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.parallel.matrix import EVERY_VALUE, WIDTHS, documents
from tests.plan.test_memory import Part, size
from tests.runs.test_place_of_weights import ALL
from tests.simulated import pinned
from tests.simulated.cases import CASES, trained, with_loss
from tests.simulated.device import OnDevice, simulated
from tests.trainings import DEEP, SETTINGS, WIDTH, After, Heard, books, document
from widenet import Model
from widenet.data.dataset import Dataset
from widenet.errors import CapacityError
from widenet.kernels import native
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.model.storage import HostMemory
from widenet.plan import tiles
from widenet.plan.binding import bind
from widenet.plan.layout import Job, Width
from widenet.plan.memory import elsewhere_bytes, memory
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training import loop

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a real device is at hand")


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """A shard has three tiles; without Triton, a simulated device computes by torch alone."""
    for device in ("cpu", "cuda"):
        monkeypatch.setitem(tiles.TILE_CELLS, device, 1)
    monkeypatch.setitem(tiles.SEARCHED_CELLS, "cuda", 4 * tiles.RANKED_TOGETHER)
    monkeypatch.setattr(tiles, "LEAST_UNITS", 4)
    monkeypatch.setattr(tiles, "LEAST_SEARCHED", 4)
    monkeypatch.setattr(native, "has_triton", lambda: False)
    monkeypatch.setattr(native, "library", lambda: None)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", num_examples=12)


NAMES = (
    "momentum",
    "nesterov",
    "sgd, l2, tied, sampled",
    "adagrad, tied",
    "adagrad by rows",
    "cross_entropy",
    "l2",
    "adam, cosine",
    "rmsprop, two outputs",
    "adam, linear_max",
    "momentum, on the input",
)
"""Each optimizer and each way to pass over tiles: hinge passes as cross_entropy does, and l1 under relu_max
as linear_max does; tests/test_simulated_gpu.py trains with them on the device.
"""
TAKEN = CASES | ALL
WITHOUT = {"momentum, on the input"}


@pytest.mark.parametrize("name", NAMES)
def test_a_training_has_the_bits_of_one_on_a_cpu_and_answers_as_on_the_device(name, data, tmp_path):
    fingerprint = trained(TAKEN[name], data, tmp_path / "cpu", "cpu", epochs=1).fingerprint()
    with simulated():
        model = trained(TAKEN[name], data, tmp_path / "host", "cuda", epochs=1, weights_in="host")
        assert model.fingerprint() == fingerprint
        expected = Model.load(tmp_path / "host", device="cuda")
        asked = {"k": 4, "output": "next"}
        recommended = [each.recommend(["3", "5"], **asked) for each in (model, expected)]
        assert recommended[0] == recommended[1]
        parts = [part for weight in model.network.wide.values() for part in weight.parts.values()]
        for part in parts:
            there = {isinstance(tensor, OnDevice) for tensor in (part.weight, *part.state.values())}
            assert there == {part.weight.dim() == 1 or part.by_columns}
        assert any(pinned.is_pinned(part.weight) for part in parts) == (name not in WITHOUT)


@pytest.fixture
def in_steps(monkeypatch):
    """The bytes that cross in steps, and the number of steps."""
    counts, step = {"in": 0, "out": 0, "steps": 0}, loop.train_step

    def counted(*arguments):
        pinned.crossed.clear()
        loss = step(*arguments)
        for (direction, place), num_bytes in pinned.crossed.items():
            counts[direction] += num_bytes * place.startswith("model/storage.py")
        counts["steps"] += 1
        return loss

    monkeypatch.setattr(loop, "train_step", counted)
    return counts


@pytest.mark.parametrize(
    ("activation", "loss", "passes"),
    [("sigmoid", "cross_entropy", 0), ("linear", "l2", 0), ("softmax", "cross_entropy", 1)],
)
def test_a_step_copies_weights_and_state_once_and_touched_rows_alone(
    activation, loss, passes, data, tmp_path, in_steps
):
    """A softmax takes one more pass over the weights, for its divisor, and twice the rows of its targets."""
    written = with_loss(activation, loss), document("adam", evaluation=None, batch_size=12, keep="last")
    with simulated():
        trained(written, data, tmp_path / "run", "cuda", epochs=1, weights_in="host")
    batch = Dataset.open(data.path).rows("items", np.arange(12), "train")
    weight, state = 4 * 5, 2 * 4 * 5
    num_touched = len(set(batch.indices.tolist()))
    moved = num_touched * (weight + state)
    assert 0 < num_touched < WIDTH
    assert in_steps["steps"] == 1
    again = 2 * passes * len(batch.indices) * weight
    assert in_steps["in"] == WIDTH * ((1 + passes) * weight + state) + moved + again
    assert in_steps["out"] == WIDTH * (weight + state) + moved


@pytest.mark.parametrize("case", EVERY_VALUE[::9], ids=str)
@pytest.mark.parametrize("process", [0, 2])
def test_host_and_device_hold_what_the_plan_says(case, process):
    network, training = documents(case)
    width = WIDTHS[case["data"]]
    fields = {"items": Width(width), "wishes": Width(width), "age": Width(3, kind="dense"), "label": Width(2)}
    layout = bind(network, training, fields)
    job = Job(layout, num_processes=3, device="cuda", weights_in="host")
    counts = {field: np.ones(width) for field in network.counted_fields}
    with simulated():
        device = torch.device("cuda", 0)
        built = build(layout, Part(process, 3), device, counts, HostMemory(device))
        built.prepare_training(Optimizer(training.optimizer, training.l1, training.l2))
        wholes = [weight.whole for weight in built.wide.values() if weight.store is not None]
        tensors = [tensor for whole in wholes for tensor in whole.tensors().values()]
        assert not any(isinstance(tensor, OnDevice) for tensor in tensors)
    assert size(tensors) == elsewhere_bytes(job, process)
    everything, kept = memory(replace(job, weights_in="device"), process), memory(job, process)
    assert kept.weights + kept.state == everything.weights + everything.state - size(tensors)


def test_a_training_goes_on_from_the_device_to_the_host_and_back(data, tmp_path):
    written = SETTINGS["rmsprop, sampled"]
    expected = trained(written, data, tmp_path / "whole", "cpu").fingerprint()
    with simulated():
        for resumes, place in enumerate(["host", "device"]):
            with pytest.raises(KeyboardInterrupt):
                trained(
                    written,
                    data,
                    tmp_path / "run",
                    "cuda",
                    resume=resumes > 0,
                    weights_in=place,
                    interrupted=After(2),
                )
        model = trained(written, data, tmp_path / "run", "cuda", resume=True, weights_in="host")
        assert model.fingerprint() == expected


def free_bytes(monkeypatch, num_bytes):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _=None: (num_bytes, 2**34))


def test_a_device_that_is_too_small_leaves_weights_with_the_host_and_says_so(data, tmp_path, monkeypatch):
    """Weights and state would take most of what is free."""
    network = {"layers": [*DEEP["layers"][:1], {"name": "taste", "units": 2048}, *DEEP["layers"][3:]]}
    written = network, document("adam", evaluation=None)
    layout = bind(
        NetworkSpec.of(network), TrainingSpec.of(written[1]), Dataset.open(data.path).manifest.fields
    )
    job = Job(layout, Dataset.open(data.path).manifest.entries_per_example, 12, device="cuda")
    needed = memory(replace(job, weights_in="host", kept_bytes=0))
    free = needed.total - needed.program
    assert free < memory(replace(job, kept_bytes=0)).total - needed.program
    with simulated():
        expected = trained(written, data, tmp_path / "device", "cuda", epochs=1).fingerprint()
        free_bytes(monkeypatch, free)
        heard = Heard()
        model = trained(written, data, tmp_path / "chosen", "cuda", epochs=1, report=heard)
        assert model.network.wide["next"].store is not None
        assert model.fingerprint() == expected
        (said,) = [line for line in heard.said if "memory has no room for" in line]
        assert said.startswith("Weights in the host's memory: memory has no room for ")
        with pytest.raises(CapacityError):
            trained(written, data, tmp_path / "refused", "cuda", epochs=1, weights_in="device")
        free_bytes(monkeypatch, free - 1)
        with pytest.raises(CapacityError, match="memory of a device"):
            trained(written, data, tmp_path / "refused", "cuda", epochs=1, weights_in="host")
        assert not (tmp_path / "refused").exists()
