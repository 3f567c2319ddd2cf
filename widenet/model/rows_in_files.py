"""The rows in files that a step touches: asked for at its beginning, and let go of at its end."""

from collections.abc import Mapping

from widenet.kernels import Touched
from widenet.model.wide_weight import WideWeight

TouchedRows = Mapping[str, Mapping[int, Touched]]
"""By weight and shard."""


def fetch_rows(wide: Mapping[str, WideWeight], touched: TouchedRows) -> None:
    """Begin to read the rows that a batch touches, where they are in files."""
    for name, by_shard in touched.items():
        if wide[name].in_files:
            for shard, rows in by_shard.items():
                wide[name].parts[shard].fetch_rows(rows.features_U)


def unmap_rows(wide: Mapping[str, WideWeight], touched: TouchedRows) -> None:
    """Let the kernel free the memory of the rows that a batch has touched, where they are in files."""
    for name in touched:
        if wide[name].in_files:
            for part in wide[name].parts.values():
                part.unmap()
