"""The instruction sets that a process uses are told as its libraries have chosen them."""

import json
import os
import subprocess
import sys

import pytest

from widenet.kernels.processor import instruction_sets

LIMITS = {
    "torch": {"ATEN_CPU_CAPABILITY": "default"},
    "mkl": {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "onednn": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "numba": {"NUMBA_CPU_NAME": "nehalem"},
}
"""Limits below what any processor of today has, by the library that they hold for."""


def told(**environment):
    code = (
        "import json; from widenet.kernels.processor import instruction_sets;"
        " print(json.dumps(instruction_sets()))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def unlimited():
    return told()


def test_every_process_of_a_machine_tells_the_same(unlimited):
    assert instruction_sets() == unlimited
    assert {type(value) for value in unlimited.values()} == {str}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the limits are those of x86-64")
@pytest.mark.parametrize("library", LIMITS)
def test_a_limit_shows_in_the_library_that_it_limits(library, unlimited):
    limited = told(**LIMITS[library])
    assert {name for name in unlimited if limited[name] != unlimited[name]} == {library}
