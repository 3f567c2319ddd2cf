"""AdamW: Adam's step; the decay itself is applied with the other penalties, to weights and not to biases."""

from widenet.spec.optimizers import AdamW
from widenet.training.optimizers.adam import AdamFormula


def formula(spec: AdamW) -> AdamFormula:
    """The formula of the spec."""
    return AdamFormula(spec)
