"""Drifting outputs: those that a step can train, and tell the whole loss of, without computing their
logits.
"""

from math import isqrt

from widenet.plan.layout import Layout
from widenet.spec.layers import OutputLayer

_ASSUMED_ENTRIES = 100
"""Targets of an example by which it is judged what is less work: the bits must not depend on how many a
dataset has.
"""

DRIFT_BLOCK_ROWS = 1024
"""Rows that a thread brings up to date together, where all are: few enough that they stay in a core's
cache.
"""

DRIFT_GRAM_WINDOWS = 8
"""Windows after which the sum of the rows' products is taken anew: what each step adds to it is rounded,
and that adds up.
"""


def drifts(layer: OutputLayer, layout: Layout) -> bool:
    """Whether the rows of an output move by one matrix a step, but for its targets, and whether that at least
    halves the work.

    So it is where the derivative is a - t for every unit, and a step nothing but its product with a rate and
    penalties on squares.
    """
    training = layout.training
    unset = (
        layer.cosine,
        layer.weight_norm,
        layer.sample,
        layer.delta_boost,
        layer.delta_norm,
        training.gradient_norm_limit,
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
        and training.precision == "float32"
        and layout.owns(layer.name)
        and not layout.of_output(layer.name).by_columns
    ):
        return False
    num, width, columns = training.batch_size, layout.units[layer.name], drift_columns(layer, layout)
    return 2 * drift_operations(num, num * _ASSUMED_ENTRIES, width, columns) <= 6 * num * width * columns


def drift_columns(layer: OutputLayer, layout: Layout) -> int:
    """Numbers of a unit: its weights, and its bias if it has one."""
    return layout.weights[layer.name].row_length + layer.bias


def drift_window(width: int, columns: int) -> int:
    """Steps after which all rows catch up: more would make each step dearer, for every one of them is a
    matrix to turn.
    """
    return max(1, isqrt(width // columns))


def drift_bytes(width: int, columns: int) -> int:
    """What every process holds beside the rows: a matrix for each step of a window, and the sum of the
    rows' outer products.
    """
    return (4 * (drift_window(width, columns) + 1) + 8) * columns**2


def drift_operations(num_examples: int, entries: int, width: int, columns: int, share: float = 1.0) -> int:
    """Multiplications and additions in the matrix products of a step, the mean over a window.

    entries: targets of the batch. share: of the rows, what a process holds; the rest every process does for
    itself.
    """
    steps, touched = drift_window(width, columns), min(entries, width)
    whole = columns**3 * (steps + 4) + 8 * num_examples * columns**2
    woken = width / steps * (2 + 2 / DRIFT_GRAM_WINDOWS)
    return round(whole + share * columns**2 * (woken + 4 * touched))
