"""Operands of matrix products rounded to bfloat16, and products that are float32 whatever their operands."""

import torch
from torch import Tensor


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device has instructions that multiply bfloat16. Without them a CPU's products are much slower than in float32."""
    return device.type != "cpu" or torch.cpu._is_avx512_bf16_supported()


def rounded(values: Tensor) -> Tensor:
    """Float32 values rounded to bfloat16, for a product: bfloat16 where the device has instructions for it, else float32 again."""
    half = values.bfloat16()
    return half if has_bfloat16(values.device) else half.float()


def fill_product(result_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Put left @ right in a float32 result's place. left, right: both float32 or both bfloat16, which rounds the result too."""
    if left_RK.dtype == result_RC.dtype:
        torch.mm(left_RK, right_KC, out=result_RC)
    else:
        result_RC.copy_(left_RK @ right_KC)


def add_product(total_RC: Tensor, left_RK: Tensor, right_KC: Tensor) -> None:
    """Add left @ right to a float32 total, in its place. Operands as of `fill_product`."""
    if left_RK.dtype == total_RC.dtype:
        total_RC.addmm_(left_RK, right_KC)
    else:
        total_RC.add_(left_RK @ right_KC)
