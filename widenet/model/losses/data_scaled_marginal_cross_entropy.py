"""Cross-entropy that ends at a margin, targets counting by their values."""

from widenet.model.losses.scaled_marginal_cross_entropy import MarginalCrossEntropy
from widenet.spec.activations import Activation
from widenet.spec.losses import DataScaledMarginalCrossEntropy


def loss(spec: DataScaledMarginalCrossEntropy, activation: Activation) -> MarginalCrossEntropy:
    """The loss for a sigmoid or softmax output."""
    del activation
    return MarginalCrossEntropy(spec, scaled_by_data=True)
