"""Checks that a space holds documents that its dataset allows, before anything trains."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from widenet.data.dataset import Dataset
from widenet.errors import DocumentError, FitError
from widenet.plan.layout import Layout
from widenet.randomness import stream
from widenet.runs.documents import target_of
from widenet.spec.metric_names import check_metric
from widenet.spec.space import Between, Choice, Choose, From, SpaceSpec, from_values
from widenet.training.check import check_training

_Made = TypeVar("_Made")
_TRIES = 100
"""Number of random pairs of documents that are tried for a value, before all if the space is small."""
_DIGITS = 4
"""Significant digits of a chosen number."""


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
