"""The kernels in Triton as a whole: they compile for an A100 and an H200, and a training that runs through
them gives what torch's gives.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent.parent
LAUNCHERS = sorted(
    path.stem
    for path in (ROOT / "widenet/kernels/triton").glob("*.py")
    if "_kernel" in path.read_text("utf-8")
)
TRAINING = """
import torch
from widenet import Network, Training, dataset_from_lists, train
from widenet.kernels.native import triton_runs
print(triton_runs(torch.device("cpu")))
rows = [[(7 * e + 3 * i * i) % 19 for i in range(1 + e % 4)] for e in range(12)]
dataset_from_lists("data", [sorted(set(row)) for row in rows], width=19)
for activation in ("softmax", "sigmoid"):
    output = {"name": "next", "kind": "output", "field": "items", "activation": activation}
    layers = [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 5}, output]
    network = Network.of({"layers": layers})
    training = Training.of({"epochs": 1, "batch_size": 7, "shards": 2, "optimizer": "rmsprop"})
    model = train(network, training, "data", f"run-{activation}", device="cpu")
    wide = [part.weight for weight in model.network.wide.values() for part in weight.parts.values()]
    print(model.fingerprint(), *torch.cat([weight.flatten() for weight in wide]).tolist())
    print(*(found.item for found in model.recommend(["3", "5"], k=4)))
"""


def program(code, folder, **environment):
    """What a program prints, its lines, in a folder of its own; its kernels are compiled anew."""
    folder.mkdir(exist_ok=True)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    own = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(folder / "cache"), **environment}
    return subprocess.run(
        [sys.executable, *code], env=own, cwd=folder, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton runs on Linux only")
@pytest.mark.parametrize("words", [[], pytest.param(["all"], marks=pytest.mark.long)], ids=str)
def test_every_kernel_compiles_for_an_a100_and_an_h200_and_spills_nothing(words, tmp_path):
    compiled = program(["-m", "tests.kernels.hopper", *words], tmp_path)
    assert sorted({*compiled}) == sorted(f"{name} {number}" for name in LAUNCHERS for number in (80, 90))


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton runs on Linux only")
@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_gpu.py trains through them on the device")
def test_a_training_through_the_kernels_is_that_of_torch(tmp_path, monkeypatch, capsys):
    environment = {"TRITON_INTERPRET": "1", "WIDENET_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ours = program(["-c", TRAINING], tmp_path / "ours", **environment)
    monkeypatch.chdir(tmp_path)
    exec(TRAINING, {})
    torchs = capsys.readouterr().out.splitlines()
    assert (ours.pop(0), torchs.pop(0)) == ("True", "False")
    for mine, theirs in zip(ours[::2], torchs[::2], strict=True):
        (_, *mine), (_, *theirs) = mine.split(), theirs.split()
        assert [float(number) for number in mine] == pytest.approx(
            [float(number) for number in theirs], rel=2e-6, abs=2e-6
        )
    assert ours[1::2] == torchs[1::2]
