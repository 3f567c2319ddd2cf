"""Which implementation of each operation runs on which device."""

import sys

import pytest
import torch

from widenet.kernels import table

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _everything_is_there(monkeypatch):
    monkeypatch.setattr(table, "can_compile", lambda: True)
    monkeypatch.setattr(table, "library", lambda: object())
    monkeypatch.setattr(table, "has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def runners(device):
    return {operation: table.runner(operation, device) for operation in table.TABLE}


def test_without_libraries_torch_runs_everything(monkeypatch):
    monkeypatch.setattr(table, "can_compile", lambda: False)
    monkeypatch.setattr(table, "library", lambda: None)
    monkeypatch.setattr(table, "has_triton", lambda: False)
    assert {*runners(CPU).values(), *runners(CUDA).values()} == {"torch"}


def test_few_numbers_wait_for_no_library_if_the_bits_are_the_same(monkeypatch):
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    few = {operation: table.runner(operation, CPU, 9) for operation in table.TABLE}
    assert {operation for operation, runner in few.items() if runner == "numba"} == set()
    assert table.runner("softmax_sum", CPU, 2**20) == "numba"
    assert table.runner("cut", CPU, 9) == "native"
    assert table.runner("cut", CUDA, 9) == "torch"
    assert table.runner("fixed_sum", CUDA, 9) == "triton"
    monkeypatch.setitem(sys.modules, "numba", object())
    assert table.runner("softmax_sum", CPU, 9) == "numba"
