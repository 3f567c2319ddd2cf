"""Kernels that helper processes compile: they are found on disk, and nobody depends on a helper."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from widenet.kernels import compiled
from widenet.kernels.ahead import compile_ahead, compile_usual
from widenet.kernels.compiled import leave_to, made_once
from widenet.spec.usual import usual_network, usual_training

ROOT = Path(__file__).parent.parent.parent

AHEAD = """
import sys
from widenet.kernels import ahead, compiled
from widenet.spec.usual import usual_network, usual_training
documents = usual_network("items", False, 1), usual_training(False, 100)
print(ahead.compile_ahead(*documents), len(compiled._HELPERS), "torch" in sys.modules)
for helper in compiled._HELPERS.values():
    assert helper.wait() == 0
compiled._HELPERS.clear()
print(ahead.compile_ahead(*documents))
"""


def said_ahead(cache):
    """What a new process says that compiles ahead for the usual documents, with a cache in a folder."""
    environment = {
        **os.environ,
        "NUMBA_CACHE_DIR": str(cache),
        "PYTHONPATH": str(ROOT),
        "WIDENET_THREADS": "3",
    }
    return subprocess.run(
        [sys.executable, "-c", AHEAD], env=environment, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """A cache that `compile_usual` has filled from nothing; not to be written to."""
    folder = tmp_path_factory.mktemp("usual") / "new"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMBA_CACHE_DIR", str(folder))
        assert compile_usual().wait() == 0
    return folder


@pytest.mark.slow
def test_helpers_compile_what_a_training_needs_and_is_missing_once(usual, tmp_path):
    """A kernel that a training needs at once, and one for its evaluation."""
    cache = tmp_path / "cache"
    shutil.copytree(usual, cache)
    for name in ("compiled_steps.tile", "compiled_search.choose"):
        (code,) = cache.rglob(f"{name}_*.nbi")
        code.unlink()
    assert said_ahead(cache) == ["True 2 False", "False"]
    assert said_ahead(cache) == ["False 0 False", "False"]


@pytest.fixture
def helpers(monkeypatch):
    """The kernels that a training needs at once and that have been left to helpers, without any process."""
    left = []

    def helper(kernels, is_patient=False):
        if not is_patient:
            left.append(kernels)

    monkeypatch.setattr("widenet.kernels.ahead.is_missing", lambda _: True)
    monkeypatch.setattr("widenet.kernels.ahead._helper", helper)
    return left


@pytest.mark.parametrize(("threads", "number"), [(1, 0), (2, 1), (3, 2), (64, 3)])
def test_helpers_leave_a_processor_to_the_training(threads, number, helpers, monkeypatch):
    monkeypatch.setenv("WIDENET_THREADS", str(threads))
    assert compile_ahead(usual_network("items", False, 1), usual_training(False, 100)) == (number > 0)
    assert len(helpers) == number
    kernels = [kernel for share in helpers for kernel in share]
    assert len(set(kernels)) == len(kernels) == (4 if number else 0)


def process(code):
    return subprocess.Popen([sys.executable, "-c", code])


@pytest.mark.parametrize("ends", ["killed", "hangs", "cannot start"])
def test_a_helper_that_fails_stops_nobody(ends, monkeypatch):
    make = made_once(lambda number: number + 1)
    helper = None if ends == "cannot start" else process("import time; time.sleep(1000)")
    if ends == "killed":
        helper.kill()
    if ends == "hangs":
        monkeypatch.setattr(compiled, "_PATIENCE", 0.01)
    leave_to(helper, [(make, (1,))])
    assert make(1) == 2
    if helper is not None:
        assert helper.wait() == -9
