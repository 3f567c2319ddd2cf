"""Trainings whose weights are in files have the bits of those in memory, killed or not."""

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from benchmarks.cgroups import capped, peak, within
from tests.mistakes import mistake
from tests.parallel.workers import Group
from tests.scripts import Script
from tests.trainings import DEEP, SETTINGS, UNTIED, After, books, document, outcome
from widenet.errors import OptionError
from widenet.model.storage import Scratch, file_of
from widenet.plan import tiles
from widenet.runs import train

WIDTH = 4_500
"""Features: rows of several tiles, and of more pages than a chunk has."""


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("books") / "data", width=WIDTH, titles=None)


@pytest.fixture
def small_chunks(monkeypatch):
    """Requests of two pages, which are counted, and six tiles in a shard."""
    monkeypatch.setattr(tiles, "REQUEST_BYTES", 2 * 4096)
    monkeypatch.setitem(tiles.TILE_CELLS, "cpu", 1)
    moved, move = [], Scratch.move

    def counted(file, descriptor, writes, address, place, size):
        moved.extend([place] * (descriptor == file.direct))
        move(file, descriptor, writes, address, place, size)

    monkeypatch.setattr(Scratch, "move", counted)
    return moved


NEXT = UNTIED["layers"][-1]


def ending(*outputs):
    return {"layers": [*UNTIED["layers"][:-1], *outputs]}


*HIDDEN, TIED_NEXT = SETTINGS["adam, tied"][0]["layers"]
TIED_COSINE = {"layers": [*HIDDEN, {**TIED_NEXT, "cosine": {}}]}
TAKEN = (
    "sgd, l2",
    "nesterov",
    "adadelta",
    "adam, tied",
    "rmsprop, sampled",
    "sgd, l2, tied, sampled",
    "momentum, on the input",
    "adagrad by rows",
)
MORE = {
    "momentum": SETTINGS["momentum"],
    "adam, one by one": (DEEP, document("adam", batch_size=1, evaluation=None)),
    "adamw, halves": (UNTIED, document("adamw", precision="bfloat16")),
    "adam, cosine": (ending({**NEXT, "cosine": {}}), document("adam")),
    "adam, tied cosine": (TIED_COSINE, document("adam")),
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
    if name == "momentum, on the input":  # whose weight is as high as wide, and is never in a file
        data = books(tmp_path / "narrow", width=WIDTH // 10, titles=None)
    train(*settings(name), data, tmp_path / "memory")
    model = train(*settings(name), data, tmp_path / "disk", weights_in="disk")
    assert outcome(tmp_path / "disk") == outcome(tmp_path / "memory")
    for wide in model.network.wide.values():
        part = wide.parts[0]
        tensors = [part.weight, *(state for state in part.state.values() if state.shape[1:] != (1,))]
        in_file = {file_of(tensor) is not None for tensor in tensors}
        assert in_file == {part.weight.dim() == 2 and not part.by_columns}
    assert small_chunks or name == "momentum, on the input"


def test_a_training_goes_on_from_memory_to_disk_and_back(data, tmp_path, small_chunks):
    documents = settings("momentum")
    train(*documents, data, tmp_path / "memory")
    out = tmp_path / "run"
    for resumes, place in enumerate(["disk", "device"]):
        with pytest.raises(KeyboardInterrupt):
            train(*documents, data, out, resume=resumes > 0, weights_in=place, interrupted=After(3))
    train(*documents, data, out, resume=True, weights_in="disk")
    assert outcome(out) == outcome(tmp_path / "memory")
    assert small_chunks


def _trained(out, data, name):
    model = train(*settings(name), data, out, weights_in="disk")
    in_file = all(file_of(part.weight) is not None for part in model.network.wide["next"].parts.values())
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
made = step._launched
count = 0
def counted(*arguments):
    global count
    count += 1
    if count == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return made(*arguments)
step._launched = counted
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


@pytest.mark.parametrize("make", [lambda _: None, lambda path: path.write_text("")], ids=["none", "a file"])
def test_a_folder_that_takes_no_file_is_refused_before_anything_is_written(make, data, tmp_path):
    make(tmp_path / "files")
    with mistake(OptionError):
        train(*SETTINGS["momentum"], data, tmp_path / "run", weights_in="disk", scratch=tmp_path / "files")
    assert not (tmp_path / "run").exists()


CAP, COLUMNS_OF_LARGE = 512 * 2**20, 256
TRAINED = """
import sys
from widenet import train
print(train(*sys.argv[1:5], weights_in=sys.argv[5], device="cpu").fingerprint())
"""


@pytest.mark.parametrize(
    "times", [pytest.param(1.25, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.long)]
)
def test_weights_larger_than_memory_train_to_the_bits_of_a_training_without_a_cap(times, tmp_path):
    """Weights and state in a file; resident, the plan refuses them and names the option."""
    width = int(times * CAP) // (2 * 3 * 4 * COLUMNS_OF_LARGE) + 1
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

    expected = trained("memory", "device")  # first, since compiling takes more memory than the cap leaves
    with ExitStack() as stack:
        try:
            group = stack.enter_context(capped(CAP))
        except OSError as error:
            pytest.skip(f"no control group can be made: {error}")
        large = trained("disk", "disk", group)
        assert large.returncode == 0, large.stderr
        assert peak(group) <= CAP
        refused = trained("refused", "device", group)
    assert "memory of this machine: must have" in refused.stderr
    assert large.stdout == expected.stdout
    shutil.rmtree(tmp_path)
