"""The instruction sets that a process uses are told as its libraries have chosen them."""

import json
import os
import subprocess
import sys

import pytest

from widenet.kernels.native import instruction_sets

LIMITS = {
    "ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41": {"widenet", "torch", "onednn"},
    "MKL_CBWR=COMPATIBLE": {"mkl"},
    "MKL_ENABLE_INSTRUCTIONS=SSE4_2": {"mkl"},
}
"""The libraries that limits below what any processor of today has hold for."""

TELL = """
import hashlib, json, torch
from widenet.kernels.native import instruction_sets
print(json.dumps(instruction_sets()))
torch.manual_seed(0)
shapes = [(17, 33, 65), (256, 128, 3000), (1024, 512, 300)]
products = [torch.randn(rows, inner) @ torch.randn(inner, columns) for rows, inner, columns in shapes]
print(hashlib.sha256(b"".join(product.numpy().tobytes() for product in products)).hexdigest())
"""


def told(limits=""):
    """The instruction sets of a new process under some limits, and a digest of its products."""
    environment = os.environ | dict(limit.split("=") for limit in limits.split())
    command = [sys.executable, "-c", TELL]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    sets, digest = ended.stdout.splitlines()
    return json.loads(sets), digest


@pytest.fixture(scope="module")
def unlimited():
    return told()


def test_every_process_of_a_machine_tells_the_same(unlimited):
    assert instruction_sets() == unlimited[0]
    assert {type(value) for value in unlimited[0].values()} == {str}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the limits are those of x86-64")
@pytest.mark.parametrize("limits", LIMITS)
def test_a_limit_shows_in_the_library_that_it_limits(limits, unlimited):
    (sets, digest), (all_sets, whole) = told(limits), unlimited
    changed = {name for name in all_sets if sets[name] != all_sets[name]}
    if limits.startswith("MKL_ENABLE") and "GenuineIntel" not in all_sets["processor"]:
        assert (changed, digest) == (set(), whole)  # elsewhere MKL does not obey this one
    else:
        assert changed == LIMITS[limits]
