"""The instruction sets that a process uses are told as its libraries have chosen them."""

import json
import os
import subprocess
import sys

import pytest

from widenet.kernels.native import instruction_sets

LIMITS = {
    "WIDENET_CPU=v2 ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41": {"widenet", "torch", "onednn"},
    "MKL_ENABLE_INSTRUCTIONS=SSE4_2": {"mkl"},
}
"""The libraries that limits below what any processor of today has hold for."""

TELL = """
import json
from widenet.kernels.native import instruction_sets
print(json.dumps(instruction_sets()))
"""


def told(limits=""):
    """The instruction sets of a new process under some limits."""
    environment = os.environ | dict(limit.split("=") for limit in limits.split())
    command = [sys.executable, "-c", TELL]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the limits are those of x86-64")
@pytest.mark.parametrize("limits", LIMITS)
def test_a_limit_shows_in_the_library_that_it_limits(limits):
    sets, unlimited = told(limits), instruction_sets()
    assert {name for name in sets if sets[name] != unlimited[name]} == LIMITS[limits]
