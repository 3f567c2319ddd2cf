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
    """The smallest and the largest value in training of each field of features whose values the network
    reads; 1 and 1 without values.
    """
    read = (layer.field for layer in run.network.inputs if layer.values == "use")
    records = {name: run.fields[name] for name in read}
    return {
        name: (record.min_value, record.max_value)
        for name, record in records.items()
        if record.kind != "dense"
    }


def other_values(run: RunDirectory, data: Dataset) -> list[str]:
    """A sentence for each field whose values a run's network reads, and that has values in the training or
    in a dataset alone.
    """
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
    """A sentence for each of some fields, of which features are named without values, that had values in
    training.
    """
    ranges = {name: found for name, found in values_read(run).items() if name in names and found != _ONES}
    return [
        f'"{name}" had values from {low:g} to {high:g} in training; what is named here counts as 1.'
        for name, (low, high) in ranges.items()
    ]
