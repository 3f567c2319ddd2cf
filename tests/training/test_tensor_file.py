"""Tensor files: what safetensors' own library reads and writes, in blocks."""

import errno
import hashlib
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from widenet.errors import CapacityError
from widenet.model.storage import Scratch, put_rows
from widenet.plan import tiles
from widenet.training.checkpoint import Checkpoint, write

TENSORS = {
    "weight": torch.randn(37, 5, generator=torch.Generator().manual_seed(0)),
    "bias": torch.tensor([1.0, -0.0, torch.inf]),
    "moved": torch.arange(7, dtype=torch.int32),
    "gram": torch.tensor([[0.1, 1e300], [-2.0, 3.0]], dtype=torch.float64),
    "nothing": torch.zeros(0, 5),
    "column of one": torch.ones(3, 1),
}


@pytest.fixture(
    params=[tiles.BLOCK_BYTES, 64, 8],
    ids=["one block", "some rows a block", "a number a block"],
    autouse=True,
)
def block_bytes(request, monkeypatch):
    monkeypatch.setattr(tiles, "BLOCK_BYTES", request.param)


def read_into(folder, tensors):
    file = folder / "file"
    entry = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    Checkpoint(folder, {"file": entry}, {}).fill("file", tensors)


def blank(tensors):
    return {name: torch.full_like(tensor, 9) for name, tensor in tensors.items()}


def assert_equal(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].numpy().tobytes() == tensor.numpy().tobytes()
        assert found[name].shape == tensor.shape


def test_what_is_written_is_what_the_library_reads_and_the_digest_is_that_of_the_file(tmp_path):
    digest = write(tmp_path / "file", TENSORS)
    assert_equal(load_file(tmp_path / "file"), TENSORS)
    assert digest == hashlib.sha256((tmp_path / "file").read_bytes()).hexdigest()


def test_what_the_library_writes_is_read(tmp_path):
    save_file(TENSORS, tmp_path / "file")
    found = blank(TENSORS)
    read_into(tmp_path, found)
    assert_equal(found, TENSORS)


def test_no_checkpoint_holds_rows_that_the_disk_did_not_take(tmp_path, monkeypatch):
    def fails(_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    tensor = Scratch(tmp_path).zeros((5000, 3))
    put_rows(tensor, torch.tensor([1]), torch.ones(1, 3))
    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(CapacityError):
        write(tmp_path / "file", {"weight": tensor})
