"""Recognition of NetCDF files without the NetCDF library."""

from pathlib import Path

_HDF5 = b"\x89HDF\r\n\x1a\n"


def begins_as_netcdf(path: Path) -> bool:
    """Return whether a file has the first bytes of a NetCDF-4 file, which are those of HDF5."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(_HDF5)) == _HDF5
    except OSError:
        return False
