"""Memory for wide weights: zeros, in large pages where the system has them."""

from pathlib import Path

import pytest
import torch

from widenet.kernels import roomy

THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
@pytest.mark.parametrize("shape", [(0,), (7,), (5, 3)])
def test_roomy_gives_zeros(shape, dtype):
    found = roomy(shape, dtype)
    assert (tuple(found.shape), found.dtype, found.is_contiguous()) == (shape, dtype, True)
    assert not found.any()


@pytest.mark.skipif(
    not THP.exists() or "[never]" in THP.read_text(), reason="this system has no transparent large pages"
)
def test_much_memory_comes_in_large_pages():
    def large_kib() -> int:
        line = next(
            line
            for line in Path("/proc/self/smaps_rollup").read_text().splitlines()
            if line.startswith("AnonHugePages")
        )
        return int(line.split()[1])

    before = large_kib()
    found = roomy((2**20, 16)).fill_(1.0)
    assert large_kib() - before >= 0.5 * found.nbytes / 1024
