"""Loads vectors from files into wide weights; features are matched by their ids."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.manifest import sha256_of
from widenet.data.vectors import Source, read_vectors
from widenet.errors import CheckpointError, DataError, FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.plan.layout import Layout
from widenet.plan.shards import as_slice
from widenet.plan.starting_vectors import FileVectors, file_vectors
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import VECTORS, values
from widenet.training.start import RowCopy

_BLOCK_NUMBERS = 2**22
"""Numbers of a file that are in memory together."""


def check_vectors(layout: Layout, dataset: Dataset) -> dict[str, str]:
    """Check the files that a layout names, before a run begins with them.

    Args:
        layout: Layout of the training.
        dataset: Its dataset, with the ids of features; those without ids are known by their numbers.

    Returns:
        SHA-256 of each file, by the name of the weight that begins with it.

    Raises:
        DataError: A file cannot be read, or holds something else.
        FitError: Its vectors have another length than those of the layer, or none is that of a feature.
    """
    digests = {}
    for name, vectors in file_vectors(layout).items():
        with _placed(vectors):
            source = _opened(vectors)
            _origin(vectors, source, layout.weights[name].rows, dataset)
            for _ in _blocks(vectors, source):
                pass
            digests[name] = sha256_of(Path(vectors.spec.path))
    return digests


def load_vectors(run: RunDirectory, network: Network, dataset: Dataset, say: Callable[[str], None]) -> None:
    """Fill the weights of a network whose initializer is a file.

    Features that the file lacks keep the weights that they have.

    Args:
        run: Run of the network, which knows the files that it was begun with.
        network: The network, initialized.
        dataset: See `check_vectors`.
        say: Called with the number of features that the file has, and of those that it lacks.

    Raises:
        CheckpointError: What the run knows of the files is damaged.
        DataError: See `check_vectors`; or a file has changed since the run was begun.
        FitError: See `check_vectors`.
    """
    begun_with = _begun_with(run)

    def load(name: str, vectors: FileVectors) -> None:
        with _placed(vectors):
            source, path = _opened(vectors), Path(vectors.spec.path)
            if begun_with.get(name) not in (None, sha256_of(path)):
                raise DataError(f"has changed since {run.path} was begun with it", place=path)
            say(_loaded(network, name, vectors, source, dataset))

    for name, vectors in file_vectors(network.layout).items():
        by_all(network.exchange, partial(load, name, vectors), "vectors")


def _begun_with(run: RunDirectory) -> dict[str, Any]:
    """Return the SHA-256 of the files that a run was begun with, by weight; early versions kept none.

    Raises:
        CheckpointError: The run's list of them is damaged.
    """
    path = run.path / VECTORS
    if not path.exists():
        return {}
    found = next(values(path), None)
    if not isinstance(found, dict) or not all(isinstance(digest, str) for digest in found.values()):
        raise CheckpointError("is damaged", place=path)
    return found


def _loaded(network: Network, name: str, vectors: FileVectors, source: Source, dataset: Dataset) -> str:
    """Load vectors into the shards of this process; returns a sentence about them."""
    wide = network.wide[name]
    origin = _origin(vectors, source, network.layout.weights[name].rows, dataset)
    copies = [
        RowCopy(part.weight, origin[as_slice(wide.shards.units(shard))]) for shard, part in wide.parts.items()
    ]
    for positions, block in _blocks(vectors, source):
        for copy in copies:
            copy.take(block, positions)
    known, width = int((origin >= 0).sum()), dataset.field(vectors.field).width
    rest = f"; {width - known:,} have none and begin as initialized" if known < width else ""
    return (
        f'{vectors.spec.path}: {known:,} of {width:,} features of field "{vectors.field}" begin with its'
        f" vectors{rest}."
    )


@contextmanager
def _placed(vectors: FileVectors) -> Iterator[None]:
    """Put the place in the document before what is said of a file."""
    try:
        yield
    except (DataError, FitError) as error:
        raise type(error)(f"{vectors.place}: {error}") from None


def _opened(vectors: FileVectors) -> Source:
    source = read_vectors([Path(vectors.spec.path)])
    if source.columns != vectors.columns:
        rule = f"vectors must have {vectors.columns:,} numbers, as many as the layer"
        raise FitError(rule, place=vectors.spec.path, value=source.columns)
    return source


def _blocks(vectors: FileVectors, source: Source) -> Iterator[tuple[range, Tensor]]:
    """Yield vectors with their positions, scaled, a block at a time; raises DataError."""
    step = max(1, _BLOCK_NUMBERS // source.columns)
    for start in range(0, len(source), step):
        positions = range(start, min(start + step, len(source)))
        block = torch.from_numpy(source.rows(positions.start, positions.stop)).mul_(vectors.spec.scale)
        finite = block.isfinite().all(dim=1)
        if not bool(finite.all()):
            place = source.place(start + int(finite.logical_not().nonzero()[0]))
            raise DataError("vectors must be finite numbers, also when scaled", place=place)
        yield positions, block


def _origin(vectors: FileVectors, source: Source, rows: int, dataset: Dataset) -> np.ndarray:
    """Return the position of each row's vector in a file, int64 [rows]; -1 for rows without one."""
    field = dataset.field(vectors.field)
    if pc.count_distinct(source.keys).as_py() < len(source):
        raise DataError("every key must be there once", place=vectors.spec.path)
    if field.vocabulary is None:
        ids = pa.array(np.arange(field.width)).cast(pa.string())
    else:
        ids = dataset.vocabulary(vectors.field).all_ids()
    found = pc.fill_null(pc.index_in(ids, value_set=source.keys), -1)
    origin = np.full(rows, -1)
    origin[: field.width] = found.to_numpy(zero_copy_only=False)
    if (origin < 0).all():
        rule = f'no key is the id of a feature of field "{vectors.field}"'
        raise FitError(rule, place=vectors.spec.path)
    return origin
