"""The bits of trained weights move with the version of the arithmetic alone."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from widenet.kernels.native import instruction_sets
from widenet.model.optimizers import is_compiled
from widenet.training import state

GOLDEN = json.loads(Path(__file__).with_name("golden.json").read_text())
"""By the version of the arithmetic: the release of torch, the first digits of fingerprints in portable
bits, and where they were seen.
"""
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() != "x86_64", reason="portable bits are those of x86-64")
@pytest.mark.skipif(not is_compiled("cpu"), reason="the values are those of compiled code")
@pytest.mark.skipif(
    torch.__version__.split("+")[0] != GOLDEN[str(state.ARITHMETIC)]["torch"],
    reason="each torch has its own MKL",
)
def test_portable_bits_move_only_with_the_version_of_the_arithmetic(tmp_path):
    """On every processor, whatever limits the environment sets."""
    known = GOLDEN[str(state.ARITHMETIC)]
    command = [sys.executable, "-m", "tests.golden", str(tmp_path)]
    ended = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found = json.loads(ended.stdout)
    remedy = (
        "Raise ARITHMETIC, list the change in the changelog as Changed, and write this under the new version"
        " in golden.json"
    )
    assert found == known["fingerprints"], f"{remedy}: {json.dumps(found, indent=1)}"
    processor = instruction_sets()["processor"]
    if processor not in known["seen on"]:
        print(
            'The bits are those of golden.json. Add this processor to "seen on" there:'
            f" {json.dumps(processor)}"
        )
