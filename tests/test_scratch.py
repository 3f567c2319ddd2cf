"""Tensors in files hold what is written to them, in memory or not, and a file ends with them; trainings whose
weights are in files have the bits of those in memory, killed or not.
"""

import gc
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from concurrent.futures import wait
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from benchmarks.cgroups import capped, peak, within
from tests.parallel.workers import Group
from tests.scripts import Script
from tests.test_runs import After, outcome
from tests.trainings import DEEP, SETTINGS, UNTIED, Heard, books, document
from widenet import scratch, tensor_file
from widenet.errors import CapacityError, OptionError
from widenet.model import sweep
from widenet.model.sweep import Sweep
from widenet.plan import tiles
from widenet.runs import train
from widenet.scratch import Scratch, fetch, fetch_rows, release, scratch_of, unmap

ROWS, COLUMNS = 10_000, 33


@pytest.fixture
def file(tmp_path):
    return Scratch(tmp_path)


@pytest.fixture
def numbers():
    return torch.arange(ROWS * COLUMNS, dtype=torch.float32).view(ROWS, COLUMNS)


def resident(tensor):
    """The bytes of a tensor's mapping that memory holds, as the kernel counts them."""
    first = tensor.data_ptr()
    maps = Path("/proc/self/smaps").read_text()
    (size,) = re.findall(rf"^{first:x}-.*?^Rss: +(\d+) kB", maps, re.MULTILINE | re.DOTALL)
    return 1024 * int(size)


def stored(file, tensor, offset=0):
    """The numbers of the file itself, as the system reads them."""
    data = os.pread(file.descriptor, tensor.numel() * 4, offset)
    return torch.frombuffer(bytearray(data), dtype=torch.float32).view(tensor.shape)


def test_a_tensor_is_zeros_at_first_and_the_folder_shows_no_file(file, tmp_path):
    tensor = file.zeros((ROWS, COLUMNS))
    assert tensor.shape == (ROWS, COLUMNS)
    assert not tensor.any()
    assert [*tmp_path.iterdir()] == []
    assert scratch_of(tensor[5:7]) is file
    assert scratch_of(torch.zeros(3)) is None
    assert file.zeros((0, 4)).shape == (0, 4)


