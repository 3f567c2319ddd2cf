"""Functions of several kernels: a program's part of a tile, and a part of the targets of one unit."""

import triton
import triton.language as tl


@triton.jit
def tile_part(products, biases, num_examples, num_units, EXAMPLES: tl.constexpr, UNITS: tl.constexpr):
    """Return a program's part of a tile: examples, units, places, which places exist, and logits."""
    examples = tl.program_id(1) * EXAMPLES + tl.arange(0, EXAMPLES)
    units = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    place = examples.to(tl.int64)[:, None] * num_units + units[None, :]
    inside = (examples < num_examples)[:, None] & (units < num_units)[None, :]
    z = tl.load(products + place, mask=inside, other=0.0).to(tl.float32)
    if biases is not None:
        z += tl.load(biases + units, mask=units < num_units, other=0.0)[None, :]
    return examples, units, place, inside, z


@triton.jit
def store_deltas(deltas, column_sums, delta, place, inside, units, num_units):
    """Store a part's gradient, zero where no logit exists, and its sums over the part's examples."""
    tl.store(deltas + place, delta.to(deltas.dtype.element_ty), mask=inside)
    tl.store(
        column_sums + tl.program_id(1).to(tl.int64) * num_units + units,
        tl.sum(delta, axis=0),
        mask=units < num_units,
    )


@triton.jit
def targets_part(start, last, examples, products, bias, unit, num_units, ENTRIES: tl.constexpr):
    """Return some of a unit's targets: entries, which of them exist, examples, places, logits, which count.

    If a target occurs twice, the last entry counts.
    """
    entry = start + tl.arange(0, ENTRIES)
    inside = entry < last
    example = tl.load(examples + entry, mask=inside, other=0)
    following = tl.load(examples + entry + 1, mask=entry + 1 < last, other=-1)
    place = example * num_units + unit
    z = tl.load(products + place, mask=inside, other=0.0).to(tl.float32) + bias
    return entry, inside, example, place, z, inside & (following != example)
