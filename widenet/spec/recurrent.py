"""Layers that go along a sequence."""

from typing import ClassVar, Literal

from widenet.spec.document import Spec
from widenet.spec.initializers import InitializerField, Xavier
from widenet.spec.parts import Count, Name, OfLayers, Probability, Sources


class RecurrentLayer(Spec, OfLayers):
    """A layer along a sequence: each position's state follows from the state before and the position's input.

    gru: Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine
    translation", EMNLP 2014, with the reset gate behind the product, as cuDNN and torch have it. lstm:
    Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997, with forget gates,
    whose biases start with 1.
    """

    takes_features: ClassVar[bool] = True
    goes_along: ClassVar[bool] = True
    unshared: ClassVar[str] = "whose gates share their weights with nobody"
    colour: ClassVar[int] = 3

    kind: Literal["recurrent"]
    """Its kind."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer or layers it takes its input from, all along one sequence; unset: the layer before it in
    the document.
    """
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of the step from one state to the next. Its activations are sigmoid and tanh."""
    units: Count
    """Numbers in its state."""
    bias: bool = True
    """Add learned biases."""
    initializer: InitializerField = Xavier(kind="xavier")
    """Initial weights of the sources and of the previous state; `out` counts the units."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""
    dropout: Probability = 0.0
    """Share of the state's numbers set to zero in the output in each training step, the others rescaled.

    The next state uses all numbers.
    """
    skip: Sources | None = None
    """Layers with the same number of units that are added to the output."""
    split: bool | None = None
    """Cut the weights of the gates into shards of rows, so that each process holds and updates only its
    share; the cells are computed in every process.

    Unset: weights of 16 MiB or more are cut if they and their state take at least the bytes that a step of
    `last` positions in each example then sends. Weights from sparse inputs are always cut, by features.
    """

    @property
    def sums(self) -> int:
        """Numbers that its sources are multiplied into: one a gate and unit."""
        return self.units * {"gru": 3, "lstm": 4}[self.cell]
