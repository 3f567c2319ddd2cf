"""The inputs of a network for a new user: items by id or title, and values of its other fields."""

from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widenet.data.vocabulary import Vocabulary
from widenet.errors import DataError, FitError, OptionError, nearest, warn_user
from widenet.plan.descriptions import described_weights
from widenet.predict.filters import (
    LARGEST,
    check_order,
    checked_items,
    checked_names,
    checked_values,
    is_list,
    named_history,
)
from widenet.sparse import SparseBatch
from widenet.training.checkpoint import Checkpoint
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts

Fields = Mapping[str, Any]
"""By input field: ids or titles of its features, or the numbers of a dense field; one value or a list."""

OF_SEQUENCES = "the network reads a sequence"
"""Why the order of items counts, for `check_order`."""


def item_field(run: RunDirectory, output: str) -> str | None:
    """The input field of items without a named field: the output's, or else the only one, or None."""
    read = [layer.field for layer in run.network.inputs]
    target = next(layer.field for layer in run.network.outputs if layer.name == output)
    return target if target in read else read[0] if len(set(read)) == 1 else None


def field_of_items(run: RunDirectory, output: str) -> str:
    """As `item_field`; raises FitError if there is none."""
    field = item_field(run, output)
    if field is None:
        read = ", ".join(dict.fromkeys(layer.field for layer in run.network.inputs))
        raise FitError(f"the network reads {read}, and no items of its output")
    return field


def reads_values(run: RunDirectory, field: str) -> bool:
    """Return whether the network was trained with a number for each item of a field.

    Of an imported network nobody knows, so that it counts as trained with them.
    """
    if not any(layer.field == field and layer.values == "use" for layer in run.network.inputs):
        return False
    record = run.fields[field]
    return (record.min_value, record.max_value) != (1.0, 1.0) or _is_imported(run)


def _is_imported(run: RunDirectory) -> bool:
    """Return whether another program trained the weights: the facts of ours name the examples."""
    path = run.path / "model"
    return path.is_dir() and WeightsFacts.of(Checkpoint.open(path).facts).examples is None


def check_reads_values(run: RunDirectory, field: str, values: Iterable[float]) -> None:
    """Raise OptionError unless the network reads these values of a field's items, or all are 1."""
    if run.fields[field].kind == "sequence":
        raise OptionError("do not go with a network that reads a sequence", option="values")
    if not reads_values(run, field) and any(value != 1 for value in values):
        raise OptionError("are for networks that were trained with a number for each item", option="values")


def field_to_explain(run: RunDirectory, output: str) -> str:
    """As `field_of_items`; raises FitError for a field whose items cannot be explained one by one."""
    field = field_of_items(run, output)
    if run.fields[field].kind != "sparse":
        rule = f'reads "{field}" as a {run.fields[field].kind}, whose items it cannot explain one by one'
        raise FitError(rule, place=run.path)
    return field


def with_items(
    run: RunDirectory, output: str, items: Sequence[str | int], fields: Fields | None
) -> dict[str, list[Any]]:
    """Return the inputs by field, items first; raises OptionError, FitError."""
    inputs = {name: list(value) if is_list(value) else [value] for name, value in (fields or {}).items()}
    known = list(dict.fromkeys(layer.field for layer in run.network.inputs))
    if unknown := next((name for name in inputs if name not in known), None):
        raise OptionError(
            f'have no "{unknown}": the network reads {", ".join(known)}.{nearest(unknown, known)}',
            option="fields",
        )
    for name, value in (fields or {}).items():
        if run.fields[name].kind != "sparse":
            check_order(name, value, f"it is a {run.fields[name].kind} field")
    named = checked_items(items) if not inputs or not _is_empty(items) else []
    if named:
        field = field_of_items(run, output)
        if run.fields[field].kind == "sequence":
            check_order("items", items, OF_SEQUENCES)
        inputs = {field: [*named, *inputs.pop(field, [])], **inputs}
    return inputs


