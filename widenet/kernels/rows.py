"""Memory for wide weights, and work on copies of some of their rows."""

import math
import mmap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch
from torch import Tensor

from widenet.errors import CapacityError
from widenet.kernels.scratch import scratch_of


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


def pinned_zeros(shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Return zeros in pinned memory, of exactly their size; torch's own rounds up to a power of two.

    Raises:
        CapacityError: The system does not pin so much memory.
    """
    num_bytes = math.prod(shape) * dtype.itemsize
    if not num_bytes:
        return torch.zeros(*shape, dtype=dtype)
    memory = _Pinned(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    tensor, runtime = torch.frombuffer(memory, dtype=dtype), torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if int(runtime.cudaHostRegister(tensor.data_ptr(), num_bytes, 0)):
        raise CapacityError(
            f"the system does not pin {num_bytes:,} bytes of memory for weights and optimizer state"
        )
    memory.unpin = partial(runtime.cudaHostUnregister, tensor.data_ptr())
    return tensor.view(*shape)


class _Pinned(mmap.mmap):
    """Pinned memory, which ends with its last tensor."""

    unpin: Callable[[], object] | None = None

    def __del__(self) -> None:
        """Let the system move the memory again before it is given back."""
        if self.unpin is not None:
            self.unpin()


def roomy_beside(weight: Tensor) -> Tensor:
    """Return zeros of a weight's shape and type where the weight is: in memory, pinned memory, or a file."""
    if weight.is_pinned():
        return pinned_zeros(weight.shape, weight.dtype)
    scratch = scratch_of(weight)
    if scratch is None:
        return roomy(weight.shape, weight.dtype, weight.device)
    return scratch.zeros(weight.shape, weight.dtype)


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
