"""A temporary folder that several processes share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from widenet.dsstne.netcdf import check_places
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import device_for, exchange_for, join
from widenet.spec.training import TrainingSpec


def joined() -> Exchange:
    """Join the process group that a launcher announced, and return this process's exchange."""
    device = device_for(None)
    join(device)
    return exchange_for(TrainingSpec().shards, device)


@contextmanager
def shared_folder(exchange: Exchange, out: Path) -> Iterator[Path]:
    """Share one temporary folder between all processes; the leader creates and removes it.

    Args:
        exchange: The exchange of this process.
        out: A file to write; the folder is created beside it.

    Raises:
        OptionError: The file is a directory, or its folder does not exist.
    """
    check_places([out])
    with ExitStack() as stack:
        made = (
            stack.enter_context(TemporaryDirectory(dir=out.parent, prefix=f".{out.name}."))
            if exchange.leads
            else ""
        )
        yield Path(exchange.collect(made, "folder")[0])
