"""Export of the names of features and examples to DSSTNE's index files and NetCDF data."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from widenet.data.dataset import Dataset
from widenet.errors import DataError, OptionError, did_you_mean

_BLOCK = 65_536
_SEPARATORS = ("\t", "\n", "\r")
"""Characters that end a name in an index file."""


def feature_names(dataset: Dataset, field: str) -> Iterator[str]:
    """Yield the ids of a field's features, in order."""
    vocabulary = dataset.vocabulary(field)
    return _blockwise(len(vocabulary), lambda start, stop: vocabulary.ids(range(start, stop)))


def example_names(dataset: Dataset) -> Iterator[str]:
    """Yield the ids of the examples, in order."""
    return _blockwise(dataset.num_examples, lambda start, stop: dataset.ids(slice(start, stop)))


def index_files(
    dataset: Dataset, features: Mapping[str, Path] | Path | None, samples: Path | None
) -> dict[Path, Iterator[str]]:
    """Return the names to write to each index file.

    Args:
        dataset: The dataset.
        features: Index files by field, or one file for all sparse fields if they have the same features.
        samples: Index file of the examples.

    Raises:
        OptionError: A field has no names.
        DataError: An index file cannot hold a name.
    """
    sparse = [name for name, field in dataset.fields.items() if field.kind == "sparse"]
    if isinstance(features, Path):
        _check_same(dataset, sparse)
        features = {sparse[0]: features}
    for name in features or {}:
        if name not in sparse:
            raise OptionError(
                f"`features` must name sparse fields; got {name!r}.{did_you_mean(name, sparse)}"
            )
    names = {path: _checked(dataset, feature_names(dataset, name)) for name, path in (features or {}).items()}
    return names if samples is None else names | {samples: _checked(dataset, example_names(dataset))}


def write_names(file: Any, dataset: Dataset, number_of: Mapping[str, int]) -> None:
    """Write the names of features and examples to a NetCDF file, except names that are plain numbers.

    The variable `indToFeatureN` names the features of data set N, and `samples` names the examples.

    Args:
        file: The NetCDF file.
        dataset: The dataset.
        number_of: Number of each field's data set.
    """
    _write(file, ("samples", "samplesDim"), dataset.num_examples, lambda: example_names(dataset))
    for name, number in number_of.items():
        field = dataset.fields[name]
        if field.kind == "sparse" and field.vocabulary is not None:
            _write(
                file,
                (f"indToFeature{number}", f"indToFeatureDim{number}"),
                field.width,
                partial(feature_names, dataset, name),
            )


def _write(file: Any, keys: tuple[str, str], count: int, names: Callable[[], Iterator[str]]) -> None:
    """Write names to a variable of a dimension (`keys`) unless they equal their indices."""
    if all(name == str(index) for index, name in enumerate(names())):
        return
    variable, dimension = keys
    file.createDimension(dimension, count)
    target, pending = file.createVariable(variable, str, (dimension,)), names()
    for start in range(0, count, _BLOCK):
        block = list(islice(pending, _BLOCK))
        target[start : start + len(block)] = np.array(block, object)


def _check_same(dataset: Dataset, fields: list[str]) -> None:
    """Raise OptionError unless there are sparse fields, and all have the same features."""
    ids = [dataset.vocabulary(name).all_ids() for name in fields]
    if not ids or any(not other.equals(ids[0]) for other in ids[1:]):
        names = ", ".join(fields) or "none"
        raise OptionError(
            f"`features` must be FIELD=FILE for each sparse field, since their features differ; the fields"
            f" are {names}. Name them."
        )


def _checked(dataset: Dataset, names: Iterator[str]) -> Iterator[str]:
    """Yield the names; raises DataError for one that an index file cannot hold."""
    for name in names:
        if not name or any(letter in name for letter in _SEPARATORS):
            raise DataError(
                f"{dataset.path}: an index file cannot hold the name {name!r}. Rename it, or leave that file"
                " out."
            )
        yield name


def _blockwise(count: int, read: Callable[[int, int], list[str]]) -> Iterator[str]:
    for start in range(0, count, _BLOCK):
        yield from read(start, min(start + _BLOCK, count))
