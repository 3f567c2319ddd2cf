"""What Numba compiles works wherever it runs; what it gives is tested where it is used."""

import numba
import numpy as np
import pytest

from tests.scripts import Conversation
from widenet.kernels import compiled


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


AT_ONCE = """
import sys
import numba
from tests.kernels.test_compiled import doubled
from widenet.kernels import compiled
numba.config.CACHE_DIR = sys.argv[1]
print("ready", flush=True)
sys.stdin.readline()
made = compiled.compile_for(doubled, "void(float64[::1])")
print(sum(made.stats.cache_misses.values()))
"""
"""Says how often it has compiled a function, 0 or 1."""


def test_of_processes_that_need_a_function_at_once_one_compiles_it(tmp_path):
    both = [Conversation([str(tmp_path)], AT_ONCE) for _ in range(2)]
    assert [process.stdout.readline() for process in both] == ["ready\n"] * 2
    for process in both:
        process.stdin.write("\n")
        process.stdin.flush()
    assert sorted(process.communicate()[0] for process in both) == ["0\n", "1\n"]
