"""Trainings for the simulated device: documents by name."""

from tests.trainings import SETTINGS, document
from widenet import Network, Training, train

LOSSES = {
    ("sigmoid", "cross_entropy"): {},
    ("tanh", "hinge"): {"delta_norm": 0.5},
    ("linear", "l2"): {"delta_boost": {"target": 2.0, "other": 0.5}},
    ("relu_max", "l1"): {},
    ("sigmoid", "scaled_marginal_cross_entropy"): {"others": "ignore"},
}


def with_loss(activation, loss, **more):
    output = {
        "name": "next",
        "kind": "output",
        "field": "items",
        "activation": activation,
        "loss": loss,
        **more,
    }
    return {"layers": [{"name": "in", "kind": "input", "field": "items"}, {"name": "h", "units": 5}, output]}


PLAIN = (
    "momentum",
    "nesterov",
    "adam, normalized",
    "sgd, l2, tied, sampled",
    "adagrad, tied",
    "adagrad by rows",
)
CASES = {name: SETTINGS[name] for name in PLAIN}
CASES |= {
    loss: (with_loss(activation, loss, **more), document("adam", evaluation=None))
    for (activation, loss), more in LOSSES.items()
}
CASES["bfloat16"] = (SETTINGS["rmsprop"][0], document("adamw", precision="bfloat16", evaluation=None))


def trained(documents, data, out, device, epochs=2, **more):
    network, training = documents
    return train(
        Network.of(network), Training.of({**training, "epochs": epochs}), data, out, device=device, **more
    )


def weights_of(model):
    """Every number of the wide weights."""
    parts = [part.weight for weight in model.network.wide.values() for part in weight.parts.values()]
    return [number for weight in parts for number in weight.flatten().tolist()]
