"""What Numba compiles works wherever it runs; what it gives is tested where it is used."""

import numba
import numpy as np
import pytest

from widenet.kernels import compiled


def doubled(numbers):
    for place in range(len(numbers)):
        numbers[place] *= 2.0


@pytest.mark.parametrize("kept", [True, False], ids=["kept on disk", "no folder to keep it in"])
def test_a_function_is_compiled_with_or_without_a_folder_to_keep_it_in(kept, monkeypatch):
    real, asked = numba.njit, []

    def njit(*functions, **options):
        if functions:  # Numba's own, which it compiles now and then
            return real(*functions, **options)
        asked.append(options)
        if options.get("cache") and not kept:
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(numba, "njit", njit)
    numbers = np.ones(3)
    compiled._compiled(doubled)(numbers)
    assert numbers.tolist() == [2.0, 2.0, 2.0]
    assert [bool(options.get("cache")) for options in asked] == ([True] if kept else [True, False])
    assert all(options["nogil"] and "fastmath" not in options for options in asked)


def test_without_numba_there_is_nothing_compiled(monkeypatch):
    monkeypatch.setattr(compiled, "find_spec", lambda _: None)
    assert compiled.compiled_add.__wrapped__() is None
    assert compiled.compiled_softplus_sum.__wrapped__() is None
    assert compiled.compiled.__wrapped__(doubled, 0) is None
