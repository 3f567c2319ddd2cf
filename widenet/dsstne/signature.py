"""Recognition of NetCDF files without the NetCDF library."""

from pathlib import Path

_SIGNATURES = (b"\x89HDF\r\n\x1a\n", b"CDF\x01", b"CDF\x02", b"CDF\x05")
"""First bytes of NetCDF files: HDF5 (NetCDF-4) and the classic forms."""


def begins_as_netcdf(path: Path) -> bool:
    """Return whether a file has the first bytes of a NetCDF file."""
    return _head(path).startswith(_SIGNATURES)


def begins_as_hdf5(path: Path) -> bool:
    """Return whether a file has the first bytes of an HDF5 file, as NetCDF-4 files do."""
    return _head(path).startswith(_SIGNATURES[0])


def _head(path: Path) -> bytes:
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(8)
    except OSError:
        return b""
