"""What deserves a note: parts and fields left unread, values in only one of run and dataset, strangers."""

import json
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from widenet.data.dataset import Dataset
from widenet.data.manifest import PARTS, Part
from widenet.errors import WidenetError
from widenet.plan.binding import bind
from widenet.plan.descriptions import described_weights
from widenet.predict.filters import PerUser
from widenet.predict.rows import known_parts
from widenet.runs import person
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.training.cut import Cut
from widenet.training.existing_run import DATA
from widenet.training.run_directory import RunDirectory

_ONES = (1.0, 1.0)


def unread(run: RunDirectory, data: Dataset) -> list[str]:
    """Return sentences about fields and descriptions of a dataset that a run does not read, if any.

    Another one is about a dataset of a single item.
    """
    network = run.network
    names = [f'"{name}"' for name in data.fields if name not in network.fields]
    sentences = [
        f'The field "{layer.field}" has one {data.manifest.words.feature(layer.field)} alone: nothing else'
        " can be recommended to those who have it."
        for layer in network.outputs
        if layer.field in data.fields
        and data.fields[layer.field].kind != "dense"
        and data.fields[layer.field].width == 1
    ]
    if names:
        plural = "s" * (len(names) > 1)
        sentences.append(f"The network does not read the field{plural} {', '.join(names)} of {data.path}.")
    if any(getattr(layer, "described_by", None) for layer in network.layers):
        return sentences
    for name, field in data.fields.items():
        if field.described and not data.vocabulary(name).counts.all():
            described = sorted(field.described)
            layer = _describable(run, data, described)
            advice = f' To change that, add "described_by": {json.dumps(described)} to the layer "{layer}".'
            unknown = "items" if run.start is None else "new items"
            sentences.append(
                "The network does not read the descriptions of items, so it knows nothing of"
                f" {unknown} without interactions.{'' if layer is None else advice}"
            )
    return sentences


def _describable(run: RunDirectory, data: Dataset, names: list[str]) -> str | None:
    """Return the first layer that these descriptions may describe; None: a run like this has none."""
    values = run.network.model_dump(mode="json")
    layers = values["layers"]
    for layer in layers if run.start is None else ():
        changed = [{**each, "described_by": names} if each is layer else each for each in layers]
        with suppress(WidenetError):
            bind(NetworkSpec.of({**values, "layers": changed}), run.training, data.fields)
            return str(layer["name"])
    return None


def unused_repeats(run: RunDirectory) -> list[str]:
    """Return a sentence for each output with "repeats" whose evaluations leave out what a sequence has."""
    evaluation = run.training.evaluation
    if evaluation is None or evaluation.seen == "include":
        return []
    return [
        f'The "repeats" of the layer "{layer.name}" have no effect on evaluations, which leave out what a'
        ' sequence has already. To count it, add "seen": "include" to "evaluation".'
        for layer in run.network.outputs
        if layer.repeats is not None and evaluation.output in (None, layer.name)
    ]


def values_read(run: RunDirectory) -> dict[str, tuple[float, float]]:
    """Return the smallest and largest training value of each field whose values the network reads.

    They are 1 and 1 for a field without values.
    """
    read = (layer.field for layer in run.network.inputs if layer.values == "use")
    records = {name: run.fields[name] for name in read}
    return {
        name: (record.min_value, record.max_value)
        for name, record in records.items()
        if record.kind != "dense"
    }


def other_values(run: RunDirectory, data: Dataset) -> list[str]:
    """Return a sentence for each field that has values in the training or in a dataset, not in both."""
    sentences = []
    for name, before in values_read(run).items():
        now = data.field(name).min_value, data.field(name).max_value
        if before != _ONES and now == _ONES:
            low, high = before
            has = (
                f'values of "{name}" from {low:g} to {high:g}; {data.path} has none, so that each of its'
                " entries counts as 1"
            )
            sentences.append(f"{run.path} was trained with {has}.")
        elif before == _ONES and now != _ONES:
            low, high = now
            has = (
                f'values of "{name}"; those of {data.path}, from {low:g} to {high:g}, multiply what it reads'
            )
            sentences.append(f"{run.path} was trained without {has}.")
    return sentences


def notes_on(run: RunDirectory, data: Dataset) -> list[str]:
    """Return the sentences of `unread` and `other_values`."""
    return unread(run, data) + other_values(run, data)


def cut_histories(run: RunDirectory, data: Dataset) -> list[str]:
    """Return a sentence if a dataset is the one that a run has cut, so that its histories lack a part."""
    cut = Cut.read(run.path)
    is_cut = cut is not None and bool(cut.options) and data.path == run.path / DATA
    if cut is None or not is_cut or data.field(cut.field).kind == "sequence":
        return []
    return [
        f"Histories are those of {data.path}, without its validation part. For whole ones, name the dataset"
        " that it was made of with `data`."
    ]


