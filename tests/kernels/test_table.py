"""Which implementation of each operation runs on which device."""

import pytest
import torch

from widenet.kernels import table

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _everything_is_there(monkeypatch):
    monkeypatch.setattr(table, "library", lambda: object())
    monkeypatch.setattr(table, "has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def runners(device):
    return {operation: table.runner(operation, device) for operation in table.TABLE}


def test_without_libraries_torch_runs_everything(monkeypatch):
    monkeypatch.setattr(table, "library", lambda: None)
    monkeypatch.setattr(table, "has_triton", lambda: False)
    assert {*runners(CPU).values(), *runners(CUDA).values()} == {"torch"}


def test_the_library_is_for_cpus_and_triton_for_cuda():
    assert table.runner("cut", CPU) == "native"
    assert table.runner("cut", CUDA) == "torch"
    assert table.runner("fixed_sum", CUDA) == "triton"
