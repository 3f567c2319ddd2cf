"""Initializers: the weights that a layer starts with."""

from typing import Literal, Self

from pydantic import model_validator

from widenet.spec.document import Positive, Spec, named


class Scaled(Spec):
    """Numbers whose spread follows from the units that enter (in) or leave (out) the whole weight.

    xavier: uniform within +-scale * sqrt(6 / (in + out)); Glorot and Bengio, AISTATS 2010, equation 16.
    caffe_xavier: uniform within +-scale * sqrt(3 / out). The others are gaussian. Their standard deviations
    are for he scale * sqrt(2 / in), He et al., ICCV 2015, equation 10; for selu scale / sqrt(in), as SELU
    networks need, Klambauer et al., NeurIPS 2017, section 3; for reciprocal scale / in.
    """

    kind: Literal["xavier", "caffe_xavier", "he", "selu", "reciprocal"]
    """Its name."""
    scale: Positive = 1.0
    """Factor on the limit or the deviation."""


class Gaussian(Spec):
    """Gaussian around zero."""

    kind: Literal["gaussian"]
    """Its name."""
    deviation: Positive = 0.01
    """Standard deviation."""


class Uniform(Spec):
    """Uniform from low to limit."""

    kind: Literal["uniform"]
    """Its name."""
    limit: Positive = 0.01
    """Largest value."""
    low: float | None = None
    """Smallest value; unset: -limit."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low is not None and self.low > self.limit:
            raise ValueError(f"low must be at most limit; got {self.low:g} and {self.limit:g}")
        return self


class Constant(Spec):
    """Every weight the same."""

    kind: Literal["constant"]
    """Its name."""
    value: float = 0.0
    """The value."""


Initializer = Scaled | Gaussian | Uniform | Constant
InitializerField = named(Initializer)
