"""How a NetCDF file is known, without the library that reads it."""

from pathlib import Path

SIGNATURES = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")
"""How a NetCDF file begins: as HDF5 (NetCDF-4), or in one of the classic forms."""
SUFFIXES = (".nc", ".cdf", ".netcdf")


def is_netcdf(path: Path) -> bool:
    """Whether a file has the suffix of a NetCDF file, or begins as one."""
    return path.name.lower().endswith(SUFFIXES) or begins_as_netcdf(path)


def begins_as_netcdf(path: Path) -> bool:
    """Whether a file begins as NetCDF files do."""
    return _head(path).startswith(SIGNATURES)


def begins_as_hdf5(path: Path) -> bool:
    """Whether a file begins as HDF5 files do, NetCDF-4 among them."""
    return _head(path).startswith(SIGNATURES[0])


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError:
        return b""
