"""The instruction sets that a process uses are told as its libraries have chosen them."""

import json
import os
import subprocess
import sys

import pytest

from widenet.kernels.processor import instruction_sets

LIMITS = {
    "ATEN_CPU_CAPABILITY=default": "torch",
    "MKL_ENABLE_INSTRUCTIONS=SSE4_2": "mkl",
    "MKL_CBWR=COMPATIBLE": "mkl",
    "ONEDNN_MAX_CPU_ISA=SSE41": "onednn",
    "NUMBA_CPU_NAME=nehalem": "numba",
}
"""The libraries that limits below what any processor of today has hold for."""

PRODUCTS = """
import hashlib, torch
torch.manual_seed(0)
shapes = [(17, 33, 65), (256, 128, 3000), (1024, 512, 300)]
products = [torch.randn(rows, inner) @ torch.randn(inner, columns) for rows, inner, columns in shapes]
print(hashlib.sha256(b"".join(product.numpy().tobytes() for product in products)).hexdigest())
"""


def printed(code, *limits):
    environment = os.environ | dict(limit.split("=") for limit in limits)
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def told(*limits):
    code = (
        "import json; from widenet.kernels.processor import instruction_sets;"
        " print(json.dumps(instruction_sets()))"
    )
    return json.loads(printed(code, *limits))


@pytest.fixture(scope="module")
def unlimited():
    return told()


def test_every_process_of_a_machine_tells_the_same(unlimited):
    assert instruction_sets() == unlimited
    assert {type(value) for value in unlimited.values()} == {str}


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the limits are those of x86-64")
@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_shows_in_the_library_that_it_limits(limit, unlimited):
    limited = told(limit)
    changed = {name for name in unlimited if limited[name] != unlimited[name]}
    if limit.startswith("MKL_ENABLE") and "GenuineIntel" not in unlimited["processor"]:
        assert changed == set()
        assert printed(PRODUCTS, limit) == printed(PRODUCTS)  # elsewhere MKL does not obey this one
    else:
        assert changed == {LIMITS[limit]}
