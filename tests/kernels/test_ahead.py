"""Kernels that helper processes compile: they are found on disk, and nobody depends on a helper."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from widenet.kernels import ahead, compiled
from widenet.kernels.ahead import compile_ahead, compile_usual
from widenet.kernels.compiled import is_missing, leave_to, made_once
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import usual_network, usual_training

ROOT = Path(__file__).parent.parent.parent
LATER = ["compiled_ranking", "compiled_choice", "compiled_neighbours"]
PACKING = ["compiled_packing", "compiled_unpacking"]
EVERY = [
    "compiled_cut",
    "compiled_cut",
    "compiled_group",
    "compiled_sort",
    "compiled_steps",
    "compiled_sum",
]
"""What every training on a CPU needs at once."""

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
    """Two kernels that a training needs at once, and one for its evaluation."""
    cache = tmp_path / "cache"
    shutil.copytree(usual, cache)
    for name in ("compiled_sorts.group", "compiled_sorts.sort", "compiled_search.choose"):
        (code,) = cache.rglob(f"{name}_*.nbi")
        code.unlink()
    assert said_ahead(cache) == ["True 3 False", "False"]
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
    assert len(set(kernels)) == len(kernels) == (9 if number else 0)


def test_a_patient_helper_compiles_what_the_first_evaluation_needs(monkeypatch):
    left = []
    monkeypatch.setenv("WIDENET_THREADS", "2")
    monkeypatch.setattr("widenet.kernels.ahead.is_missing", lambda kernel: kernel[0].__name__ in LATER)
    monkeypatch.setattr("widenet.kernels.ahead._started", left.append)
    assert compile_ahead(usual_network("items", False, 1), usual_training(False, 100))
    [[names, word]] = left
    assert ([name for _, name, _ in json.loads(names)], word) == (LATER, "patient")


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ({"activation": "softmax"}, {"sweep softmax_sums", "sweep softmax"}),
        ({"activation": "sigmoid"}, {"sweep sigmoid"}),
        ({"activation": "sigmoid", "weight_norm": 1.0}, {"pass sigmoid"}),
        ({"activation": "softmax", "cosine": {"temperature": 0.1}}, {"sweep softmax_sums", "pass softmax"}),
        (
            {"activation": "softmax", "weights": {"layer": "h", "transposed": True}},
            {"sweep softmax_sums", "slopes softmax", "gradients softmax"},
        ),
        (
            {"activation": "sigmoid", "hidden": {"weights": {"layer": "out", "transposed": True}}},
            {"slopes sigmoid", "gradients sigmoid"},
        ),
        ({"activation": "linear", "loss": "l2"}, set()),
    ],
)
def test_the_documents_tell_which_passes_are_compiled(output, expected, helpers, monkeypatch):
    monkeypatch.setenv("WIDENET_THREADS", "2")
    layers = [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "h", "units": 4, **output.get("hidden", {})},
        {"name": "out", "kind": "output", "field": "items", **output},
    ]
    layers[-1].pop("hidden", None)
    compile_ahead(NetworkSpec.of({"layers": layers}, "n"), TrainingSpec.of({"epochs": 1}, "t"))
    (kernels,) = helpers
    kinds = {"softmax_sums", "softmax", "sigmoid"}
    passes = {(make, arguments) for make, arguments in kernels if kinds & {*arguments}}
    assert {f"{make.__name__.removeprefix('compiled_')} {kind}" for make, (kind,) in passes} == expected
    assert sorted(make.__name__ for make, arguments in {*kernels} - passes) == EVERY


def process(code):
    return subprocess.Popen([sys.executable, "-c", code])


def test_a_kernel_is_made_after_its_helper_has_ended(tmp_path):
    make = made_once(lambda name: (tmp_path / name).exists())
    helper = process(f"open({str(tmp_path / 'done')!r}, 'w')")
    leave_to(helper, [(make, ("done",))])
    assert not is_missing((make, ("done",)))
    assert helper in compiled._HELPERS.values()
    assert make("done")


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


def test_no_helper_is_asked_where_the_code_cannot_be_kept(monkeypatch):
    def refused(*_, **__):
        raise RuntimeError("no locator")

    monkeypatch.setattr("numba.njit", refused)
    assert compiled._lacking(compiled.made_once) is None


@pytest.mark.parametrize(("executable", "frozen"), [(None, False), ("", False), (sys.executable, True)])
def test_a_program_that_is_no_python_is_not_started_again(executable, frozen, monkeypatch):
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.setattr(sys, "frozen", frozen, raising=False)
    monkeypatch.setattr(subprocess, "Popen", None)
    assert ahead._helper([(compiled.made_once, ())]) is None


@pytest.mark.slow
def test_who_makes_the_first_dataset_has_the_usual_kernels_compiled(usual, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(usual))
    assert compile_usual() is None
    assert said_ahead(usual)[0] == "False 0 False"


def test_one_helper_compiles_for_several_datasets_that_are_made_meanwhile(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    with (tmp_path / "usual.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert compile_usual().wait() == 0
    assert not [*tmp_path.rglob("*.nbi")]


def test_nothing_is_compiled_where_it_cannot_be_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "nowhere"))
    monkeypatch.setattr(os, "access", lambda path, _: path != tmp_path)
    assert compile_usual() is None
