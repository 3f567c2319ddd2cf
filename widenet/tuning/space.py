"""space.json: two documents with values left open for a search, and which of them a dataset allows."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, islice, product
from typing import Annotated, Any, ClassVar, Self, TypeVar

import numpy as np
from pydantic import Field, ValidationError, model_validator

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError
from widenet.plan.layout import Layout
from widenet.randomness import stream
from widenet.runs.documents import target_of
from widenet.spec.document import Document, Spec, first_mistake
from widenet.spec.metric_names import check_metric
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training

FIXED = ("training.epochs", "training.evaluation", "training.keep", "training.checkpoints")
"""Places whose values are the same in every trial, so that trials compare."""
_MOST_PAIRS = 10_000
"""Most pairs of documents that `SpaceSpec.grid` lists."""
_Made = TypeVar("_Made")
_TRIES = 100
"""Number of random pairs of documents that are tried for a value, before all if the space is small."""
_DIGITS = 4
"""Significant digits of a chosen number."""


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


def with_metric(space: SpaceSpec, metric: str | None) -> SpaceSpec:
    """Return a space whose training document evaluates by a metric on the validation part.

    Args:
        space: The space.
        metric: The metric; None for that of the training document, or else the default.

    Raises:
        DocumentError: The training document evaluates by nothing, or another part than validation.
        OptionError: There is no such metric.
    """
    evaluation = space.training.get("evaluation", {})
    if metric is not None:
        check_metric(metric)
        evaluation = {**(evaluation if isinstance(evaluation, dict) else {}), "metric": metric}
    if evaluation is None:
        raise DocumentError(
            f"{space.where}: training.evaluation must name the metric by which trials are compared; got null."
            " Remove it for the default, or give `metric`."
        )
    if isinstance(evaluation, dict) and evaluation.get("part", "validation") != "validation":
        raise DocumentError(
            f'{space.where}: training.evaluation.part must be "validation": trials that are chosen by other'
            ' users\' figures make these too good. Write "validation", or remove it.'
        )
    training = {**space.training, "evaluation": evaluation}
    return SpaceSpec.of({"network": space.network, "training": training}, space.where)


def check_space(space: SpaceSpec, dataset: Dataset) -> Layout:
    """Check that every option and every bound of a space is part of documents that fit a dataset.

    Returns:
        The layout of one pair of documents.

    Raises:
        DocumentError, FitError: A value is part of no such documents; the message has the first broken rule.
    """
    if not any(field.num_entries.get("validation") for field in dataset.fields.values()):
        raise FitError(
            f"{dataset.path} has no validation part, by which trials are compared. Set one aside with"
            f" `widenet.split({str(dataset.path)!r}, out=DIR, validation=0.1)`."
        )
    make = partial(layout_of, space, dataset)
    layout = _some(space, "", None, make)
    for place, choice in space.choices.items():
        for value in choice.labels if isinstance(choice, From) else choice.between:
            _some(space, place, value, make)
    return layout


def field_to_cut(space: SpaceSpec, dataset: Dataset) -> str | None:
    """Return the field of which a study must set a validation part aside; None without one.

    Raises:
        DocumentError: No documents of the space keep their rules; the message has the first that is broken.
    """
    target = _some(space, "", None, lambda choose: target_of(space.documents(choose)[0], dataset))
    is_cut = target is None or target.kind == "dense" or "validation" in target.parts
    return None if target is None or is_cut else target.name


def _some(space: SpaceSpec, place: str, value: Any, make: Callable[[Choose], _Made]) -> _Made:
    """Return what is made of some documents that have a value at a place; see `check_space`."""
    first: DocumentError | FitError | None = None
    for choose in _attempts(space, place, value):
        try:
            return make(choose)
        except (DocumentError, FitError) as error:
            first = first or error
    assert first is not None
    where = f"with {place} {value}" if place else "of this space"
    found = "No documents" if any(space.grid()) else f"None of {_TRIES} documents"
    raise type(first)(f"{first} {found} {where} keep all rules.")


def _attempts(space: SpaceSpec, place: str, value: Any) -> Iterator[Choose]:
    """Yield functions that choose a value at a place, and the rest at random; then all of a small space."""
    for attempt in range(_TRIES):
        yield _fixing(place, value, stream(0, "tuning/check", attempt))
    for choices in space.grid():
        if not place or (place in choices and choices[place] == value):
            yield from_values(choices)


def layout_of(space: SpaceSpec, dataset: Dataset, choose: Choose) -> Layout:
    """Return the layout of the documents that some choices make; trials fit no neighbourhood term.

    Raises:
        DocumentError, FitError: They break a rule, or do not fit the dataset.
    """
    network, training = space.documents(choose)
    return check_training(network.unfitted(), training, dataset.path, dataset.manifest)


def _fixing(place: str, value: Any, random: np.random.Generator) -> Choose:
    """Return a function that chooses a value at a place, what leads there, and the rest at random."""

    def choose(here: str, choice: Choice) -> Any:
        if here == place:
            return value
        if isinstance(choice, Between):
            return drawn(choice, float(random.random()))
        inside = f"{here}.from["
        if place.startswith(inside):
            return choice.labels[int(place.removeprefix(inside).partition("]")[0])]
        return choice.labels[int(random.integers(len(choice.labels)))]

    return choose


def drawn(choice: Between, share: float) -> int | float:
    """Return the number at a share in [0, 1] of the way from one bound to the other."""
    low, high = (np.log(choice.between) if choice.log else np.asarray(choice.between, float)).tolist()
    number = low + share * (high - low)
    return rounded(choice, float(np.exp(number)) if choice.log else number)


def rounded(choice: Between, number: float) -> int | float:
    """Return a number with four digits, or a whole one, within the bounds of a choice."""
    low, high = choice.between
    plain = round(number) if choice.is_whole else float(f"{number:.{_DIGITS}g}")
    return min(max(plain, low), high)


def random_choices(
    space: SpaceSpec, tried: Sequence[Mapping[str, Any]], seed: int
) -> Iterator[dict[str, Any]]:
    """Yield choices that were not made yet: all that are left of them, or some if there is no end of them.

    Args:
        space: The space.
        tried: The choices that were made.
        seed: Seed of their order.
    """
    rest = [choices for choices in space.grid() if choices not in tried]
    for position in stream(seed, "tuning/grid").permutation(len(rest)).tolist():
        yield rest[position]
    for attempt in range(0 if any(space.grid()) else _TRIES):
        yield made(space, _fixing("", None, stream(seed, "tuning/random", len(tried), attempt)))


def made(space: SpaceSpec, choose: Choose) -> dict[str, Any]:
    """Return the choices that a function makes for one pair of documents; these need not keep all rules."""
    choices: dict[str, Any] = {}

    def noted(place: str, choice: Choice) -> Any:
        choices[place] = choose(place, choice)
        return choices[place]

    space.plain_documents(noted)
    return choices
