"""The default documents, for a first try at recommendations."""

from collections.abc import Sequence
from typing import Any

from widenet.spec.layers import NEWEST
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_UNITS, _SEQUENCE_UNITS = 256, 64
_FEWEST_STEPS, _FEWEST_EXAMPLES = 16, 8
_PATIENCE = 3


def usual_network(field: str, is_sequence: bool, described: Sequence[str] = ()) -> NetworkSpec:
    """Return the default network: it predicts a field's hidden features, or the next ones of a sequence.

    Input and output share one vector for each feature. Further fields are not read: for users without a
    history, they help less than the popularity of the items.

    Args:
        field: Name of the field.
        is_sequence: Whether the field is a sequence.
        described: The descriptions of its features, all of which are part of the vectors.
    """
    known = {"name": "history", "kind": "input", "field": field}
    target = {
        "name": "next",
        "kind": "output",
        "field": field,
        "weights": {"layer": "taste", "transposed": True},
    }
    taste: dict[str, Any] = {"name": "taste", "activation": "linear", "bias": False}
    if described:
        taste["described_by"] = list(described)
    if is_sequence:
        layers = [
            {**known, "last": NEWEST},
            {**taste, "units": _SEQUENCE_UNITS, "initializer": {"kind": "gaussian", "deviation": 0.1}},
            {"name": "state", "kind": "recurrent", "cell": "gru", "units": _SEQUENCE_UNITS},
            {**target, "predict": "next"},
        ]
        return NetworkSpec.of({"name": "usual, along a sequence", "layers": layers}, "network.json")
    layers = [
        {**known, "denoise": 0.4, "popularity_damping": 0.5},
        {**taste, "units": _UNITS, "initializer": {"kind": "gaussian", "deviation": 0.06}},
        {**target, "loss": {"kind": "cross_entropy", "targets": "sum"}, "cosine": {"temperature": 0.1}},
    ]
    return NetworkSpec.of({"name": "usual", "layers": layers}, "network.json")


def usual_training(has_validation: bool, num_examples: int) -> TrainingSpec:
    """Return the default training: ten epochs of Adam with a falling learning rate.

    With a validation part, the training evaluates on it, ends after three epochs without a better metric, and
    keeps the best weights. For few examples the batches are smaller than usual, so that an epoch has at least
    16 of them, down to 8 examples each.
    """
    usual: dict[str, Any] = {
        "epochs": 10,
        "optimizer": {"kind": "adam", "learning_rate": 0.01},
        "schedule": "cosine",
    }
    batch_size = max(_FEWEST_EXAMPLES, 1 << (num_examples // _FEWEST_STEPS).bit_length() >> 1)
    if batch_size < TrainingSpec.model_fields["batch_size"].default:
        usual["batch_size"] = batch_size
    if has_validation:
        usual |= {"evaluation": {"stop_after": _PATIENCE}, "keep": "best"}
    return TrainingSpec.of(usual, "training.json")
