"""These tests run Triton's kernels: on a CUDA device where there is one, elsewhere in Triton's
interpreter.
"""

import os
from importlib import import_module
from importlib.util import find_spec

import pytest
import torch

if find_spec("triton") is None:
    collect_ignore_glob = ["test_*.py"]
elif not torch.cuda.is_available():
    # Triton asks when it is imported, and when a kernel is defined; nobody else in this process is to be
    # interpreted.
    os.environ["TRITON_INTERPRET"] = "1"
    for name in ("fixed_point", "running_top_k", "output", "steps"):
        import_module(f"widenet.kernels.triton.{name}")

    del os.environ["TRITON_INTERPRET"]


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    if not torch.cuda.is_available():
        monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture
def device():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
