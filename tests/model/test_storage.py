"""Rows in files come and go, whatever the disk does, and memory holds only those at work."""

import errno
import os
import re
from pathlib import Path
from subprocess import run

import pytest
import torch

from tests.mistakes import mistake
from tests.trainings import SETTINGS, books
from widenet.errors import CapacityError, OptionError
from widenet.model.storage import Scratch, blocks, file_of, put_rows, zeros
from widenet.plan import memory, tiles
from widenet.runs import train

ROWS, COLUMNS, REQUEST = 8_000, 33, 8 * 4096
NUMBERS = torch.arange(ROWS * COLUMNS, dtype=torch.float32).view(ROWS, COLUMNS)


@pytest.fixture(autouse=True)
def small_requests(monkeypatch):
    monkeypatch.setattr(tiles, "REQUEST_BYTES", REQUEST)


@pytest.fixture
def file(tmp_path):
    return Scratch(tmp_path)


def ranges(tile):
    return [(start, min(start + tile, ROWS)) for start in range(0, ROWS, tile)]


def resident(*tensors):
    """The bytes of the memory of tensors, as the kernel counts them."""
    text = Path("/proc/self/smaps").read_text()
    maps = re.findall(r"^(\w+)-\w+ .*?^Rss: +(\d+) kB", text, re.MULTILINE | re.DOTALL)
    held = 0
    for tensor in tensors:
        first = tensor.data_ptr()
        held += sum(1024 * int(size) for at, size in maps if first <= int(at, 16) < first + tensor.nbytes)
    return held


def doubled(file, tensors, writes=True):
    for rows in file.sweep(tensors, writes, ranges(100)):
        for own in rows:
            own *= 2


def fail(monkeypatch, name, fails=bool, number=errno.EIO):
    """Let a call of the system fail, always or where `fails` says so of its last argument."""
    called = getattr(os, name)

    def failing(descriptor, *arguments):
        if fails is bool or fails(arguments[-1]):
            raise OSError(number, os.strerror(number))
        return called(descriptor, *arguments)

    monkeypatch.setattr(os, name, failing)


def test_a_tensor_is_zeros_at_first_and_the_folder_shows_no_file(file, tmp_path):
    tensor = file.zeros((ROWS, COLUMNS))
    assert tensor.shape == (ROWS, COLUMNS)
    assert not any(bool(block.any()) for block in blocks(tensor, 1_000))
    assert [*tmp_path.iterdir()] == []
    assert file_of(tensor[5:7]) is file
    assert file_of(torch.zeros(3)) is None
    assert zeros((0, 4), file.device, file).shape == (0, 4)


@pytest.mark.parametrize(("tile", "writes"), [(30, True), (100, False), (1_000, False), (1_000, True)])
def test_memory_holds_a_window_and_every_row_is_written(file, tile, writes):
    tensors = [file.zeros((ROWS, COLUMNS)) for _ in range(2)]
    for number, tensor in enumerate(tensors):
        for block, numbers in zip(blocks(tensor, 100, writes=True), NUMBERS.split(100), strict=True):
            block.copy_(numbers + number)
    window, held = len(tensors) * memory.in_memory(tile * COLUMNS * 4), 0
    for (start, stop), rows in zip(ranges(tile), file.sweep(tensors, writes, ranges(tile)), strict=True):
        for number, own in enumerate(rows):
            assert torch.equal(own, NUMBERS[start:stop] + number)
            own += writes
        if start % 3_000 < tile:
            held = max(held, resident(*tensors))
    assert 0 < held <= window
    assert resident(*tensors) == 0
    for number, tensor in enumerate(tensors):
        assert torch.equal(file.copy(tensor), NUMBERS + number + writes)


def test_what_is_moved_in_part_is_moved_to_the_end(file, monkeypatch):
    for name in ("preadv", "pwritev"):
        called = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda at, parts, offset, call=called: call(at, [parts[0][:4096]], offset)
        )
    tensor = file.zeros((ROWS, COLUMNS))
    for block in blocks(tensor, ROWS, writes=True):
        block.copy_(NUMBERS)
    assert torch.equal(file.copy(tensor), NUMBERS)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_without_room_is_refused(number, file, monkeypatch):
    fail(monkeypatch, "posix_fallocate", number=number)
    with pytest.raises(CapacityError):
        file.zeros((100, 100))


@pytest.mark.parametrize("name", ["preadv", "pwritev"])
def test_a_pass_ends_with_the_error_of_the_disk_and_leaves_no_memory(name, file, monkeypatch):
    tensors = [file.zeros((ROWS, COLUMNS)) for _ in range(2)]
    with monkeypatch.context() as patch:
        fail(patch, name, lambda offset: offset >= tensors[0].nbytes // 2)
        with pytest.raises(CapacityError):
            doubled(file, tensors)
    assert resident(*tensors) == 0
    doubled(file, tensors)


@pytest.mark.parametrize("name", ["preadv", "pwritev"])
def test_rows_by_number_end_with_the_error_of_the_disk(name, file, monkeypatch):
    tensor, rows_U = file.zeros((ROWS, COLUMNS)), torch.arange(0, ROWS, 100)
    copies = file.select(tensor, rows_U)
    fail(monkeypatch, name)
    with pytest.raises(CapacityError):
        file.select(tensor, rows_U) if name == "preadv" else file.put([tensor], rows_U, [copies])


def test_rows_that_the_cache_could_not_write_are_an_error_of_the_next_pass(file, monkeypatch):
    tensor = file.zeros((ROWS, COLUMNS))
    put_rows(tensor, torch.tensor([3]), NUMBERS[:1])
    fail(monkeypatch, "fdatasync")
    with pytest.raises(CapacityError):
        doubled(file, [tensor], writes=False)


@pytest.mark.faults
@pytest.mark.parametrize("moves", ["read", "written", "touched"])
def test_half_of_a_real_disk_is_lost(moves, tmp_path):
    """The disk is a file that is cut short. Needs root."""
    image, folder = tmp_path / "image", tmp_path / "disk"
    folder.mkdir()
    image.touch()
    os.truncate(image, 2**26)
    run(["mkfs.ext4", "-q", image], check=True)
    run(["mount", "-o", "loop", image, folder], check=True)
    try:
        file = Scratch(folder)
        tensor = file.zeros((40_000, 256))
        for block in blocks(tensor, 1_000, writes=True):
            block += 1
        rows_U = torch.arange(0, 40_000, 50)
        if moves == "touched":
            put_rows(tensor, rows_U, torch.zeros(len(rows_U), 256))
        os.truncate(image, 2**24)
        with pytest.raises(CapacityError):
            [*blocks(tensor, 1_000, writes=moves == "written")]
    finally:
        run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("name", ["preadv", "pwritev"])
@pytest.mark.parametrize("setting", ["adam, tied", "rmsprop, sampled"])
def test_a_disk_that_fails_ends_a_training_with_its_error(setting, name, tmp_path, monkeypatch):
    data, calls = books(tmp_path / "data", width=4_500, titles=None), []

    def fails(_):
        calls.append(name)
        return len(calls) > 100

    fail(monkeypatch, name, fails)
    with pytest.raises(CapacityError):
        train(*SETTINGS[setting], data, tmp_path / "run", weights_in="disk")


def test_a_folder_without_a_way_past_the_cache_is_refused(tmp_path, monkeypatch):
    opened = os.open

    def refusing(path, flags, *more):
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return opened(path, flags, *more)

    monkeypatch.setattr(os, "open", refusing)
    with mistake(OptionError, place=tmp_path):
        Scratch(tmp_path)
