"""The divisor of a softmax over some units of every example."""

from torch import Tensor

from widenet.kernels import reference
from widenet.kernels.table import runner


def softmax_sum(logits_ET: Tensor) -> tuple[Tensor, Tensor]:
    """See `reference.softmax_sum`, whose bits all implementations give."""
    if runner("softmax_sum", logits_ET.device, logits_ET.numel()) == "numba":
        from widenet.kernels.compiled_softmax import softmax_sum as compiled

        return compiled(logits_ET)
    return reference.softmax_sum(logits_ET)
