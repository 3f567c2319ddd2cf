"""Memory for wide weights, and work on copies of some of their rows."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor


def roomy(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """Return zeros; on a CPU in large pages if the system has them.

    A step touches rows all over a wide weight, and looking up a row in small pages takes long. NumPy asks the
    system for large pages, torch does not.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    if dtype == torch.bfloat16:  # NumPy has none
        return roomy(shape, torch.int16).view(dtype)
    return torch.from_numpy(np.zeros(tuple(shape), dtype=str(dtype).removeprefix("torch.")))


@contextmanager
def copied(
    weight_RH: Tensor, state: Mapping[str, Tensor], rows_U: Tensor
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Give copies of some rows [U, H] of a weight and its state; write them back after the block.

    Args:
        weight_RH: The weight.
        state: Tensors [R, H] by name.
        rows_U: int64, without repeats.
    """
    weight_UH = weight_RH.index_select(0, rows_U)
    state_of_rows = {name: tensor.index_select(0, rows_U) for name, tensor in state.items()}
    yield weight_UH, state_of_rows
    weight_RH.index_copy_(0, rows_U, weight_UH)
    for name, tensor in state_of_rows.items():
        state[name].index_copy_(0, rows_U, tensor)
