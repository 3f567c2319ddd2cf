"""Import of Keras's GRU and LSTM layers, if widenet has the same formulas."""

from typing import Any

import numpy as np

from widenet.frameworks.keras_weights import Weights
from widenet.frameworks.operations import Operation, Recur, Unknown

_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 1, 2, 3)}
"""Positions in Keras of widenet's gates: reset, update, new; or in, forget, new, out."""


def recurrent(name: str, kind: str, config: dict[str, Any], source: str, weights: Weights) -> Operation:
    """Return the operation of a GRU or an LSTM."""
    unsupported = _unsupported(kind, config)
    if unsupported is not None:
        return Unknown(name, f"{kind} with {unsupported}")
    kernel, state_kernel, *bias = weights.of(name, 3 if config.get("use_bias", True) else 2)
    biases = [_reordered(bias[0], kind)] if bias else []
    if biases and kind == "GRU":
        to_sums, to_state = biases[0]
        third = len(to_state) // 3
        biases = [
            np.concatenate(
                [to_sums[: 2 * third] + to_state[: 2 * third], to_sums[2 * third :], to_state[2 * third :]]
            )
        ]
    return Recur(
        name,
        source,
        "gru" if kind == "GRU" else "lstm",
        _reordered(kernel, kind).T,
        _reordered(state_kernel, kind).T,
        *biases,
    )


def _unsupported(kind: str, config: dict[str, Any]) -> str | None:
    """Return a setting of a layer that widenet lacks; None if there is none."""
    supported = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    for key, value in supported.items():
        if config.get(key, value) != value:
            return f'"{key}": "{config[key]}"'
    for key in ("go_backwards", "stateful", "return_state"):
        if config.get(key):
            return f'"{key}"'
    if kind == "GRU" and not config.get("reset_after", False):
        return "the reset gate before the product (reset_after=False)"
    return None


def _reordered(numbers: np.ndarray, kind: str) -> np.ndarray:
    """Reorder the gates along the last axis to widenet's order."""
    parts = np.split(numbers, len(_GATES[kind]), axis=-1)
    return np.concatenate([parts[gate] for gate in _GATES[kind]], axis=-1)