def units_of_ids(vocabulary: Vocabulary, items: Sequence[str | int]) -> np.ndarray:
    """Return the units of ids, int64; raises DataError for anything else, such as a title."""
    ids = [str(item) for item in items]
    units = vocabulary.places_of(ids)
    if (units < 0).any():
        rule = f"must be ids of the {len(vocabulary):,} that the run knows"
        raise DataError(rule, option="items", value=ids[int(np.argmin(units))])
    return units


def batches_of(
    run: RunDirectory, inputs: Mapping[str, Sequence[Any]], item_values: Sequence[Any] | None = None
) -> dict[str, SparseBatch | Tensor]:
    """Convert inputs to batches of one example, by field.

    Args:
        run: The run.
        inputs: The inputs by field.
        item_values: A number for each feature of the first field.

    Raises:
        DataError, FitError, OptionError: An input is unknown or of a wrong kind.
    """
    by_field: dict[str, SparseBatch | Tensor] = {}
    for position, (name, values) in enumerate(inputs.items()):
        record = run.fields[name]
        if record.kind == "dense":
            if item_values is not None and not position:
                raise OptionError(f'must be numbers of items, not of the field "{name}"', option="values")
            by_field[name] = torch.tensor([numbers_of(name, values, record.width)])
            continue
        numbers = None if item_values is None or position else checked_values(item_values, len(values))
        if numbers is not None:
            check_reads_values(run, name, numbers)
        by_field[name] = named_history(
            run.vocabulary(name), checked_names(name, values), numbers, record.kind == "sequence"
        )
    return by_field


def nothing(run: RunDirectory, field: str, num_examples: int = 1) -> SparseBatch | Tensor:
    """An empty input: a batch of examples without features, or with zeros."""
    record = run.fields[field]
    if record.kind == "dense":
        return torch.zeros(num_examples, record.width)
    return SparseBatch.from_lists([[]] * num_examples)


def understood(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> dict[str, list[str]]:
    """Return the titles of the features that inputs refer to, or numbers as text, by field."""
    by_field = {}
    for name, values in inputs.items():
        record = run.fields[name]
        if record.kind == "dense":
            by_field[name] = [f"{value:g}" for value in numbers_of(name, values, record.width)]
        else:
            vocabulary = run.vocabulary(name)
            found = vocabulary.find_each(checked_names(name, values))
            by_field[name] = vocabulary.titles([first for first, *_ in found])
    return by_field


def warn_of_ambiguous(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> None:
    """Warn about each text that matches several features."""
    for name, values in inputs.items():
        if run.fields[name].kind != "dense":
            vocabulary, texts = run.vocabulary(name), checked_names(name, values)
            for text, found in zip(texts, vocabulary.find_each(texts), strict=True):
                if len(found) > 1:
                    [first] = vocabulary.shown(found[:1])
                    warn_user(
                        f'"{text}" is taken for {first}, the most popular of {len(found):,} that match.'
                    )


def _is_empty(items: object) -> bool:
    return isinstance(items, list | tuple) and not items


def numbers_of(field: str, values: Sequence[Any], width: int) -> list[float]:
    """Return the numbers of a dense field; raises OptionError, DataError for anything else."""
    if len(values) != width:
        raise OptionError(
            f"must be {width:,} number{'s' * (width != 1)}", place=f'field "{field}"', value=values
        )
    for value in values:
        is_number = isinstance(value, Real)
        if not is_number or not abs(value) <= LARGEST:
            raise DataError("must be finite numbers of float32", place=f'field "{field}"', value=value)
    return [float(value) for value in values]


def unlearnt(run: RunDirectory) -> dict[str, np.ndarray]:
    """Return which features of the input fields a network has learnt nothing of, bool [width], by field.

    They had no training interactions, and the network does not read what they are. A field without such
    features is left out. So is every field where nothing is known of them: after a start from another run,
    and without counts.
    """
    found = {}
    for name in {layer.field for layer in run.network.inputs if run.start is None}:
        if run.fields[name].kind != "dense" and run.fields[name].vocabulary_digest is not None:
            counts = run.vocabulary(name).counts
            if counts.any() and not counts.all():
                found[name] = counts == 0
    if found:
        layout = run.layout
        for name, own in described_weights(layout).items():
            if layout.weights[name].input is not None:
                found.pop(own.field, None)
    return found