def test_rows_that_are_let_go_of_leave_memory_and_come_back_as_they_were(file, numbers):
    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    whole = resident(tensor)
    assert whole >= 4 * ROWS * COLUMNS
    release(tensor[: ROWS // 2])
    assert whole // 2 - 2 * 4096 <= resident(tensor) <= whole // 2 + 2 * 4096
    assert torch.equal(stored(file, tensor[: ROWS // 4]), numbers[: ROWS // 4])
    fetch(tensor[: ROWS // 2])
    assert resident(tensor) == whole
    assert torch.equal(tensor, numbers)
    unmap(tensor)
    assert resident(tensor) == 0
    assert torch.equal(tensor, numbers)


def test_every_row_is_let_go_of_once_by_parts_whose_borders_lie_within_pages(file, numbers):
    tensor = file.zeros((ROWS, COLUMNS))
    for start in range(0, ROWS, 777):
        tensor[start : start + 777] = numbers[start : start + 777]
        release(tensor[start : start + 777])
        assert resident(tensor) <= 4096
    assert resident(tensor) == 0
    fetch(tensor, writes=True)
    assert torch.equal(tensor, numbers)


def test_rows_are_read_without_those_around_them(file, numbers):
    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    release(tensor)
    rows = torch.tensor([0, 1, 500, 9_999])
    fetch_rows(tensor, rows)
    assert torch.equal(tensor[rows], numbers[rows])
    fetch_rows(tensor, rows[:0])
    fetch_rows(numbers, rows)


def test_tensors_of_one_file_do_not_touch_each_other(file, numbers):
    first, second = file.zeros((3, 3)), file.zeros((ROWS, COLUMNS))
    second.copy_(numbers)
    first.fill_(7)
    release(second)
    release(first)
    assert torch.equal(stored(file, second, 2**21), numbers)
    assert bool((first == 7).all())


def test_what_ends_with_a_tensor_does_not_touch_memory_that_is_made_later(file, numbers):
    opened = set()
    for _ in range(5):
        other = Scratch(file.folder)
        for _ in range(3):
            other.zeros((ROWS, COLUMNS)).copy_(numbers)
        del other
        gc.collect()
        opened.add(sum(1 for _ in Path("/proc/self/fd").iterdir()))
        again = numbers.clone()
        release(again)
        assert torch.equal(again, numbers)
    assert scratch._regions == []
    assert len(opened) == 1


def test_a_disk_without_room_is_refused(file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(
        CapacityError, match=r"has no room for 40,000 bytes of weights and optimizer state\. Free some"
    ):
        file.zeros((100, 100))


def test_a_disk_that_does_not_take_what_is_written_behind_ends_the_training(file, monkeypatch):
    tensor = file.zeros((ROWS, COLUMNS))
    monkeypatch.setattr(scratch, "_libc", Failing(scratch._libc))
    with pytest.raises(CapacityError, match="does not take the weights that are to lie there: "):
        release(tensor)


def test_no_checkpoint_holds_rows_that_the_disk_did_not_take(file, monkeypatch, tmp_path):
    tensor = file.zeros((ROWS, COLUMNS))
    with monkeypatch.context() as patch:
        patch.setattr(scratch, "_libc", Failing(scratch._libc))
        with Sweep([tensor], writes=True) as rows:
            rows.at(0, ROWS)
        wait([*file.releasing])
    with pytest.raises(CapacityError, match="does not take the weights"):
        tensor_file.write(tmp_path / "weights", {"weight": tensor})
    assert not (tmp_path / "weights").exists()


class Failing:
    """The C library, of which writing fails."""

    def __init__(self, library):
        self.madvise = library.madvise

    def sync_file_range(self, *_):
        return -1


WIDTH = 4_500
"""Features: rows of several tiles, and of more pages than a chunk has."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", width=WIDTH, titles=None)


@pytest.fixture
def small_chunks(monkeypatch):
    """Chunks of six pages, whose sweeps are counted, and six tiles in a shard."""
    monkeypatch.setattr(sweep, "CHUNK_BYTES", 6 * 4096)
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 1)
    released, release = [], sweep.release

    def counted(tensor):
        released.append(tensor)
        release(tensor)

    monkeypatch.setattr(sweep, "release", counted)
    return released


NEXT = UNTIED["layers"][-1]


def ending(*outputs):
    return {"layers": [*UNTIED["layers"][:-1], *outputs]}


DRIFTING = {
    "layers": [*SETTINGS["sgd, drifting"][0]["layers"][:-1], {**NEXT, "activation": "linear", "loss": "l2"}]
}
TAKEN = (
    "sgd, l2",
    "nesterov",
    "adadelta",
    "adam, tied",
    "rmsprop, sampled",
    "sgd, l2, tied, sampled",
    "momentum, on the input",
)
MORE = {
    "momentum": SETTINGS["momentum"],
    "sgd, drifting": (DRIFTING, document({"kind": "sgd", "learning_rate": 0.2}, l2=0.02)),
    "adam, one by one": (DEEP, document("adam", batch_size=1, evaluation=None)),
    "adamw, halves": (UNTIED, document("adamw", precision="bfloat16")),
    "adam, cosine": (ending({**NEXT, "cosine": {}}), document("adam")),
    "adam, linear_max": (
        ending({**NEXT, "activation": "linear_max", "loss": "l2", "delta_norm": 0.05}),
        document("adam"),
    ),
    "rmsprop, two outputs": (
        ending(
            NEXT,
            {
                **NEXT,
                "name": "again",
                "source": "taste",
                "activation": "sigmoid",
                "weights": {"layer": "next"},
            },
        ),
        document("rmsprop", evaluation={"metric": "ndcg@5", "output": "next"}),
    ),
}
ALL = {name: SETTINGS[name] for name in TAKEN} | MORE


def settings(name):
    network, training = ALL[name]
    return network, {**training, "epochs": 2}


@pytest.mark.parametrize("name", ALL)
def test_a_training_has_the_bits_losses_and_metrics_of_one_in_memory(name, data, tmp_path, small_chunks):
    train(*settings(name), data, tmp_path / "memory")
    model = train(*settings(name), data, tmp_path / "disk", weights_in="disk")
    assert outcome(tmp_path / "disk") == outcome(tmp_path / "memory")
    for wide in model.network.wide.values():
        part = wide.parts[0]
        tensors = [part.weight, *(state for name, state in part.state.items() if name != "moved")]
        in_file = {scratch.scratch_of(tensor) is not None for tensor in tensors}
        assert in_file == {part.weight.dim() == 2 and not part.by_columns}
    assert small_chunks or name == "momentum, on the input"


@pytest.mark.parametrize("name", ["momentum", "sgd, drifting"])
def test_a_training_goes_on_from_memory_to_disk_and_back(name, data, tmp_path, small_chunks):
    train(*settings(name), data, tmp_path / "memory")
    out = tmp_path / "run"
    for resumes, place in enumerate(["disk", "device"]):
        with pytest.raises(KeyboardInterrupt):
            train(*settings(name), data, out, resume=resumes > 0, weights_in=place, interrupted=After(3))
    train(*settings(name), data, out, resume=True, weights_in="disk")
    assert outcome(out) == outcome(tmp_path / "memory")
    assert small_chunks


def _trained(out, data, name):
    model = train(*settings(name), data, out, weights_in="disk")
    in_file = all(
        scratch.scratch_of(part.weight) is not None for part in model.network.wide["next"].parts.values()
    )
    return model.fingerprint(), len(model.network.wide["next"].parts), in_file


def test_two_processes_train_to_the_bits_of_one(data, tmp_path):
    alone = train(*settings("adamw, halves"), data, tmp_path / "memory").fingerprint()
    with Group(2, tmp_path) as group:
        assert group(_trained, tmp_path / "run", data.path, "adamw, halves") == [
            (alone, 2, True),
            (alone, 1, True),
        ]


KILLED = """
import os, signal, sys
from widenet.training import step
from widenet.runs import train
made = step.launched_step
count = 0
def counted(*arguments):
    global count
    count += 1
    if count == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return made(*arguments)
step.launched_step = counted
train(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], weights_in="disk", scratch=sys.argv[5])
"""


def test_a_killed_training_leaves_no_file_and_resumes_to_the_same_bits(data, tmp_path):
    documents = settings("adam, tied")
    train(*documents, data, tmp_path / "memory")
    for name, document_ in zip(("network.json", "training.json"), documents, strict=True):
        (tmp_path / name).write_text(json.dumps(document_))
    (tmp_path / "files").mkdir()
    words = [
        tmp_path / "network.json",
        tmp_path / "training.json",
        data.path,
        tmp_path / "run",
        tmp_path / "files",
    ]
    script = Script(KILLED, tmp_path / "said", words=map(str, words))
    said = script.communicate(60)
    assert script.returncode == -signal.SIGKILL, said
    assert [*(tmp_path / "files").iterdir()] == []
    train(*documents, data, tmp_path / "run", resume=True, weights_in="disk", scratch=tmp_path / "files")
    assert outcome(tmp_path / "run") == outcome(tmp_path / "memory")


def test_checkpoints_within_an_epoch_are_written_before_training_goes_on(data, tmp_path):
    network, training = settings("momentum")
    often, heard = {**training, "checkpoints": {"every_steps": 2}}, Heard()
    train(network, often, data, tmp_path / "disk", weights_in="disk", report=heard)
    assert heard.said == [
        "These weights would also fit into memory, where training is faster.",
        "Weights on a disk have no second copy: training waits while a checkpoint is written.",
    ]
    train(network, training, data, tmp_path / "memory")
    assert outcome(tmp_path / "disk") == outcome(tmp_path / "memory")


@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.write_text("")], ids=["none", "a file"])
def test_a_folder_that_takes_no_file_is_refused_before_anything_is_written(make, data, tmp_path):
    make(tmp_path / "files")
    with pytest.raises(
        OptionError,
        match=r"files must be a folder that takes files, for weights on a disk: .*\. Name another",
    ):
        train(*SETTINGS["momentum"], data, tmp_path / "run", weights_in="disk", scratch=tmp_path / "files")
    assert not (tmp_path / "run").exists()


CAP, COLUMNS_OF_LARGE = 400 * 2**20, 256
TRAINED = """
import sys
from widenet import train
print(train(*sys.argv[1:5], weights_in=sys.argv[5], device="cpu").fingerprint())
"""


@pytest.mark.parametrize("times", [2, pytest.param(4, marks=pytest.mark.long)])
def test_weights_larger_than_memory_train_to_the_bits_of_a_training_without_a_cap(times, tmp_path):
    """Weights and state in a file; resident, the plan refuses them and names the option."""
    width = times * CAP // (2 * 3 * 4 * COLUMNS_OF_LARGE) + 1
    gaussian = {"initializer": "gaussian"}
    network = {
        "layers": [
            {"name": "history", "kind": "input", "field": "items"},
            {"name": "taste", "units": COLUMNS_OF_LARGE, "activation": "tanh", **gaussian},
            {"name": "next", "kind": "output", "field": "items", **gaussian},
        ]
    }
    for name, words in (
        ("network", network),
        ("training", {"epochs": 1, "batch_size": 64, "optimizer": "adam"}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(words))
    books(tmp_path / "data", num_examples=128, width=width, titles=None)

    def trained(out, place, group=None):
        command = [sys.executable, "-c", TRAINED, "network.json", "training.json", "data", out, place]
        return subprocess.run(
            command if group is None else within(group, command),
            cwd=tmp_path,
            env=os.environ | {"WIDENET_THREADS": "2"},
            capture_output=True,
            text=True,
        )

    with ExitStack() as stack:
        try:
            group = stack.enter_context(capped(CAP))
        except OSError as error:
            pytest.skip(f"no control group can be made: {error}")
        large = trained("disk", "disk", group)
        assert large.returncode == 0, large.stderr
        assert peak(group) <= CAP
        refused = trained("refused", "device", group)
    assert "keep the weights on a disk (`weights_in='disk'`)" in refused.stderr
    assert large.stdout == trained("memory", "device").stdout
    shutil.rmtree(tmp_path)
