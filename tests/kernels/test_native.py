"""The native library: it is there, its copies give the same bits, and other sources' is refused."""

from dataclasses import replace
from hashlib import sha256
from unittest import mock

import pytest
import torch

from tests.kernels.test_passes import Case
from tests.scripts import Script
from widenet.kernels import best_units, native, passes
from widenet.kernels.bags import gather_sum
from widenet.kernels.fixed_point import exact_sum
from widenet.kernels.steps import KINDS, OptimizerStep
from widenet.sparse import SparseBatch

FLAGS = "flags\t: fpu sse4_2 abm movbe avx2 bmi1 bmi2 f16c fma"
COPIES = ("v2", "v3", "v4")
PRINTED = """
from tests.kernels.test_native import digest
from widenet.kernels import native
print(native.level(), digest())
"""


def digest():
    """What the passes of the library give, as a SHA-256."""
    generator = torch.Generator().manual_seed(1)
    found, terms = sha256(), torch.randn(9, 300, 70, generator=generator)
    with mock.patch.object(passes, "chosen_bits", return_value="portable"):
        for seed in range(30):
            for tensor in Case.drawn(seed).made(half=seed % 2 > 0):
                found.update(tensor.numpy().tobytes())
    for kind in (*sorted(KINDS), "adagrad by rows"):
        states = [terms[3].abs(), terms[4].abs()] if kind in KINDS else [terms[3, :, :1].abs()]
        step = OptimizerStep(kind.split()[0], (0.1, 0.2, 0.3, 0.4, 0.5, 0.6), 0.5, 0.1, 0.2, 0.9)
        weight = terms[5].clone()
        step.tile(weight, terms[6].clone(), dict(enumerate(states)))
        for tensor in (weight, *states):
            found.update(tensor.numpy().tobytes())
    found.update(exact_sum(terms).numpy().tobytes())
    batch = SparseBatch.from_lists([[3, 1], [], [299, 3, 3]], [[0.3, 0.7], [], [0.1, 1.9, 2.3]])
    found.update(gather_sum(batch, terms[0]).numpy().tobytes())
    peak_E, total_E = torch.full((300,), -torch.inf), torch.zeros(300, dtype=torch.float64)
    units = best_units.Units(terms[7], range(300), None, terms[8][:, 0].contiguous(), True)
    query, search = best_units.Query.of(terms[6]), best_units.NativeTopK(9, torch.full((300,), -torch.inf))
    with mock.patch.object(best_units, "chosen_bits", return_value="portable"):
        best_units.rank(query, [units], [search], peak_SE=peak_E[None], total_SE=total_E[None])
        for tensor in (best_units.logits(query, units), search.result(), peak_E, total_E):
            found.update(tensor.numpy().tobytes())
    return found.hexdigest()


@pytest.fixture(autouse=True)
def _asked_anew():
    for question in (native.level, native.library, native._loaded, native._function):
        question.cache_clear()
    yield
    for question in (native.level, native.library, native._loaded, native._function):
        question.cache_clear()


def test_it_is_there():
    assert native.library() is not None, "run make setup, with a C++ compiler"


@pytest.mark.parametrize(
    ("flags", "variables", "expected"),
    [
        (FLAGS, {}, "v3"),
        (f"{FLAGS} avx512f avx512bw avx512cd avx512dq avx512vl", {}, "v4"),
        (FLAGS.replace("fma", "fma4"), {}, "v2"),
        (f"{FLAGS.replace('fma', 'fma4')} avx512f avx512bw avx512cd avx512dq avx512vl", {}, "v2"),
        (FLAGS, {"WIDENET_CPU": "v2"}, "v2"),
        (FLAGS, {"WIDENET_CPU": "v4"}, "v3"),
    ],
)
def test_the_level_is_the_processors_unless_lowered(flags, variables, expected, tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\n{flags}\n\nprocessor\t: 1\n{flags}\n")
    monkeypatch.setattr(native, "_CPUINFO", tmp_path / "cpuinfo")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.delenv("WIDENET_CPU", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert native.level() == expected


def test_every_copy_gives_the_same_bits(tmp_path):
    found = {}
    for copy in COPIES:
        script = Script(PRINTED, tmp_path / copy, {"WIDENET_CPU": copy})
        level, printed = script.communicate(120)[0].split()
        found[level] = printed
    assert set(found.values()) == {digest()}
    assert native.level() in found


def test_a_library_of_other_sources_is_refused(tmp_path, monkeypatch):
    (tmp_path / "sources.cpp").write_text("// other\n")
    monkeypatch.setattr(native, "_SOURCES", tmp_path)
    with pytest.raises(RuntimeError):
        native.library()


@pytest.mark.parametrize(
    ("name", "arguments", "error"),
    [
        ("step_tile", (None, 6, torch.zeros(3, 2).mT, torch.zeros(2, 3), None, None), TypeError),
        (
            "step_rows",
            (torch.zeros(3, dtype=torch.int64), 2**45, *[None] * 3, None, None, 0, None, None, None, None),
            MemoryError,
        ),
    ],
)
def test_what_the_library_cannot_do_is_an_error(name, arguments, error):
    with pytest.raises(error):
        native.call(name, *arguments)


def test_other_types_than_the_library_reads_are_refused():
    at = torch.arange(3)
    with pytest.raises(TypeError):
        replace(Case.drawn(0), units_Z=at.int()).made()
    with pytest.raises(TypeError):
        OptimizerStep("adam", (0.1,) * 6).tile(at.float(), at.double(), dict.fromkeys("mv", at.float()))
    with pytest.raises(ValueError, match=r"."):
        exact_sum([torch.zeros(2, 3), torch.zeros(3, 2)])
