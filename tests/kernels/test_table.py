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


def test_without_libraries_torch_runs_everything(monkeypatch):
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(native, "has_triton", lambda: False)
    assert not any(
        runs(device) for runs in (native.library_runs, native.triton_runs) for device in (CPU, CUDA)
    )


def test_the_library_is_for_cpus_and_triton_for_cuda():
    assert native.library_runs(CPU)
    assert native.triton_runs(CUDA)
    assert not native.library_runs(CUDA)
    assert not native.triton_runs(CPU)
