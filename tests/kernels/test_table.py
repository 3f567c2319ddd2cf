"""Which implementation of each operation runs on which device."""

import sys

import pytest
import torch

from widenet.kernels import table

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def _everything_is_there(monkeypatch):
    monkeypatch.setattr(table, "can_compile", lambda: True)
    monkeypatch.setattr(table, "has_triton", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def runners(device):
    return {operation: table.runner(operation, device) for operation in table.TABLE}


def test_a_cpu_runs_numba_and_cuda_triton_where_they_have_an_operation():
    has = {
        runner: {name for name, found in table.TABLE.items() if runner in found}
        for runner in ("numba", "triton")
    }
    assert {name for name, runner in runners(CPU).items() if runner == "numba"} == has["numba"]
    assert {name for name, runner in runners(CUDA).items() if runner == "triton"} == has["triton"]
    assert has["numba"] | has["triton"] == set(table.TABLE)


def test_without_numba_and_triton_torch_runs_everything(monkeypatch):
    monkeypatch.setattr(table, "can_compile", lambda: False)
    monkeypatch.setattr(table, "has_triton", lambda: False)
    assert {*runners(CPU).values(), *runners(CUDA).values()} == {"torch"}


@pytest.mark.parametrize(
    ("activation", "loss", "expected"),
    [
        ("sigmoid", "cross_entropy", "numba"),
        ("closed softmax", "scaled_marginal_cross_entropy", "numba"),
        ("sigmoid", "l2", "torch"),
        ("tanh", "cross_entropy", "torch"),
    ],
)
def test_numba_has_tiles_of_some_units_and_triton_of_all(activation, loss, expected):
    assert table.tile_runner(CPU, activation, loss) == expected
    assert table.tile_runner(CUDA, activation, loss) == "triton"


def test_few_numbers_wait_for_no_library_if_the_bits_are_the_same(monkeypatch):
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    few = {operation: table.runner(operation, CPU, 9) for operation in table.TABLE}
    assert {operation for operation, runner in few.items() if runner == "numba"} == {"row_update", "tile"}
    assert table.runner("cut", CPU, 2**20) == "numba"
    assert table.runner("cut", CUDA, 9) == "torch"
    assert table.runner("fixed_sum", CUDA, 9) == "triton"
    monkeypatch.setitem(sys.modules, "numba", object())
    assert table.runner("cut", CPU, 9) == "numba"
