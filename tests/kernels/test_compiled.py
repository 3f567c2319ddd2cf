"""What Numba compiles works wherever it runs; what it gives is tested where it is used."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
import torch

from widenet.kernels import compiled
from widenet.kernels.table import runner

ROOT = Path(__file__).parent.parent.parent


def doubled(numbers):
    for place in range(len(numbers)):
        numbers[place] *= 2.0


@pytest.mark.parametrize("error", [None, RuntimeError("no locator"), OSError(28, "No space left on device")])
def test_a_function_is_compiled_with_or_without_a_folder_to_keep_it_in(error, monkeypatch):
    real, asked = numba.njit, []

    def njit(*arguments, **options):
        asked.append(options)
        if options.get("cache") and error is not None:
            raise error
        return real(*arguments, **options)

    monkeypatch.setattr(numba, "njit", njit)
    numbers = np.ones(3)
    compiled.compile_for(doubled, "void(float64[::1])")(numbers)
    assert numbers.tolist() == [2.0, 2.0, 2.0]
    assert [bool(options.get("cache")) for options in asked if "nogil" in options] == (
        [True] if error is None else [True, False]
    )


def test_nothing_is_compiled_where_numba_is_told_not_to(monkeypatch):
    """Torch computes in its place, and no code is missing."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    compiled.can_compile.cache_clear()
    try:
        assert runner("row_update", torch.device("cpu")) == "torch"
        assert not compiled.is_missing((compiled.made_once, ()))
    finally:
        compiled.can_compile.cache_clear()


def test_code_that_differs_in_anything_it_depends_on_has_another_name():
    names = set()
    for signature, within in (
        ("void(float64[::1])", ()),
        ("void(float32[::1])", ()),
        ("void(float64[::1])", ("x * 0.5",)),
    ):
        compiled.compile_for(doubled, signature, *within)
        names.add(doubled.__qualname__)
    assert len(names) == 3


STEPS = """
import os, sys, torch
from widenet.kernels.compiled_steps import Penalties, compiled_steps
numbers = [0.5, 0.25, 0.125, 0.0625, 0.03125]
for names in sys.argv[1:]:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        continue
    for name in names.split():
        weight, gradient, state = torch.ones(1), torch.full((1,), 2.0), [torch.full((1,), 3.0)]
        compiled_steps(name, 1).tile(weight, gradient, state, Penalties(), numbers)
        print(name, weight.item(), *(kept.item() for kept in state), flush=True)
    os._exit(0)
"""
"""Compiles the steps of the rules that each argument names, all with one state, in a process of its own."""


def test_code_that_other_processes_kept_is_found_again_and_never_mistaken_for_another(tmp_path):
    def said(*names):
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
        found = subprocess.run(
            [sys.executable, "-c", STEPS, *names], env=environment, capture_output=True, text=True, check=True
        )
        return found.stdout.splitlines()

    alone = said("momentum", "rmsprop")
    assert len(alone) == 2
    kept = set(tmp_path.rglob("*.nbc"))
    assert kept
    assert said("momentum rmsprop", "rmsprop momentum") == [*alone, *reversed(alone)]
    assert set(tmp_path.rglob("*.nbc")) == kept
