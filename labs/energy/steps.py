"""Operations and bytes of a training step of a wide network, by how it treats zeros and logits.

The network: a sparse input, one hidden layer, a softmax of the input's width, momentum.
"""

from dataclasses import dataclass

from labs.energy.published import ADDITION, CACHE, MEMORY, MULTIPLICATION


@dataclass(frozen=True)
class Network:
    """Sizes of a network and its batch.

    Attributes:
        width: Features, and units of the output.
        hidden: Hidden units.
        examples: Examples of a batch.
        entries: Stored entries of an example.
    """

    width: int
    hidden: int
    examples: int
    entries: int


@dataclass(frozen=True)
class Step:
    """Costs of a step.

    Attributes:
        products: Multiplications, each with an addition.
        memory_bytes: Bytes from and to DRAM.
        cache_bytes: Bytes from and to a cache.
    """

    products: float
    memory_bytes: float
    cache_bytes: float

    def joules(self, precision: str = "float32") -> tuple[float, float]:
        """Return the energy of the operations, and of moving numbers."""
        computed = self.products * (MULTIPLICATION[precision] + ADDITION[precision])
        return computed, self.memory_bytes * MEMORY + self.cache_bytes * CACHE


@dataclass(frozen=True)
class Way:
    """A way to compute a step.

    Attributes:
        sparse: Whether only stored entries are multiplied, and only their rows are updated.
        tiled: Whether logits and the output's gradient stay in the cache, tile by tile.
        number_bytes: Bytes of a weight and of a logit.
    """

    sparse: bool
    tiled: bool
    number_bytes: int = 4


def step(network: Network, way: Way) -> Step:
    """Return the costs of a step.

    An update by momentum reads weight, state and gradient, and writes weight and state, by two products a
    weight.
    The output's three products are the logits, the gradient to the hidden units and that to the weights.
    """
    n, size = network, way.number_bytes
    wide, logits, hidden = n.width * n.hidden, n.examples * n.width, n.examples * n.hidden
    touched = min(n.width, n.examples * n.entries) * n.hidden if way.sparse else wide
    gathered = n.examples * n.entries * n.hidden if way.sparse else logits * n.hidden
    products = 2 * gathered + 2 * touched + 3 * logits * n.hidden + 2 * wide
    batch_bytes = 4 * n.examples * n.entries if way.sparse else 2 * size * logits
    # Input: rows for the sums, then weights and state read and written, and the gradient written and read.
    moved = batch_bytes + size * touched + 4 * size * touched + 2 * size * touched * (not way.sparse)
    # Output: weights and state read and written once; activations of the hidden layer are small.
    moved += 4 * size * wide + 6 * size * hidden
    inner = 6 * size * logits + 2 * size * wide + 2 * size * touched * way.sparse
    if way.tiled:
        return Step(products, moved, inner)
    # Logits written, read for the softmax, written and read twice as gradients; weights are read twice more.
    return Step(products, moved + inner + 2 * size * wide, 0)