def about_inputs(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a sentence for each field that had values in training, and one for inputs never learnt.

    Args:
        run: The run.
        inputs: By field, the names of features, without values.
    """
    ranges = {name: own for name, own in values_read(run).items() if name in inputs and own != _ONES}
    without = [
        f'"{name}" had values from {low:g} to {high:g} in training; what is named here counts as 1.'
        for name, (low, high) in ranges.items()
    ]
    return without + unlearnt_inputs(run, inputs)


def strangers(network: NetworkSpec, data: Dataset, rows: np.ndarray, part: Part | None = None) -> list[str]:
    """Return a sentence about users of a dataset of whom a network knows nothing, if there are any.

    Args:
        network: The network.
        data: The dataset.
        rows: The users' rows.
        part: They are as they were before this part; None: with all parts.
    """
    known = np.zeros(len(rows), dtype=bool)
    for name in dict.fromkeys(layer.field for layer in network.inputs):
        kind = data.field(name).kind
        if kind == "dense":
            return []
        for each in known_parts(data, name, part) if kind == "sequence" else ("train",):
            known |= data.entry_counts(name, rows, each) > 0
    unknown = np.flatnonzero(~known)
    if not len(unknown):
        return []
    name = data.ids(rows[unknown[:1]])[0]
    who = f'user "{name}"' if len(rows) == 1 else f'{len(unknown):,} of {len(rows):,} users, such as "{name}"'
    return [f"The network knows nothing of {who}: their recommendations are not personal."]


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


def unlearnt_inputs(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> list[str]:
    """Return a sentence if a network has learnt nothing of all that somebody names, by field."""
    features = unlearnt(run)
    if not inputs or not inputs.keys() <= features.keys():
        return []
    units = {}
    for name, batch in person.batches_of(run, inputs).items():
        assert isinstance(batch, SparseBatch), "a field with counts has features"
        units[name] = batch.indices.numpy()
        if not features[name][units[name]].all():
            return []
    unread = "the network does not read descriptions of them: the recommendations are not personal."
    return [_set_aside(run, units, unread) or f"Nobody had these items in training, and {unread}"]


def _set_aside(run: RunDirectory, units: Mapping[str, np.ndarray], unread: str) -> str | None:
    """Return a sentence about features whose interactions are all in parts that the training did not see.

    Args:
        run: The run.
        units: By field, features without interactions in training.
        unread: The end of the sentence.

    Returns:
        The sentence, and one with the remedy. None if a feature has no interactions at all, or the dataset of
        the training is gone.
    """
    dataset = run.dataset()
    if dataset is None:
        return None
    counts = {
        name: {part: dataset.counts(name, part)[own] for part in dataset.field(name).parts if part != "train"}
        for name, own in units.items()
    }
    if not all(np.any([*own.values()], axis=0).all() for own in counts.values()):
        return None
    if any(dataset.counts(name)[own].any() for name, own in units.items()):
        return None  # the dataset is another one by now
    hold = [part for part in PARTS if any(own[part].any() for own in counts.values() if part in own)]
    where = " and ".join(f"{part} part" for part in hold)
    cut = Cut.read(run.path)
    remedy = (
        "train with `no_validation=True`"
        if cut is not None
        and cut.options
        and all("validation" in own and own["validation"].all() for own in counts.values())
        else "train on a dataset whose training part has them, such as the one before its split"
    )
    return (
        f"{dataset.path} has these items, but only in its {where}, which the training did not see, and"
        f" {unread} To learn them, {remedy}."
    )


def warn_of_unlearnt(run: RunDirectory, inputs: Mapping[str, Sequence[Any]]) -> None:
    """Warn of `unlearnt_inputs`, on behalf of the caller of `Model.recommend`."""
    for sentence in unlearnt_inputs(run, inputs):
        # Frames: here, the method, its two wrappers, the caller.
        warnings.warn(sentence, stacklevel=5)


def warn_of_strangers(network: NetworkSpec, data: Dataset, rows: np.ndarray) -> None:
    """Warn of users of whom a network knows nothing, on behalf of the caller of `Model.recommend`."""
    for sentence in strangers(network, data, rows):
        # Frames: here, `answered`, the method, its two wrappers, the caller.
        warnings.warn(sentence, stacklevel=6)


def warn_of_filters(notes: Sequence[str]) -> None:
    """Warn of unknown ids in filters, on behalf of the caller of `Model.recommend` or `Model.predict`."""
    for note in notes:
        # Frames: here, `answered` or `predicted`, the method, its two wrappers, the caller.
        warnings.warn(note, stacklevel=6)


def warn_of_unused(**lists: PerUser | None) -> None:
    """Warn of lists for single users, by their option, of whom nobody was asked for."""
    for option, own in lists.items():
        if own is not None and own.has_no_effect:
            key = f'"{min(own.units)}"'
            # Frames: here, `answered`, the method, its two wrappers, the caller.
            warnings.warn(f"`{option}` has lists for others alone, such as {key}: no effect.", stacklevel=6)
