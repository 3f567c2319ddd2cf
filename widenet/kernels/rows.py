"""Some rows of a weight and of its state, worked on beside it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor


@contextmanager
def copied(
    weight_RH: Tensor, state: Mapping[str, Tensor], rows_U: Tensor
) -> Iterator[tuple[Tensor, dict[str, Tensor]]]:
    """Copies of some rows [U, H] of a weight and of each tensor of its state; what becomes of them in the
    block takes their place.

    state: tensors [R, H] by name. rows_U: int64, no two the same.
    """
    weight_UH, state_of_rows = (
        weight_RH.index_select(0, rows_U),
        {name: tensor.index_select(0, rows_U) for name, tensor in state.items()},
    )
    yield weight_UH, state_of_rows
    weight_RH.index_copy_(0, rows_U, weight_UH)
    for name, tensor in state_of_rows.items():
        state[name].index_copy_(0, rows_U, tensor)
