"""What an imported network gives, layer by layer documents aside: the scores of its outputs."""

import numpy as np
import torch

from tests.interop.networks import scores
from widenet.sparse import SparseBatch


def scored(model, **fields):
    """float32 [E, L] of each output, by name; arrays are dense fields, lists of lists sparse ones."""
    given = {
        name: torch.from_numpy(value) if isinstance(value, np.ndarray) else SparseBatch.from_lists(value)
        for name, value in fields.items()
    }
    return {name: scores(model, given, name) for name in model.network.outputs}
