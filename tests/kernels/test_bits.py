"""Portable bits: chosen before torch computes, the same on whatever instruction sets, and refused where
they cannot be had.
"""

import json
import os
import platform
import subprocess
import sys

import pytest
import torch
from numpy._core import _multiarray_umath

from tests.mistakes import mistake
from tests.trainings import UNTIED, books, document
from widenet.errors import OptionError
from widenet.kernels import native
from widenet.kernels.native import choose_bits
from widenet.runs import train

CPU = torch.device("cpu")
LIMITS = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "WIDENET_CPU": "v3",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
CHOOSE = """
import hashlib, torch
from widenet.errors import OptionError
from widenet.kernels.native import choose_bits
from widenet.kernels.native import instruction_sets
torch.set_num_threads(1)
"""
COMPUTE = """
generator = torch.Generator().manual_seed(0)
left, right = torch.randn(70, 333, generator=generator), torch.randn(333, 130, generator=generator)
from torch.nn.functional import elu, gelu, softplus
found = [left @ right, left.double() @ right.double(), left.exp(), left.abs().sqrt(), left.softmax(1)]
found += [right.sum(1), gelu(left), elu(left), softplus(left), torch.tanh(left)]
print([hashlib.sha256(numbers.numpy().tobytes()).hexdigest()[:8] for numbers in found], instruction_sets())
"""
OWN = """
import numpy as np
from widenet.kernels.fixed_point import power, powers
from widenet.model.preparation import damping
from widenet.model.targets import Sampler
from widenet.plan.tiles import Shards
from widenet.spec.layers import InputLayer
from widenet.spec.losses import PopularitySample
from widenet.spec.training import TrainingSpec
from widenet.model.optimizers import Optimizer
from widenet.training.schedules import rates
counts = np.arange(70_000) * 7 % 60_013
history = InputLayer(name="history", kind="input", field="items", popularity_damping=0.375)
sampler = Sampler.of(PopularitySample(kind="popularity"), "next", Shards(70_000, 3), [0, 2], counts)
few = Sampler.of(PopularitySample(kind="popularity"), "next", Shards(100, 1), [0], counts[:100])
share = torch.from_numpy(np.arange(1, 70_000) / 70_000)
found = [damping(history, counts, 70_000), sampler.ends[0], sampler.ends[2], few.ends[0], power(share, 0.375)]
step, power = {"kind": "step", "every_epochs": 1, "factor": 0.7}, {"kind": "exponential", "factor": 0.93}
for schedule in ("cosine", step, power):
    of_steps = rates(TrainingSpec.of({"epochs": 30, "schedule": schedule}), 2_000)
    found.append(torch.from_numpy(of_steps))
for kind in ("sgd", "momentum", "rmsprop", "adadelta"):
    weight, since = torch.ones(40_000, 2), torch.arange(40_000)
    optimizer = Optimizer(TrainingSpec.of({"optimizer": {"kind": kind}}).optimizer, l2=1e-4)
    state = {name: torch.ones(40_000, 2) for name in ("velocity", "square", "step_square")}
    optimizer.idle(weight, state, since, 50_000, of_steps)
    found += [weight, *state.values()]
    found.append(powers(optimizer.fading, since.double()))
print([hashlib.sha256(numbers.numpy().tobytes()).hexdigest()[:8] for numbers in found])
"""
PORTABLE = 'choose_bits("portable", torch.device("cpu"))'
AFTER_A_PRODUCT = f"torch.ones(300, 300) @ torch.ones(300, 300)\n{PORTABLE}"
BACK = f"""
{PORTABLE}
try:
    choose_bits("native", torch.device("cpu"))
except OptionError as error:
    print(error.option)
"""

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="portable bits are those of x86-64")


def printed(code, **environment):
    """What a new process prints; MKL and torch read the environment once."""
    own = {name: value for name, value in os.environ.items() if name not in native.SETTINGS} | environment
    return subprocess.run(
        [sys.executable, "-c", CHOOSE + code], env=own, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.slow
def test_operations_powers_and_logarithms_round_alike_on_every_instruction_set():
    """And a process keeps its bits; one that was started with the settings is never late."""
    whole, own, told = printed(PORTABLE + COMPUTE + OWN + BACK).splitlines()
    assert "{'bits': 'portable'}" in whole
    assert own.count("'") == 2 * 28
    assert told == "bits"
    wide = [name for name in _multiarray_umath.__cpu_dispatch__ if name.startswith(("AVX512", "X86_V4"))]
    has = " ".join(name for name in wide if _multiarray_umath.__cpu_features__[name])
    assert printed(PORTABLE + COMPUTE + OWN, **LIMITS, NPY_DISABLE_CPU_FEATURES=has).splitlines() == [
        whole,
        own,
    ]
    oldest = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ATEN_CPU_CAPABILITY": "default"}
    assert printed(PORTABLE + COMPUTE, **oldest).splitlines() == [whole]
    assert printed(AFTER_A_PRODUCT, **native.SETTINGS) == ""


@pytest.mark.slow
def test_a_limit_shows_in_the_library_that_it_limits():
    limits = {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2", "ONEDNN_MAX_CPU_ISA": "SSE41"}
    code = "import json\nprint(json.dumps(instruction_sets()))"
    unlimited, limited = (json.loads(printed(code, **each)) for each in ({}, limits))
    assert {name for name in limited if limited[name] != unlimited[name]} == {"mkl", "onednn"}
    oldest = json.loads(printed(code, ATEN_CPU_CAPABILITY="default", WIDENET_CPU="v2"))
    assert {name for name in oldest if oldest[name] != unlimited[name]} == {"widenet", "torch"}


@pytest.mark.parametrize(
    ("name", "value", "device"),
    [
        ("torch.backends.cpu.get_cpu_capability", lambda: "DEFAULT", CPU),
        ("widenet.kernels.native.mkl", lambda _: None, CPU),
        ("widenet.kernels.native.mkl", lambda _: None, torch.device("cuda")),
    ],
)
def test_what_cannot_give_them_is_refused(name, value, device, monkeypatch):
    monkeypatch.setattr(name, value)
    with mistake(OptionError, option="bits"):
        choose_bits("portable", device)
    assert native.chosen_bits() == "native"


def test_a_training_that_comes_too_late_leaves_nothing_behind(tmp_path):
    data, training = books(tmp_path / "data"), document("adam", bits="portable")
    torch.ones(300, 300) @ torch.ones(300, 300)
    with mistake(OptionError, option="bits"):
        train(UNTIED, training, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
