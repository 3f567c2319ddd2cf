"""Loads vectors from files into wide weights; features are matched by their ids."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from widenet.data.manifest import sha256_of
from widenet.data.vectors import Source, read_vectors
from widenet.errors import DataError, FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all, num_processes
from widenet.plan.layout import Layout
from widenet.plan.shards import as_slice
from widenet.plan.vectors import FileVectors, file_vectors
from widenet.training.row_copy import RowCopy
from widenet.training.run_directory import RunDirectory

_BLOCK_NUMBERS = 2**22
"""Numbers of a file that are in memory together."""


def check_vectors(layout: Layout) -> None:
    """Raise unless the files that a layout names can be read and have vectors of the right length.

    Raises:
        DataError: A file cannot be read, or holds something else.
        FitError: Its vectors have another length than those of the layer.
    """
    for vectors in file_vectors(layout).values():
        _opened(vectors)


def facts_of_vectors(layout: Layout) -> dict[str, str]:
    """Return the digests of the files that a layout names, which several processes must have in common."""
    if num_processes() == 1:
        return {}
    paths = {name: Path(vectors.spec.path) for name, vectors in file_vectors(layout).items()}
    return {
        f'vectors of "{name}"': sha256_of(path) if path.is_file() else "missing"
        for name, path in paths.items()
    }


def load_vectors(run: RunDirectory, network: Network, say: Callable[[str], None]) -> None:
    """Fill the weights of a network whose initializer is a file.

    Features that the file lacks keep the weights that they have.

    Args:
        run: Run of the network, with the ids of features; those without ids are known by their numbers.
        network: The network, initialized.
        say: Called with the number of features that the file has, and of those that it lacks.

    Raises:
        DataError, FitError: See `check_vectors`; or no vector is that of a feature.
    """
    for name, vectors in file_vectors(network.layout).items():
        by_all(network.exchange, partial(_load, run, network, name, vectors, say), "vectors")


def _load(
    run: RunDirectory, network: Network, name: str, vectors: FileVectors, say: Callable[[str], None]
) -> None:
    source = _opened(vectors)
    origin = _origin(run, vectors, source, network.layout.weights[name].rows)
    wide = network.wide[name]
    copies = [
        RowCopy(part.weight, origin[as_slice(wide.shards.units(shard))]) for shard, part in wide.parts.items()
    ]
    step = max(1, _BLOCK_NUMBERS // source.columns)
    for start in range(0, len(source), step):
        stop = min(start + step, len(source))
        if not any(copy.needs(range(start, stop)) for copy in copies):
            continue
        block = torch.from_numpy(source.rows(start, stop))
        if not bool(torch.isfinite(block).all()):
            raise DataError(f"{vectors.spec.path}: vectors must be finite numbers. Correct the file.")
        block.mul_(vectors.spec.scale)
        for copy in copies:
            copy.take(block, range(start, stop))
    known, width = int((origin >= 0).sum()), run.fields[vectors.field].width
    rest = f"; {width - known:,} have none and begin as initialized" if known < width else ""
    say(
        f'{vectors.spec.path}: {known:,} of {width:,} features of field "{vectors.field}" begin with its'
        f" vectors{rest}."
    )


def _opened(vectors: FileVectors) -> Source:
    source = read_vectors([Path(vectors.spec.path)])
    if source.columns != vectors.columns:
        raise FitError(
            f"{vectors.place}: vectors must have {vectors.columns:,} numbers, as many as the layer; those of"
            f" {vectors.spec.path} have {source.columns:,}. Change the layer's size, or name another file."
        )
    return source


def _origin(run: RunDirectory, vectors: FileVectors, source: Source, rows: int) -> np.ndarray:
    """Return the position of each row's vector in a file, int64 [rows]; -1 for rows without one."""
    record = run.fields[vectors.field]
    if pc.count_distinct(source.keys).as_py() < len(source):
        raise DataError(
            f"{vectors.spec.path}: every key must be there once; some repeat. Remove repetitions."
        )
    if record.vocabulary_digest is None:
        ids = pa.array(np.arange(record.width)).cast(pa.string())
    else:
        ids = run.vocabulary(vectors.field).all_ids()
    found = pc.fill_null(pc.index_in(ids, value_set=source.keys), -1)
    origin = np.full(rows, -1)
    origin[: record.width] = found.to_numpy(zero_copy_only=False)
    if (origin < 0).all():
        raise FitError(
            f'{vectors.spec.path}: no key is the id of a feature of field "{vectors.field}", such as'
            f' "{ids[0].as_py()}". Name a file with these ids.'
        )
    return origin
