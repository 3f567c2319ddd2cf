"""Which implementation of each operation runs on which device."""

import pytest
import torch

from widenet.kernels import native

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _everything_is_there(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: object())
    monkeypatch.setattr(native, "has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def runners(device):
    return {operation: native.runner(operation, device) for operation in native.TABLE}


def test_without_libraries_torch_runs_everything(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(native, "has_triton", lambda: False)
    assert {*runners(CPU).values(), *runners(CUDA).values()} == {"torch"}


def test_the_library_is_for_cpus_and_triton_for_cuda():
    assert native.runner("cut", CPU) == "native"
    assert native.runner("cut", CUDA) == "torch"
    assert native.runner("fixed_sum", CUDA) == "triton"
