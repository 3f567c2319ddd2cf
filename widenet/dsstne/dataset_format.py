"""The dataset format of DSSTNE's NetCDF data, for `widenet data ingest`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from widenet.dsstne.signature import is_netcdf


def owns(path: Path) -> bool:
    """See `DatasetFormat.owns`."""
    return is_netcdf(path)


def ingest(paths: Sequence[Path], out: Path, name: str | None, context: Any) -> Any:
    """See `DatasetFormat.ingest`."""
    from widenet.dsstne.commands.data import ingest as run

    return run(paths, out, name, context)
