"""Digests of blocks: every changed byte of a dataset is found before it is used, and no block is read
twice for it.
"""

import json

import numpy as np
import pytest

from tests.data.test_dataset import divided
from tests.flips import flips, outcome
from tests.mistakes import mistake
from tests.older import dataset_of_format_1
from widenet.data import blocks
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.data.manifest import Manifest
from widenet.errors import DataError

BLOCK = 512
ROWS = 400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A dataset of several files, record batches and blocks, with every kind of column."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", BLOCK)
    random = np.random.default_rng(3)
    lists = [
        sorted(random.choice(50, size=size, replace=False).tolist())
        for size in random.integers(0, 9, size=ROWS)
    ]
    named = dataset_from_lists(tmp_path / "names", [[49]], titles=["Ä"] * 50).vocabulary("items")
    return divided(tmp_path / "ds", lists, 64, 8000, {"items": named.record_batches()}).path


def everything(folder):
    """All numbers and names of a dataset, by the ways in which a training and a prediction read them."""
    dataset = Dataset.open(folder)
    rows = np.random.default_rng(5).permutation(ROWS)
    entries = dataset.sparse("items", rows)
    numbers = [
        entries.indptr,
        entries.indices,
        entries.values,
        dataset.dense("age", rows),
        dataset.weights(rows),
    ]
    names = dataset.vocabulary("items")
    return [
        *(each.tolist() for each in numbers),
        dataset.ids(rows),
        names.ids(range(50)),
        names.titles(range(50)),
        names.counts.tolist(),
    ]


def test_every_kind_of_file_has_several_blocks_and_what_is_read_is_what_was_written(folder):
    files = Manifest.read(folder).files
    assert len([name for name in files if name.startswith("examples-")]) > 1
    assert all(len(file.blocks.sha256) > 5 for name, file in files.items() if name.startswith("examples-"))
    assert Dataset.open(folder).ids(slice(None)) == [f"üser {row}" for row in range(ROWS)]
    verify(folder, Manifest.read(folder))


def test_every_changed_bit_is_found_before_its_first_use(folder):
    undisturbed = outcome(lambda: everything(folder))
    assert isinstance(undisturbed, list)
    for path in sorted(folder.iterdir()):
        for place, found in flips(path, 1, 60, lambda: everything(folder)):
            assert isinstance(found, DataError), f"{place}: {found}"
            assert str(found).startswith(str(path)), f"{place}: {found}"
    assert outcome(lambda: everything(folder)) == undisturbed


def test_a_changed_block_is_named_with_its_bytes_and_the_remedy_and_others_are_still_read(folder):
    path = folder / "examples-00000.arrow"
    start, stop = Manifest.read(folder).files[path.name].blocks.bodies[-1]
    whole = path.read_bytes()
    place = stop - 20
    path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    dataset = Dataset.open(folder)
    first = place // BLOCK * BLOCK
    assert first > start
    assert dataset.dense("age", slice(0, 10)).shape == (10, 3)
    for read in (lambda: dataset.dense("age", slice(None)), lambda: list(dataset.record_batches())):
        with mistake(DataError, place="examples-00000.arrow") as caught:
            read()
        assert f"block {place // BLOCK} " in str(caught.value)


def test_a_dataset_of_format_1_is_read_and_its_files_are_compared_whole_when_it_is_opened(folder):
    undisturbed = everything(folder)
    dataset_of_format_1(folder)
    assert Manifest.read(folder).format_version == 1
    assert everything(folder) == undisturbed
    for name in ("examples-00000.arrow", "examples-00001.arrow", "items.vocabulary.arrow"):
        for place, found in flips(folder / name, 2, 20, lambda: everything(folder)):
            assert isinstance(found, DataError), f"{place}: {found}"


def test_a_manifest_without_its_own_checksum_is_only_of_format_1(folder):
    document = json.loads((folder / "dataset.json").read_text())
    for changed in (
        {key: value for key, value in document.items() if key != "sha256"},
        document | {"format_version": 1},
        document | {"num_examples": ROWS + 1},
        document | {"sha256": "0"},
    ):
        (folder / "dataset.json").write_text(json.dumps(changed))
        with mistake(DataError, place="dataset.json"):
            Manifest.read(folder)
