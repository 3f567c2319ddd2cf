"""Outputs with deferred rows, which a step trains without computing their logits."""

from math import isqrt

from widenet.plan.layout import Layout
from widenet.spec.layers import OutputLayer

_ASSUMED_ENTRIES = 100
"""Assumed targets of an example when comparing the work; the bits must not depend on the dataset's number."""

CATCH_UP_BLOCK_ROWS = 1024
"""Rows that a thread lets catch up together if all rows do; they fit into a core's cache."""

GRAM_WINDOWS = 8
"""Windows after which the sum of the rows' outer products is recomputed, because rounding errors add up."""


def defers_rows(layer: OutputLayer, layout: Layout) -> bool:
    """Return whether an output defers the updates of its rows, which must halve the work at least.

    This needs a slope of a - t for every unit, plain SGD, and no penalties but those on squares.
    """
    training = layout.training
    unset = (
        layer.cosine,
        layer.weight_norm,
        layer.sample,
        layer.delta_boost,
        layer.delta_norm,
        training.gradient_norm_limit,
        training.averaging,
        training.pruning,
    )
    if not (
        layout.fields[layer.field].kind == "sparse"
        and layer.activation.kind == "linear"
        and layer.loss.kind == "l2"
        and layer.others == "use"
        and layer.predict != "next"
        and not layer.weightless
        and all(setting is None for setting in unset)
        and training.optimizer.kind == "sgd"
        and training.l1 == 0
        and not training.brake
        and training.precision == training.weight_precision == "float32"
        and layout.owns(layer.name)
        and not layout.of_output(layer.name).by_columns
    ):
        return False
    num, width, columns = training.batch_size, layout.units[layer.name], deferred_columns(layer, layout)
    return 2 * deferred_operations(num, num * _ASSUMED_ENTRIES, width, columns) <= 6 * num * width * columns


def deferred_columns(layer: OutputLayer, layout: Layout) -> int:
    """Return the numbers of a unit: its weights, and its bias if it has one."""
    return layout.weights[layer.name].row_length + layer.bias


def catch_up_window(width: int, columns: int) -> int:
    """Return the number of steps after which all rows catch up; each costs a matrix product per step."""
    return max(1, isqrt(width // columns))


def deferred_bytes(width: int, columns: int) -> int:
    """Return the bytes of a process besides the rows: a matrix per step of a window, and their products."""
    return (4 * (catch_up_window(width, columns) + 1) + 8) * columns**2


def deferred_operations(num_examples: int, entries: int, width: int, columns: int, share: float = 1.0) -> int:
    """Return multiplications and additions in a step's matrix products, averaged over a window.

    Args:
        num_examples: Examples of the batch.
        entries: Targets of the batch.
        width: Units of the output.
        columns: Numbers of a unit.
        share: Share of the rows that a process holds; every process does all other work itself.
    """
    steps, touched = catch_up_window(width, columns), min(entries, width)
    whole = columns**3 * (steps + 4) + 8 * num_examples * columns**2
    caught_up = width / steps * (2 + 2 / GRAM_WINDOWS)
    return round(whole + share * columns**2 * (caught_up + 4 * touched))
