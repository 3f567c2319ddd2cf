"""space.json: two documents with values left open for a search, and which of them a dataset allows."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationError, model_validator

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError
from widenet.plan.layout import Layout
from widenet.randomness import stream
from widenet.spec.document import Document, Spec, first_mistake
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training

FIXED = ("training.epochs", "training.evaluation", "training.keep", "training.checkpoints")
"""Places whose values are the same in every trial, so that trials compare."""
_TRIES = 300
"""Number of random pairs of documents that are tried for a value."""


class From(Spec):
    """One of some values, which may hold further open values."""

    options: Annotated[list[Any], Field(alias="from", min_length=1, strict=False)]
    """The values."""

    @property
    def labels(self) -> list[str]:
        """The options as text: the text itself, or JSON."""
        return [option if isinstance(option, str) else json.dumps(option) for option in self.options]

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.labels)) < len(self.options):
            raise ValueError("from names a value twice")
        return self


class Between(Spec):
    """A number between two bounds, both included: a whole number if both are."""

    between: Annotated[list[float | int], Field(min_length=2, max_length=2, strict=False)]
    """The lower and the upper bound."""
    log: bool = False
    """Search evenly on a logarithmic scale, as for learning rates."""

    @property
    def is_whole(self) -> bool:
        """Whether the number is a whole one."""
        return all(isinstance(bound, int) for bound in self.between)

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.between
        if low >= high:
            raise ValueError("between must begin with the lower bound")
        if self.log and low <= 0:
            raise ValueError("log needs bounds above 0")
        return self


Open = From | Between
Choose = Callable[[str, Open], Any]
"""Returns the number of a `Between`, or the label of a `From`, at a place."""


class SpaceSpec(Document):
    """Two documents, in which `{"from": [...]}` and `{"between": [a, b]}` are open values."""

    usual_name: ClassVar[str] = "space.json"
    network: dict[str, Any]
    """The network document."""
    training: dict[str, Any]
    """The training document."""

    @property
    def open_values(self) -> dict[str, Open]:
        """The open values by their places, those within the options of others included."""
        return dict(_open_values(dict(self), ""))

    @property
    def fixed_training(self) -> TrainingSpec:
        """The training document with those of its fields alone that are the same in every trial."""
        names = [place.removeprefix("training.") for place in FIXED]
        fixed = {name: self.training[name] for name in names if name in self.training}
        return TrainingSpec.of(fixed, f"{self.where}: training")

    def documents(self, choose: Choose) -> tuple[NetworkSpec, TrainingSpec]:
        """Return the two documents that some choices make; raises DocumentError if they break a rule."""
        network = NetworkSpec.of(_filled(self.network, "network", choose), f"{self.where}: network")
        training = _filled(self.training, "training", choose)
        return network, TrainingSpec.of(training, f"{self.where}: training")

    def plain(self, choices: Mapping[str, Any]) -> dict[str, Any]:
        """Return choices with the options themselves in place of their labels."""
        plain = dict(choices)
        for place, opened in self.open_values.items():
            if isinstance(opened, From) and place in choices:
                plain[place] = opened.options[opened.labels.index(choices[place])]
        return plain

    @model_validator(mode="after")
    def _check(self) -> Self:
        places = self.open_values
        DocumentError.require(places, "must leave a value open, as from or between")
        rules = ((place, place.startswith(FIXED), "must be the same in every trial") for place in places)
        DocumentError.refuse(str, *rules)
        return self


def _open(value: Any, place: str) -> Open | None:
    """Return the open value that a part of a document is; None if it is none."""
    if not isinstance(value, dict) or not value.keys() & {"from", "between"}:
        return None
    try:
        return (From if "from" in value else Between).model_validate(value)
    except ValidationError as error:
        mistake = first_mistake(place, value, error.errors(include_url=False)[0])
        mistake.place = str(mistake.place).replace(": ", ".", 1)
        raise mistake from None


def _inside(value: Any, place: str) -> dict[str, Any]:
    """Return what an object, a list or the options of a choice hold, by their places."""
    if isinstance(value, From):
        return {f"{place}.from[{number}]": option for number, option in enumerate(value.options)}
    if isinstance(value, list):
        return {f"{place}[{number}]": inner for number, inner in enumerate(value)}
    if isinstance(value, dict):
        return {f"{place}.{name}".lstrip("."): inner for name, inner in value.items()}
    return {}


def _open_values(value: Any, place: str) -> Iterator[tuple[str, Open]]:
    opened = _open(value, place)
    if opened is not None:
        yield place, opened
    for name, inner in _inside(opened or value, place).items():
        yield from _open_values(inner, name)


def _filled(value: Any, place: str, choose: Choose) -> Any:
    """Return plain values with a chosen one in place of each open value."""
    opened = _open(value, place)
    if opened is not None:
        chosen = choose(place, opened)
        if isinstance(opened, Between):
            return chosen
        number = opened.labels.index(chosen)
        return _filled(opened.options[number], f"{place}.from[{number}]", choose)
    filled = [_filled(inner, name, choose) for name, inner in _inside(value, place).items()]
    if isinstance(value, dict):
        return dict(zip(value, filled, strict=True))
    return filled if isinstance(value, list) else value


def from_labels(choices: Mapping[str, Any]) -> Choose:
    """Return a function that makes the choices that are listed by their places."""
    return lambda place, _: choices[place]


def check_space(space: SpaceSpec, dataset: Dataset) -> None:
    """Check that every option and every bound of a space is part of documents that fit a dataset.

    Raises:
        DocumentError, FitError: A value is part of no such documents; the error is the first broken rule.
    """
    for place, opened in space.open_values.items():
        for value in opened.labels if isinstance(opened, From) else opened.between:
            _check_value(space, dataset, place, value)


def layout_of(space: SpaceSpec, dataset: Dataset, choose: Choose) -> Layout:
    """Return the layout of the documents that some choices make; trials fit no neighbourhood term.

    Raises:
        DocumentError, FitError: They break a rule, or do not fit the dataset.
    """
    network, training = space.documents(choose)
    return check_training(network.unfitted(), training, dataset.path, dataset.manifest)


def _check_value(space: SpaceSpec, dataset: Dataset, place: str, value: Any) -> None:
    """Raise the first broken rule unless some random choices fit, with a value at a place."""
    first: DocumentError | FitError | None = None
    for attempt in range(_TRIES):
        random = stream(0, "tuning/check", attempt)

        def choose(here: str, opened: Open, random: Any = random) -> Any:
            if here == place:
                return value
            if isinstance(opened, Between):
                return opened.between[int(random.integers(2))]
            before, _, option = place.partition(f"{here}.from[")
            if option and not before:  # the place is within this option
                return opened.labels[int(option.partition("]")[0])]
            return opened.labels[int(random.integers(len(opened.labels)))]

        try:
            layout_of(space, dataset, choose)
            return
        except (DocumentError, FitError) as error:
            first = first or error
    assert first is not None
    raise first
