"""The network of several labs against torch."""

import numpy as np
import torch

from labs.classifier import NUM_WEIGHTS, examples, first_weights, gradient, layers, loss


def test_loss_and_gradient_are_those_of_torch():
    data, weights = examples(30), first_weights(1)
    parts = [torch.tensor(part, requires_grad=True) for part in layers(weights)]
    hidden = torch.relu(torch.tensor(data.inputs) @ parts[0] + parts[1])
    wanted = torch.nn.functional.cross_entropy(hidden @ parts[2] + parts[3], torch.tensor(data.labels))
    wanted.backward()
    assert abs(loss(weights, data) - wanted.item()) < 1e-12
    flat = torch.cat([part.grad.ravel() for part in parts])
    assert len(flat) == NUM_WEIGHTS
    np.testing.assert_allclose(gradient(weights, data), flat, atol=1e-12)
