"""Initializers: the weights that a layer starts with."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from widenet.spec.document import Spec, named

Scale = Annotated[float, Field(gt=0)]


class Xavier(Spec):
    """Uniform within +-scale * sqrt(6 / (in + out)). Glorot and Bengio, AISTATS 2010, equation 16."""

    kind: Literal["xavier"]
    """Its name."""
    scale: Scale = 1.0
    """Factor on the limit."""


class CaffeXavier(Spec):
    """Uniform within +-scale * sqrt(3 / out), out the number of receiving units."""

    kind: Literal["caffe_xavier"]
    """Its name."""
    scale: Scale = 1.0
    """Factor on the limit."""


class He(Spec):
    """Gaussian with standard deviation scale * sqrt(2 / in). He et al., ICCV 2015, equation 10."""

    kind: Literal["he"]
    """Its name."""
    scale: Scale = 1.0
    """Factor on the deviation."""


class Gaussian(Spec):
    """Gaussian around zero."""

    kind: Literal["gaussian"]
    """Its name."""
    deviation: Scale = 0.01
    """Standard deviation."""


class Uniform(Spec):
    """Uniform from low to limit."""

    kind: Literal["uniform"]
    """Its name."""
    limit: Scale = 0.01
    """Largest value."""
    low: float | None = None
    """Smallest value; unset: -limit."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.low is not None and self.low > self.limit:
            raise ValueError(f"low must be at most limit; got {self.low:g} and {self.limit:g}")
        return self


class UnitBall(Spec):
    """The vector of each wide unit (elsewhere: of each receiving unit) uniform in the ball around zero."""

    kind: Literal["unit_ball"]
    """Its name."""
    radius: Scale = 1.0
    """Radius of the ball."""


class Constant(Spec):
    """Every weight the same."""

    kind: Literal["constant"]
    """Its name."""
    value: float = 0.0
    """The value."""


class Selu(Spec):
    """Gaussian with standard deviation scale / sqrt(in), as SELU networks need.

    Klambauer et al., NeurIPS 2017, section 3.
    """

    kind: Literal["selu"]
    """Its name."""
    scale: Scale = 1.0
    """Factor on the deviation."""


class Reciprocal(Spec):
    """Gaussian with standard deviation scale / in."""

    kind: Literal["reciprocal"]
    """Its name."""
    scale: Scale = 1.0
    """Factor on the deviation."""


Drawn = Xavier | CaffeXavier | He | Gaussian | Uniform | UnitBall | Constant | Selu | Reciprocal
DrawnField = named(Drawn)


class FromFile(Spec):
    """Vectors from a file, each for the feature whose id is its key.

    Of hidden layers over one sparse input, and of outputs over hidden layers.
    """

    kind: Literal["file"]
    """Its name."""
    path: Annotated[str, Field(min_length=1)]
    """The file: .npz, .npy, .parquet, .arrow or text. A relative path begins in the current directory."""
    scale: Scale = 1.0
    """Factor on the vectors."""
    otherwise: DrawnField = Xavier(kind="xavier")  # type: ignore[valid-type]
    """Initial weights of features that the file lacks, and of other sources."""


Initializer = Drawn | FromFile
InitializerField = named(Initializer)
