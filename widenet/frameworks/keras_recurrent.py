"""Keras's GRU and LSTM layers read, where their formulas are those of this project."""

from typing import Any

import numpy as np

from widenet.frameworks.keras_weights import Weights
from widenet.frameworks.operations import Operation, Recur, Unknown

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 1, 2, 3)}
"""Where Keras has the gates that stand first, second and so on here: reset, update, new; in, forget, new,
out.
"""


def recurrent(name: str, kind: str, config: dict[str, Any], source: str, weights: Weights) -> Operation:
    """What a GRU or an LSTM does, at the end of a sequence or along it."""
    odd = _odd(kind, config)
    if odd is not None:
        return Unknown(name, f"{kind} with {odd}")
    kernel, own, *bias = weights.of(name, 3 if config.get("use_bias", True) else 2)
    found = [_in_order(bias[0], kind)] if bias else []
    if found and kind == "GRU":
        to_sums, to_state = found[0]
        third = len(to_state) // 3
        found = [
            np.concatenate(
                [to_sums[: 2 * third] + to_state[: 2 * third], to_sums[2 * third :], to_state[2 * third :]]
            )
        ]
    return Recur(
        name,
        source,
        "gru" if kind == "GRU" else "lstm",
        _in_order(kernel, kind).T,
        _in_order(own, kind).T,
        *found,
    )


def _odd(kind: str, config: dict[str, Any]) -> str | None:
    """What a layer has that none here has."""
    usual = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    for key, wanted in usual.items():
        if config.get(key, wanted) != wanted:
            return f'"{key}": "{config[key]}"'
    for key in ("go_backwards", "stateful", "return_state"):
        if config.get(key):
            return f'"{key}"'
    if kind == "GRU" and not config.get("reset_after", False):
        return "the reset gate before the product (reset_after=False)"
    return None


def _in_order(numbers: np.ndarray, kind: str) -> np.ndarray:
    """The gates along the last axis, in the order of this project."""
    parts = np.split(numbers, len(_GATES[kind]), axis=-1)
    return np.concatenate([parts[gate] for gate in _GATES[kind]], axis=-1)
