"""The network format of DSSTNE's trained networks, for `widenet import`."""

from pathlib import Path
from typing import Any

from widenet.dsstne.signature import begins_as_hdf5, begins_as_netcdf
from widenet.interop.formats import ImportOptions, Likeness
from widenet.optional import optional

NAME = "NetCDF, as DSSTNE writes networks"
SUFFIXES = (".nc",)
TAKES = ("features",)


def likeness(path: Path, head: bytes) -> Likeness:
    """See `NetworkFormat.likeness`."""
    del head
    if begins_as_hdf5(path):
        return Likeness.CONTAINER
    return Likeness.CONTENT if begins_as_netcdf(path) else Likeness.NONE


def import_model(path: Path, out: Path, options: ImportOptions) -> Any:
    """See `NetworkFormat.import_model`."""
    with optional("netCDF4", "dsstne"):
        from widenet.dsstne.model import import_model as run
    return run(
        path,
        out,
        data=options.data,
        features=options.features,
        fields=options.fields,
        overwrite=options.overwrite,
        say=options.say,
    )
