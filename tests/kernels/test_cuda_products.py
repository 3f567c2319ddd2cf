"""How CUDA multiplies within a block, and that torch's settings are afterwards what they were."""

import pytest
import torch

from widenet.kernels.cuda_products import cuda_products

MATMUL = torch.backends.cuda.matmul


def settings():
    newer = getattr(MATMUL, "fp32_precision", None), getattr(torch.backends, "fp32_precision", None)
    reductions = MATMUL.allow_bf16_reduced_precision_reduction, MATMUL.allow_fp16_reduced_precision_reduction
    return torch.get_float32_matmul_precision(), MATMUL.allow_tf32, *newer, *reductions


def no_change():
    pass


def the_older_way():
    MATMUL.allow_tf32 = True


def by_name():
    torch.set_float32_matmul_precision("medium")


def the_newer_way():
    if hasattr(MATMUL, "fp32_precision"):
        MATMUL.fp32_precision = "ieee"


@pytest.fixture(autouse=True)
def _as_before():
    newer = getattr(MATMUL, "fp32_precision", None)
    yield
    torch.set_float32_matmul_precision("highest")
    if newer is not None:
        MATMUL.fp32_precision = newer
        torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.parametrize("change", [no_change, the_older_way, by_name, the_newer_way])
@pytest.mark.parametrize("tf32", [False, True])
def test_products_are_rounded_as_asked_and_settings_are_restored(change, tf32):
    change()
    before = settings()
    with cuda_products(tf32):
        assert MATMUL.allow_tf32 is tf32
        assert not MATMUL.allow_bf16_reduced_precision_reduction
        assert not MATMUL.allow_fp16_reduced_precision_reduction
    assert settings() == before


def test_blocks_of_threads_that_overlap_share_the_settings_until_the_last_one_ends():
    the_older_way()
    before, first, second = settings(), cuda_products(), cuda_products()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not MATMUL.allow_tf32
    second.__exit__(None, None, None)
    assert settings() == before


def test_a_block_in_tf32_within_another_leaves_float32_behind_it():
    with cuda_products():
        with cuda_products(tf32=True):
            assert MATMUL.allow_tf32
        assert not MATMUL.allow_tf32
