"""Differences between a dataset and a run that deserve a note: unread fields, and values in only one."""

from widenet.data.dataset import Dataset
from widenet.spec.network import NetworkSpec
from widenet.training.run_directory import RunDirectory

_ONES = (1.0, 1.0)


def unread(network: NetworkSpec, data: Dataset) -> list[str]:
    """Return a sentence about fields of a dataset that a network does not read, if any."""
    names = [f'"{name}"' for name in data.fields if name not in network.fields]
    return (
        [f"The network does not read the field{'s' * (len(names) > 1)} {', '.join(names)} of {data.path}."]
        if names
        else []
    )


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


def named_without_values(run: RunDirectory, names: list[str]) -> list[str]:
    """Return a sentence for each named field that had values in training; names come without values."""
    ranges = {name: values for name, values in values_read(run).items() if name in names and values != _ONES}
    return [
        f'"{name}" had values from {low:g} to {high:g} in training; what is named here counts as 1.'
        for name, (low, high) in ranges.items()
    ]
