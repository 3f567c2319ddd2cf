"""Dataset directories of format 1, as other programs write them."""

import json

from widenet.data.manifest import sha256_of


def dataset_of_format_1(folder, **keys):
    """Make a dataset of format 1 of one of today's: no digests of blocks, no checksum of the manifest; those
    of files are right.

    keys: what the manifest says besides, `fields__items__width=4` for a value further down.
    """
    path = folder / "dataset.json"
    document = json.loads(path.read_text()) | {"format_version": 1}
    document.pop("sha256", None)
    for name, file in document["files"].items():
        file.pop("blocks", None)
        file |= {"size_bytes": (folder / name).stat().st_size, "sha256": sha256_of(folder / name)}
    for key, value in keys.items():
        *way, last = key.split("__")
        place = document
        for step in way:
            place = place[step]
        place[last] = value
    path.write_text(json.dumps(document))
    return folder
