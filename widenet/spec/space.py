"""space.json: a network and a training document in which some values are left open for a search."""

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import count, islice, product
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, ValidationError, model_validator

from widenet.errors import DocumentError
from widenet.spec.document import Document, Spec, first_mistake
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

FIXED = ("training.epochs", "training.evaluation", "training.keep", "training.checkpoints")
"""Places whose values are the same in every trial, so that trials compare."""
_MOST_PAIRS = 10_000
"""Most pairs of documents that `SpaceSpec.grid` lists."""


class From(Spec):
    """One of some values, which may hold further choices."""

    options: Annotated[list[Any], Field(alias="from", min_length=1, strict=False)]
    """The values."""

    @property
    def labels(self) -> list[str]:
        """The options as text: the text itself, or JSON."""
        return [option if isinstance(option, str) else json.dumps(option) for option in self.options]

    def value(self, label: str) -> Any:
        """Return the option with a label."""
        return self.options[self.labels.index(label)]

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

    def value(self, number: float) -> float:
        """Return a number itself, as `From.value` does an option."""
        return number

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.between
        if low >= high:
            raise ValueError("between must begin with the lower bound")
        if self.log and low <= 0:
            raise ValueError("log needs bounds above 0")
        return self


Choice = From | Between
Choose = Callable[[str, Choice], Any]
"""Returns the number of a `Between`, and the label of a `From`, at a place."""


class SpaceSpec(Document):
    """Two documents, in which `{"from": [...]}` and `{"between": [a, b]}` are open values."""

    usual_name: ClassVar[str] = "space.json"
    network: dict[str, Any]
    """The network document."""
    training: dict[str, Any]
    """The training document."""

    @property
    def choices(self) -> dict[str, Choice]:
        """The open values by their places, those within the options of others included."""
        return dict(_choices(dict(self), ""))

    @property
    def fixed_training(self) -> TrainingSpec:
        """The training document with those of its fields alone that are the same in every trial."""
        names = [place.removeprefix("training.") for place in FIXED]
        fixed = {name: self.training[name] for name in names if name in self.training}
        return TrainingSpec.of(fixed, f"{self.where}: training")

    def documents(self, choose: Choose) -> tuple[NetworkSpec, TrainingSpec]:
        """Return the two documents that some choices make; raises DocumentError if they break a rule."""
        plain = self.plain_documents(choose)
        network = NetworkSpec.of(plain["network"], f"{self.where}: network")
        return network, TrainingSpec.of(plain["training"], f"{self.where}: training")

    def plain_documents(self, choose: Choose) -> dict[str, Any]:
        """Return the values of the two documents that some choices make; they may break rules."""
        return {name: _chosen(values, name, choose) for name, values in self}

    def grid(self) -> list[dict[str, Any]]:
        """Return the choices of every pair of documents; none if there are more than 10,000."""
        pairs = list(islice(_assignments(dict(self), ""), _MOST_PAIRS + 1))
        return pairs if len(pairs) <= _MOST_PAIRS else []

    @model_validator(mode="after")
    def _check(self) -> Self:
        DocumentError.require(self.choices, "must leave a value open, as from or between")
        rules = (
            (place, place.startswith(FIXED), "must be the same in every trial") for place in self.choices
        )
        DocumentError.refuse(str, *rules)
        return self


def _opened(value: Any, place: str) -> tuple[Choice | None, list[tuple[str, Any]]]:
    """Return the choice that a value is, None if it is none, and the values inside it with their places.

    These are the options of a choice, and what an object or a list holds.
    """
    if isinstance(value, list):
        return None, [(f"{place}[{number}]", inner) for number, inner in enumerate(value)]
    if not isinstance(value, dict):
        return None, []
    if not value.keys() & {"from", "between"}:
        return None, [(f"{place}.{name}".lstrip("."), inner) for name, inner in value.items()]
    try:
        choice: Choice = (From if "from" in value else Between).model_validate(value)
    except ValidationError as error:
        mistake = first_mistake(place, value, error.errors(include_url=False)[0])
        mistake.place = str(mistake.place).replace(": ", ".", 1)
        raise mistake from None
    options = choice.options if isinstance(choice, From) else []
    return choice, [(f"{place}.from[{number}]", option) for number, option in enumerate(options)]


def _choices(value: Any, place: str) -> Iterator[tuple[str, Choice]]:
    choice, inside = _opened(value, place)
    if choice is not None:
        yield place, choice
    for name, inner in inside:
        yield from _choices(inner, name)


def _chosen(value: Any, place: str, choose: Choose) -> Any:
    """Return plain values with a value in place of every choice."""
    choice, inside = _opened(value, place)
    if choice is None:
        chosen = [_chosen(inner, name, choose) for name, inner in inside]
        plain = chosen if isinstance(value, list) else value
        return dict(zip(value, chosen, strict=True)) if isinstance(value, dict) else plain
    made = choose(place, choice)
    if isinstance(choice, Between):
        return made
    name, option = inside[choice.labels.index(made)]
    return _chosen(option, name, choose)


def _assignments(value: Any, place: str) -> Iterator[dict[str, Any]]:
    """Yield every way to make the choices in a value."""
    choice, inside = _opened(value, place)
    if isinstance(choice, From):
        for label, (name, option) in zip(choice.labels, inside, strict=True):
            for inner in _assignments(option, name):
                yield {place: label, **inner}
    elif choice is not None:
        low, high = map(int, choice.between)
        numbers = range(low, high + 1) if choice.is_whole else count()  # no end of numbers is too many
        yield from ({place: number} for number in islice(numbers, _MOST_PAIRS + 1))
    else:
        for parts in product(*(list(_assignments(inner, name)) for name, inner in inside)):
            yield {key: chosen for part in parts for key, chosen in part.items()}


def from_values(values: Mapping[str, Any]) -> Choose:
    """Return a function that makes the choices that are listed by their places."""
    return lambda place, _: values[place]
