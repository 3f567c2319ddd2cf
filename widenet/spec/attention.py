"""Layers of self-attention along a sequence."""

from typing import ClassVar, Literal

from widenet.spec.activations import ActivationField, PlainActivation
from widenet.spec.document import Spec
from widenet.spec.initializers import InitializerField, Xavier
from widenet.spec.parts import Count, Name, OfLayers, Probability, Sources


class AttentionLayer(Spec, OfLayers):
    """A block of causal self-attention: each position reads its source at its own and at earlier positions.

    x + dropout(attention(normalized x)), then the same around two fully connected layers at each position.
    It has as many units as its source. Kang and McAuley, "Self-attentive sequential recommendation", ICDM
    2018, section III.
    """

    goes_along: ClassVar[bool] = True
    unshared: ClassVar[str] = "whose weights serve no other layer"
    colour: ClassVar[int] = 7

    kind: Literal["attention"]
    """Its kind."""
    name: Name
    """The layer's name."""
    source: Sources | None = None
    """The layer it takes its input from, along a sequence; unset: the layer before it in the document."""
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
    initializer: InitializerField = Xavier(kind="xavier")
    """Initial weights and vectors of positions."""
    frozen: bool = False
    """Leave all weights of the layer as the training begins with them, to the bit."""
    skip: Sources | None = None
    """Layers with the same number of units that are added to the output."""

    def check(self, place: str, num_sources: int) -> None:
        """See `OfLayers.check`."""
        if num_sources != 1:
            raise ValueError(
                f"{place}.source of an attention layer must be one layer; got {num_sources}. Add them up in a"
                " hidden layer first."
            )
