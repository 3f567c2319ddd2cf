"""The default documents, for a first try at recommendations; their choices follow the size of the data."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from widenet.spec.layers import NEWEST
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

_MOST_UNITS, _SEQUENCE_UNITS, _FEWEST_UNITS = 512, 128, 64
_MOST_WEIGHTS = 1 << 28
"""Weights of a vector for each feature, which take 1 GiB, and 3 GiB with the state of Adam."""
_SPREAD = 0.9
"""Length of these vectors in the mean, before the first step."""
TERM = {"weight": 0.8, "popularity": 0.4}
"""The neighbourhood term of a set before it is fitted, with the other settings of the specification."""
TERM_IN_ORDER = {"weight": 1.2, "floor": 0.002, "popularity": 0.2, "order": "use"}
"""The same along a sequence."""
MOST_PAIRS = 1 << 30
"""Pairs of features of an example, over all examples, up to which the default network has the term."""
_FEWEST_BATCHES, _FEWEST_EXAMPLES = 16, 8
_STEPS, _FEWEST_EPOCHS, _EPOCHS, _MOST_EPOCHS = 450, 4, 10, 20
_RATE, _RARE = 0.01, 40
"""Learning rate, and the entries of a feature in the mean below which twice the rate is better.
A set then takes twice the steps, too."""
_EVALUATIONS, _PATIENCE = 10, 3


def usual_network(
    field: str, is_sequence: bool, num_features: int, described: Sequence[str] = (), has_term: bool = False
) -> NetworkSpec:
    """Return the default network: it predicts a field's hidden features, or the next ones of a sequence.

    Input and output share one vector for each feature: of 512 numbers, or 128 along a sequence, or of fewer,
    down to 64, where that would be more than 2^28 weights. Further fields are not read: for users without a
    history, they help less than the popularity of the items.

    Args:
        field: Name of the field.
        is_sequence: Whether the field is a sequence.
        num_features: Width of the field.
        described: The descriptions of its features, all of which are part of the vectors.
        has_term: Whether the output has a neighbourhood term; never with fewer units than these. The
            neighbours of a feature take 300 bytes, and its 128 units take 512.
    """
    most_units = _SEQUENCE_UNITS if is_sequence else _MOST_UNITS
    units = min(most_units, max(_FEWEST_UNITS, _power_of_two(_MOST_WEIGHTS // num_features)))
    has_term = has_term and units == most_units
    known = {"name": "history", "kind": "input", "field": field}
    target: dict[str, Any] = {
        "name": "next",
        "kind": "output",
        "field": field,
        "cosine": {"temperature": 0.1},
        "weights": {"layer": "taste", "transposed": True},
        "neighbourhood": {**(TERM_IN_ORDER if is_sequence else TERM), "fit": True} if has_term else None,
    }
    taste: dict[str, Any] = {
        "name": "taste",
        "units": units,
        "activation": "linear",
        "bias": False,
        "described_by": list(described) or None,
    }
    if is_sequence:
        layers = [
            {**known, "last": NEWEST},
            {**taste, "initializer": {"kind": "gaussian", "deviation": 0.1}},
            {"name": "state", "kind": "recurrent", "cell": "gru", "units": units},
            {**target, "predict": "next"},
        ]
        return NetworkSpec.of({"name": "usual, along a sequence", "layers": layers}, "network.json")
    layers = [
        {**known, "denoise": 0.4, "popularity_damping": 0.375},
        {**taste, "initializer": {"kind": "gaussian", "deviation": round(_SPREAD / units**0.5, 3)}},
        {**target, "loss": {"kind": "cross_entropy", "targets": "sum"}},
    ]
    return NetworkSpec.of({"name": "usual", "layers": layers}, "network.json")


def usual_networks(field: str, is_sequence: bool) -> list[NetworkSpec]:
    """Return the default networks for all numbers of features, without descriptions and terms.

    Args:
        field: Name of the field.
        is_sequence: Whether the field is a sequence.
    """
    sizes = (_FEWEST_UNITS << doublings for doublings in range((_MOST_UNITS // _FEWEST_UNITS).bit_length()))
    return [usual_network(field, is_sequence, _MOST_WEIGHTS // units) for units in sizes]


def usual_training(
    has_validation: bool,
    num_examples: int,
    mean_entries: float | None = None,
    is_sequence: bool = False,
) -> TrainingSpec:
    """Return the default training: Adam with a falling learning rate.

    It has ten epochs and a learning rate of 0.01. With the default network, it has twice the rate where a
    feature has fewer than 40 entries in the mean. For a set, it has about 450 steps, or 900 with such
    features, in 4 to 20 epochs. For few examples the batches are smaller than usual, so that an epoch has at
    least 16 of them, down to 8 examples each. With a validation part, the training evaluates on it up to ten
    times, ends after three evaluations without a better metric, and keeps the best weights.

    Args:
        has_validation: Whether there is a validation part.
        num_examples: Number of examples.
        mean_entries: Entries of a feature in the mean; None unless it trains `usual_network`.
        is_sequence: Whether it trains along a sequence.
    """
    most = TrainingSpec.model_fields["batch_size"].default
    batch_size = min(most, max(_FEWEST_EXAMPLES, _power_of_two(num_examples // _FEWEST_BATCHES)))
    epochs, factor = _EPOCHS, 2 if mean_entries is not None and mean_entries < _RARE else 1
    if mean_entries is not None and not is_sequence:
        batches = max(1, ceil(num_examples / batch_size))
        epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, round(factor * _STEPS / batches)))
    usual: dict[str, Any] = {
        "epochs": epochs,
        "batch_size": batch_size,
        "optimizer": {"kind": "adam", "learning_rate": factor * _RATE},
        "schedule": "cosine",
    }
    if has_validation:
        evaluation = {"every_epochs": ceil(epochs / _EVALUATIONS), "stop_after": _PATIENCE}
        usual |= {"evaluation": evaluation, "keep": "best"}
    return TrainingSpec.of(usual, "training.json")


def further_training() -> TrainingSpec:
    """Return the default training of a network that goes on from a run: few epochs at a small rate."""
    further = {
        "epochs": 2,
        "batch_size": 64,
        "optimizer": {"kind": "adam", "learning_rate": 0.001},
        "schedule": "cosine",
    }
    return TrainingSpec.of(further, "training.json")


def _power_of_two(most: int) -> int:
    """Return the largest power of two up to a number; 0 for 0."""
    return 1 << most.bit_length() >> 1
