"""How CUDA multiplies within a block, and that torch's settings are afterwards what they were."""

import pytest
import torch

from widenet.kernels.cuda_products import cuda_products

MATMUL = torch.backends.cuda.matmul


def settings():
    newer = getattr(MATMUL, "fp32_precision", None), getattr(torch.backends, "fp32_precision", None)
    reductions = MATMUL.allow_bf16_reduced_precision_reduction, MATMUL.allow_fp16_reduced_precision_reduction
    return torch.get_float32_matmul_precision(), MATMUL.allow_tf32, *newer, *reductions


@pytest.fixture(autouse=True)
def _as_before():
    newer = getattr(MATMUL, "fp32_precision", None)
    yield
    torch.set_float32_matmul_precision("highest")
    if newer is not None:
        MATMUL.fp32_precision = newer
        torch.backends.mkldnn.matmul.fp32_precision = "none"


def test_blocks_of_threads_that_overlap_share_the_settings_until_the_last_one_ends():
    MATMUL.allow_tf32 = True
    before, first, second = settings(), cuda_products(), cuda_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not MATMUL.allow_tf32
    assert not MATMUL.allow_bf16_reduced_precision_reduction
    assert not MATMUL.allow_fp16_reduced_precision_reduction
    with cuda_products(tf32=True):
        assert MATMUL.allow_tf32
    assert not MATMUL.allow_tf32
    with cuda_products(tf32=True), cuda_products():
        assert MATMUL.allow_tf32
    second.__exit__(None, None, None)
    assert settings() == before
