"""SciPy's sparse matrices in `.npz` files: rows are users, columns are items; nothing pickled is read."""

import zipfile
import zlib
from pathlib import Path

import numpy as np

from widenet.data.formats.memory import TableInMemory, of_matrix
from widenet.data.formats.source import Reading
from widenet.errors import DataError

SUFFIXES: tuple[str, ...] = (".npz",)
IS_TEXT = False


def opened(path: Path, name: str, reading: Reading) -> TableInMemory:  # noqa: ARG001
    """The source in a file that `scipy.sparse.save_npz` wrote, as CSR, CSC or COO; raises DataError for another."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            found = {key: stored[key] for key in stored.files}
        return of_matrix(name, *_csr(found))
    except (ValueError, KeyError, OSError, EOFError, AttributeError, IndexError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        rule = "must hold a sparse matrix that scipy.sparse.save_npz wrote, in CSR, CSC or COO form"
        reason = f"it has no array {error}" if isinstance(error, KeyError) else error
        raise DataError(f"{name}: {rule}; {reason}. Write it again with `save_npz(path, matrix.tocsr())`.") from error


def _csr(found: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row starts, column numbers and entries."""
    form = bytes(found["format"].item()).decode()
    num_rows, num_columns = (int(length) for length in found["shape"])
    if form == "csr":
        starts, columns, data = found["indptr"], found["indices"], found["data"]
    else:
        if form == "csc":
            rows, columns = found["indices"], np.repeat(np.arange(num_columns), np.diff(found["indptr"]))
        elif form == "coo":
            rows, columns = (found["row"], found["col"]) if "row" in found else found["coords"]
        else:
            raise ValueError(f"its form is {form}")
        _check_within(rows, num_rows)
        order = np.argsort(rows, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=num_rows))])
        columns, data = columns[order], found["data"][order]
    if len(starts) != num_rows + 1 or starts[-1] != len(columns) or len(columns) != len(data):
        raise ValueError("its arrays do not fit its shape")
    _check_within(columns, num_columns)
    return starts, columns, data


def _check_within(numbers: np.ndarray, length: int) -> None:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < length:
        raise ValueError("its indices do not lie in its shape")
