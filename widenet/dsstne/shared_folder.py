"""A folder that several processes work in."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from widenet.errors import OptionError
from widenet.model.exchange import Exchange
from widenet.parallel.group import device_for, exchange_for, join
from widenet.spec.training import TrainingSpec


def joined() -> Exchange:
    """The exchange of this process, its group joined as a launcher announced it."""
    device = device_for(None)
    join(device)
    return exchange_for(TrainingSpec().shards, device)


@contextmanager
def shared_folder(exchange: Exchange, out: Path, flag: str) -> Iterator[Path]:
    """One temporary folder for all processes, beside a file to be written; the process that leads makes and
    removes it.

    Raises OptionError, which names the flag, where the file's folder does not exist, or the file is a folder
    itself.
    """
    if out.is_dir():
        raise OptionError(f"{flag} must be a file to write; {out} is a directory. Name a file in it.")
    if not out.parent.is_dir():
        raise OptionError(f"{flag} must be in a folder that exists; got {out}. Make {out.parent} first.")
    with ExitStack() as stack:
        made = (
            stack.enter_context(TemporaryDirectory(dir=out.parent, prefix=f".{out.name}."))
            if exchange.leads
            else ""
        )
        yield Path(exchange.collect(made, "folder")[0])
