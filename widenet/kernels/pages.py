"""Memory for arrays of which a step touches rows here and there."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def roomy(
    shape: Sequence[int], dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Tensor:
    """Zeros; on a CPU in large pages where the system has them, since finding the page of a row takes long in
    a wide weight.

    Numpy asks the system for large pages, torch does not.
    """
    if torch.device(device).type != "cpu":
        return torch.zeros(*shape, dtype=dtype, device=device)
    return torch.from_numpy(np.zeros(tuple(shape), dtype=str(dtype).removeprefix("torch.")))
