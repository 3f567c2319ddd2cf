"""The kernels in Triton compile for an A100 and an H200, on a machine without one."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
LAUNCHERS = sorted(
    path.stem
    for path in (ROOT / "widenet/kernels/triton").glob("*.py")
    if "_kernel" in path.read_text("utf-8")
)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("triton") is None, reason="Triton runs on Linux only")
@pytest.mark.parametrize("words", [[], pytest.param(["all"], marks=pytest.mark.long)], ids=str)
def test_every_kernel_compiles_for_an_a100_and_an_h200(words, tmp_path):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tests.kernels.hopper", *words]
    ended = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    compiled = ended.stdout.splitlines()
    assert sorted({*compiled}) == sorted(f"{name} {number}" for name in LAUNCHERS for number in (80, 90))
