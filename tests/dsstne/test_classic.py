"""NetCDF files of the classic forms that are cut short are refused, whose missing numbers the library
would read as zeros.
"""

import contextlib

import netCDF4
import numpy as np
import pytest

from widenet.dsstne.classic import min_file_bytes
from widenet.dsstne.data import import_data
from widenet.errors import DataError, WidenetError

FORMS = ["NETCDF3_CLASSIC", "NETCDF3_64BIT_OFFSET", "NETCDF3_64BIT_DATA"]


def write(path, form, num_records=0):
    """A sparse set of 30 examples, its variables of several types; and variables along records, where some
    are asked for.
    """
    with netCDF4.Dataset(path, "w", format=form) as file:
        whole = {"datasets": 1, "attributes0": 3, "kind0": 0, "dataType0": 0, "dimensions0": 1, "width0": 9}
        file.setncatts(
            {name: np.int32(value) for name, value in whole.items()}
            | {"name0": "items", "more": np.array([1.5, 2.5])}
        )
        for name, length in {"time": None, "odd": 3, "examplesDim0": 30, "sparseDataDim0": 60}.items():
            file.createDimension(name, length)
        for number, letter in enumerate(["i1", "f8"] if num_records else []):
            file.createVariable(f"along{number}", letter, ("time", "odd"))[:] = np.ones((num_records, 3))
        starts = np.arange(30) * 2
        for name, numbers in {"sparseStart0": starts, "sparseEnd0": starts + 2}.items():
            file.createVariable(name, "i4", ("examplesDim0",))[:] = numbers
        file.createVariable("sparseIndex0", "i2", ("sparseDataDim0",))[:] = np.tile([7, 8], 30)
    return path


@pytest.mark.parametrize("num_records", [0, 1, 4])
@pytest.mark.parametrize("form", FORMS)
def test_a_file_must_reach_to_its_last_number(form, num_records, tmp_path):
    path = write(tmp_path / "x.nc", form, num_records)
    whole = path.read_bytes()
    needed = min_file_bytes(path)
    assert len(whole) - 3 <= needed <= len(whole)
    assert import_data([path], tmp_path / "data").num_examples == 30
    for kept in (needed - 1, needed - 60, len(whole) // 2, 100, 9):
        path.write_bytes(whole[:kept])
        with pytest.raises(
            DataError,
            match=(
                r"x\.nc: must (have at least [\d,]+ bytes; it has|be a whole NetCDF file; it has a header"
                r" that ends)"
            ),
        ):
            import_data([path], tmp_path / "cut")
    assert not (tmp_path / "cut").exists()


@pytest.mark.parametrize("form", FORMS)
def test_whatever_became_of_a_header_is_read_or_refused_in_one_sentence(form, tmp_path):
    path, random = write(tmp_path / "x.nc", form, 2), np.random.default_rng(1)
    whole = np.frombuffer(path.read_bytes(), np.uint8)
    for number in range(60):
        damaged = whole.copy()
        damaged[random.integers(4, 700, random.integers(1, 4))] = random.integers(0, 256)
        path.write_bytes(damaged.tobytes())
        with contextlib.suppress(WidenetError):
            import_data([path], tmp_path / str(number))
