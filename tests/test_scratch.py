"""Tensors in files hold what is written to them, in memory or not, and a file ends with them."""

import os
from pathlib import Path

import pytest
import torch

from tests.scratches import Failing, cached, fail, is_mapped, now, refuse_direct, resident, stored
from widenet.errors import CapacityError
from widenet.kernels import rooms
from widenet.kernels.scratch import (
    PAGE_BYTES,
    Scratch,
    fetch_rows,
    load,
    read_around,
    release,
    scratch_of,
    store,
    unmap,
)
from widenet.model.sweep import FileSweep

ROWS, COLUMNS = 10_000, 33


@pytest.fixture(params=["queue", "threads"])
def file(request, tmp_path):
    made = Scratch(tmp_path)
    if request.param == "threads":
        made.queue = None
    return made


@pytest.fixture
def numbers():
    return torch.arange(ROWS * COLUMNS, dtype=torch.float32).view(ROWS, COLUMNS)


def test_a_tensor_is_zeros_at_first_and_the_folder_shows_no_file(file, tmp_path):
    tensor = file.zeros((ROWS, COLUMNS))
    assert tensor.shape == (ROWS, COLUMNS)
    assert not tensor.any()
    assert [*tmp_path.iterdir()] == []
    assert scratch_of(tensor[5:7]) is file
    assert scratch_of(torch.zeros(3)) is None
    assert file.zeros((0, 4)).shape == (0, 4)


def test_rows_that_are_let_go_of_leave_memory_and_come_back_as_they_were(file, numbers):
    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    whole = resident(tensor)
    assert whole >= 4 * ROWS * COLUMNS
    release(tensor[: ROWS // 2])
    assert whole // 2 - 2 * 4096 <= resident(tensor) <= whole // 2 + 2 * 4096
    assert torch.equal(stored(file, tensor[: ROWS // 4]), numbers[: ROWS // 4])
    assert torch.equal(tensor, numbers)
    assert resident(tensor) == whole
    unmap(tensor)
    assert resident(tensor) == 0
    assert torch.equal(tensor, numbers)


CHUNK_ROWS = 1024
"""The fewest rows that are whole pages."""


@pytest.mark.parametrize("has_cache", [False, True], ids=["past the cache", "through the cache"])
def test_rows_in_memory_of_their_own_are_read_and_written_past_the_cache(
    has_cache, tmp_path, numbers, monkeypatch
):
    if has_cache:
        refuse_direct(monkeypatch)
    file = Scratch(tmp_path)
    assert file.is_cached == has_cache
    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    release(tensor)
    for start in range(0, ROWS, CHUNK_ROWS):
        rows = tensor[start : start + CHUNK_ROWS]
        now(load, rows)
        assert torch.equal(rows, numbers[start : start + CHUNK_ROWS])
        assert 0 <= resident(tensor) - rows.numel() * 4 < PAGE_BYTES
        rows += 1
        now(store, rows, True)
        assert resident(tensor) == 0
        assert has_cache or cached(file, tensor) == 0
    assert torch.equal(stored(file, tensor), numbers + 1)
    assert torch.equal(tensor, numbers + 1)


def test_the_kernel_reads_no_more_than_the_rows_that_are_asked_for(file, numbers):
    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    release(tensor)
    if cached(file, tensor):
        pytest.skip("the folder for temporary files lies in memory")
    fetch_rows(tensor, torch.tensor([0]))
    assert tensor[5_000, 0] == numbers[5_000, 0]  # a row that the kernel has dropped again
    assert cached(file, tensor) == 2 * PAGE_BYTES
    release(tensor)
    read_around(tensor)
    assert tensor[5_000, 0] == numbers[5_000, 0]
    assert cached(file, tensor) > 2 * PAGE_BYTES


def test_a_disk_without_room_is_refused(file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    file.zeros((1, 1))
    file.zeros((1025, 1))
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(CapacityError):
        file.zeros((100, 100))


@pytest.mark.parametrize("writes", [False, True])
def test_a_disk_that_fails_ends_the_training(writes, file, monkeypatch):
    tensor = file.zeros((ROWS, COLUMNS))
    fail(file, monkeypatch, writes)
    with (
        pytest.raises(CapacityError),
        FileSweep([tensor], writes) as rows,
    ):
        rows.at(0, ROWS)


def test_what_the_queue_does_not_take_or_moves_in_part_is_moved_at_once(tmp_path, numbers, monkeypatch):
    file = Scratch(tmp_path)
    if file.queue is None:
        pytest.skip("the temporary folder or the kernel has no way past the system's cache")
    started, taken = file.queue.start, []

    def start(writes, descriptor, address, offset, size, then):
        taken.append(size)
        if len(taken) % 2:
            return False
        return started(writes, descriptor, address, offset, PAGE_BYTES, then)

    monkeypatch.setattr(file.queue, "start", start)
    tensor = file.zeros((ROWS, COLUMNS))
    for factor in range(3):
        now(load, tensor)
        tensor.copy_(factor * numbers)
        now(store, tensor, True)
        assert torch.equal(stored(file, tensor), factor * numbers)
    assert len(taken) == 6


@pytest.mark.parametrize("fails", ["preadv", "mremap", "mremap half-way"])
def test_rows_that_cannot_be_loaded_take_no_memory(fails, file, numbers, monkeypatch):
    def mapped():
        """Bytes of all of the process's addresses."""
        return PAGE_BYTES * int(Path("/proc/self/statm").read_text().split()[0])

    tensor = file.zeros((ROWS, COLUMNS))
    tensor.copy_(numbers)
    release(tensor)
    with monkeypatch.context() as patch:
        if fails == "preadv":
            fail(file, patch, False)
        else:
            patch.setattr(rooms, "_libc", Failing(rooms._libc, unmaps=fails == "mremap half-way"))
        for step in range(60):
            if step == 10:  # when there are the threads, which take addresses of their own
                before = mapped()
            with pytest.raises(CapacityError):
                now(load, tensor)
        assert mapped() - before < 25 * numbers.nbytes
    assert is_mapped(tensor)  # a hole would end the process at the first touch
    assert torch.equal(tensor, numbers)
