"""The native library: it is there, its copies give the same bits, and other sources' is refused."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest
import torch

from widenet.kernels import native
from widenet.kernels.fixed_point import exact_sum

ROOT = Path(__file__).parent.parent.parent
FLAGS = "flags\t: fpu sse4_2 abm movbe avx2 bmi1 bmi2 f16c fma"
SUMS = """
import hashlib, torch
from widenet.kernels import native
from widenet.kernels.fixed_point import exact_sum
terms = torch.randn(9, 300, 70, generator=torch.Generator().manual_seed(1))
print(native.level(), hashlib.sha256(exact_sum(terms).numpy().tobytes()).hexdigest())
"""


@pytest.fixture(autouse=True)
def _asked_anew():
    for question in (native.level, native.library):
        question.cache_clear()
    yield
    for question in (native.level, native.library):
        question.cache_clear()


def test_it_is_there():
    assert native.library() is not None, "run make setup, with a C++ compiler"


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        (FLAGS, {}, "v3"),
        (f"{FLAGS} avx512f avx512bw avx512cd avx512dq avx512vl", {}, "v4"),
        (f"{FLAGS} avx512f", {}, "v3"),
        (FLAGS.replace("fma", "fma4"), {}, "v2"),
        ("", {}, "v2"),
        (FLAGS, {"WIDENET_CPU": "v2"}, "v2"),
        (FLAGS, {"WIDENET_CPU": "v4"}, "v3"),
        (f"{FLAGS} avx512f avx512bw avx512cd avx512dq avx512vl", {"ATEN_CPU_CAPABILITY": "avx2"}, "v3"),
        (FLAGS, {"ATEN_CPU_CAPABILITY": "default"}, "v2"),
    ],
)
def test_the_level_is_the_processors_unless_lowered(flags, variables, expected, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n\nprocessor\t: 1\n{flags}\n")
    monkeypatch.setattr(native, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    for name in ("WIDENET_CPU", "ATEN_CPU_CAPABILITY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert native.level() == expected


def test_every_copy_gives_the_same_bits():
    terms = torch.randn(9, 300, 70, generator=torch.Generator().manual_seed(1))
    expected = sha256(exact_sum(terms).numpy().tobytes()).hexdigest()
    found = {}
    for copy in ("v2", "v3"):
        environment = {**os.environ, "WIDENET_CPU": copy, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-c", SUMS], env=environment, capture_output=True, text=True, check=True
        )
        level, digest = ended.stdout.split()
        found[level] = digest
    assert set(found.values()) == {expected}
    assert "v2" in found or native.level() == "any"


def test_a_library_of_other_sources_is_refused(tmp_path, monkeypatch):
    (tmp_path / "sums.cpp").write_text("// other\n")
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    with pytest.raises(RuntimeError):
        native.library()


def test_only_what_python_calls_is_visible():
    path = ROOT / "widenet" / "native" / f"{native.level()}.so"
    listed = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert not [name for name in names if name.startswith("_Z")]
    assert {"exact_sum_float32", "cut_int64", "sort", "group", "neighbour_means"} <= names
