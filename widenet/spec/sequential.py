"""Layers along a sequence: recurrent ones and blocks of self-attention."""

from typing import ClassVar, Literal

from widenet.spec.activations import ActivationField, PlainActivation
from widenet.spec.document import Rules
from widenet.spec.initializers import InitializerField, Scaled
from widenet.spec.parts import Count, Probability, TrunkLayer


class RecurrentLayer(TrunkLayer):
    """A layer along a sequence: each position's state follows from the state before and the position's input.

    All its sources go along one sequence.
    gru: Cho et al., "Learning phrase representations using RNN encoder-decoder for statistical machine
    translation", EMNLP 2014, with the reset gate behind the product, as cuDNN and torch have it. lstm:
    Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation 9(8), 1997, with forget gates,
    whose biases start with 1.
    """

    takes_features: ClassVar[bool] = True
    goes_along: ClassVar[bool] = True

    kind: Literal["recurrent"]
    """Its kind."""
    cell: Literal["gru", "lstm"] = "gru"
    """Kind of the step from one state to the next. Its activations are sigmoid and tanh."""
    units: Count
    """Numbers in its state."""
    bias: bool = True
    """Add learned biases."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights of the sources and of the previous state; `out` counts the units."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""
    dropout: Probability = 0.0
    """Share of the state's numbers set to zero in the output in each training step, the others rescaled.

    The next state uses all numbers.
    """
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

    @property
    def biases(self) -> int:
        """Number of its biases: of a GRU, the candidate has one for its sources and one for its state."""
        return 4 * self.units


class AttentionLayer(TrunkLayer):
    """A block of causal self-attention: each position reads its source at its own and at earlier positions.

    x + dropout(attention(normalized x)), then the same around two fully connected layers at each position.
    It has as many units as its source. Kang and McAuley, "Self-attentive sequential recommendation", ICDM
    2018, section III.
    """

    goes_along: ClassVar[bool] = True

    kind: Literal["attention"]
    """Its kind."""
    heads: Count = 1
    """Parts of the units that attend to positions by themselves; it divides the number of units."""
    positions: Literal["relative", "absolute", "none"] = "relative"
    """How the block tells positions apart, by learned vectors of which each head has its part.

    relative: one for each distance, added to the keys of the positions so far back. absolute: one for each
    position, counted from the oldest that is read and added to the source, as the first of several blocks has
    them. none: not at all.
    """
    feed_forward: Count | None = None
    """Units of the first of the two fully connected layers; unset: as many as the block has."""
    activation: ActivationField = PlainActivation(kind="relu")
    """Activation of these units."""
    dropout: Probability = 0.0
    """Share of the numbers set to zero in each training step, of what attention and what the fully connected
    layers add to the source; the others are rescaled.
    """
    normalize_output: bool = False
    """Normalize the output too, as after the last of several blocks."""
    initializer: InitializerField = Scaled(kind="xavier")
    """Initial weights and vectors of positions."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""

    def rules(self, num_sources: int) -> Rules:
        """Return the rule by which it has one source."""
        return [("source", num_sources != 1, "of an attention layer must be one layer", num_sources)]
