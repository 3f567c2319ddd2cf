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
    try:
        with path.open("rb") as file:
            return file.read(8).startswith(SIGNATURES)
    except OSError:
        return False
