"""What can befall the files of a run: one sentence that names the place, and the last good checkpoint
stays and is found.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mistakes import mistake
from tests.trainings import UNTIED as NETWORK
from tests.trainings import After, Heard, books, document
from widenet.errors import CheckpointError
from widenet.runs import Model, train

ROOT = Path(__file__).parent.parent
STEPS = 5
TRAINING = document("momentum", shards=2, evaluation=None, checkpoints={"min_seconds": 0, "keep_last": 3})
SHARD = "wide-01.shard-0001-of-0002.safetensors"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("faults") / "data", width=400)


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return train(NETWORK, TRAINING, data, tmp_path_factory.mktemp("undisturbed") / "run").fingerprint()


def cut_short(data, out, steps):
    """A run that was interrupted after some steps, with a checkpoint of that moment."""
    with pytest.raises(KeyboardInterrupt):
        train(NETWORK, TRAINING, data, out, interrupted=After(steps))


@pytest.fixture
def run(data, tmp_path):
    """A run with a checkpoint after its first epoch, and one after two steps more."""
    cut_short(data, tmp_path / "run", STEPS + 2)
    return tmp_path / "run"


def flipped(newest):
    content = bytearray((newest / SHARD).read_bytes())
    content[len(content) // 2] ^= 1
    (newest / SHARD).write_bytes(content)


def missing(newest):
    (newest / SHARD).unlink()


@pytest.mark.parametrize("damage", [flipped, missing])
def test_a_damaged_checkpoint_is_named_and_the_last_good_one_serves(damage, data, run, undisturbed):
    shutil.copytree(data.path, run.with_name("data"))
    older, newest, _ = sorted((run / "checkpoints").iterdir())
    damage(newest)
    with mistake(CheckpointError, place=SHARD):
        Model.load(run)
    heard = Heard()
    assert train(NETWORK, TRAINING, data, run, resume=True, report=heard).fingerprint() == undisturbed
    assert [older.name in text for text in heard.said] == [True]


DISK = """
set -e
mount -t tmpfs -o size=$SIZE tmpfs "$PLACE"
[ -z "$FILLED" ] || dd if=/dev/zero of="$PLACE/filling" bs=4096 status=none 2>/dev/null || true
status=0
"$PYTHON" -m widenet train network.json training.json --data data --out "$OUT" $RESUME || status=$?
cp -r "$OUT" left
exit $status
"""
"""A training with a small disk of its own at a place, in a mount namespace that ends with it; what it
leaves is copied to `left`.
"""


@pytest.fixture
def on_small_disk(data, tmp_path):
    """Runs the command line with a real disk of some size at a place."""
    probe = subprocess.run(["unshare", "-Urm", "true"], capture_output=True, text=True, check=False)
    if probe.returncode:
        pytest.skip(f"a mount namespace cannot be made here: {probe.stderr.strip()}")
    shutil.copytree(data.path, tmp_path / "data")
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))

    def run(place, size, out, filled=False, resume=False):
        facts = {"SIZE": str(size), "PLACE": place, "OUT": out, "FILLED": "1" if filled else ""}
        facts |= {"RESUME": "--resume" if resume else "", "PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        words, own = ["unshare", "-Urm", "sh", "-c", DISK], {**os.environ, **facts}
        return subprocess.run(words, cwd=tmp_path, env=own, capture_output=True, text=True, check=False)

    return run


def test_a_training_goes_on_where_the_disk_under_tensorboard_is_full(
    data, undisturbed, on_small_disk, tmp_path
):
    cut_short(data, tmp_path / "run", STEPS + 2)
    ended = on_small_disk("run/tensorboard", 16_384, "run", filled=True, resume=True)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("No space left") == ended.stderr.count("run/tensorboard cannot be written") == 1
    assert "Traceback" not in ended.stderr
    assert Model.load(tmp_path / "left").fingerprint() == undisturbed


def test_a_disk_that_fills_up_under_the_run_ends_the_training_and_leaves_the_last_checkpoint(
    data, undisturbed, on_small_disk, tmp_path
):
    cut_short(data, tmp_path / "other", STEPS + 2)
    first, *_ = sorted((tmp_path / "other" / "checkpoints").iterdir())
    checkpoint_bytes = sum(4096 * -(-path.stat().st_size // 4096) for path in first.iterdir())
    (tmp_path / "disk").mkdir()
    ended = on_small_disk("disk", 2 * checkpoint_bytes, "disk/run")
    assert ended.returncode == 2, ended.stderr
    assert re.search(r"disk/run\S* cannot be written", ended.stderr)
    assert "Traceback" not in ended.stderr
    assert [path.name for path in (tmp_path / "left" / "checkpoints").glob("*epoch-*")] == [
        "epoch-00001-step-000000000"
    ]
    assert train(NETWORK, TRAINING, data, tmp_path / "left", resume=True).fingerprint() == undisturbed


@pytest.mark.parametrize("resume", [True, False])
def test_a_run_that_is_being_trained_is_not_written_by_another_training(resume, data, undisturbed, tmp_path):
    refused = []

    def again(*_):
        with pytest.raises(CheckpointError):
            train(NETWORK, TRAINING, data, tmp_path / "run", resume=resume, interrupted=lambda: False)
        refused.append(True)

    found = train(NETWORK, TRAINING, data, tmp_path / "run", after_epoch=again)
    assert (len(refused), found.fingerprint()) == (TRAINING["epochs"], undisturbed)
