"""What an HDF5 file may take from other files, which nobody who sends a file may name."""

from typing import Any

import h5py


def outside(file: Any) -> str | None:
    """The first name in an open `h5py.File` that stands for something in another file, of which nothing is
    opened; None: there is none.

    That are links to other files, and numbers that lie in another file or are put together from others.
    """
    linked: str | None = file.visititems_links(
        lambda name, link: name if isinstance(link, h5py.ExternalLink) else None
    )
    return linked or file.visititems(lambda name, item: name if _is_outside(item) else None)


def _is_outside(item: Any) -> bool:
    return isinstance(item, h5py.Dataset) and bool(item.external or item.is_virtual)
