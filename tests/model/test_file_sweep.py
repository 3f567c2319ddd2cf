"""Passes over rows in files: memory holds only those at work and some around them."""

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from types import SimpleNamespace

import pytest
import torch

from tests.scratches import cached, resident
from widenet.errors import CapacityError
from widenet.kernels.scratch import Scratch, load, release, scratch_of, store
from widenet.model import sweep as file_sweep
from widenet.model.sweep import Course, FileSweep
from widenet.plan import streaming

ROWS, COLUMNS, REQUEST = 8_000, 64, 32 * 1024
AROUND = 5
"""Chunks of one tensor around those at work."""


@pytest.fixture
def small_requests(monkeypatch):
    monkeypatch.setattr(streaming, "REQUEST_BYTES", REQUEST)
    monkeypatch.setattr(streaming, "AROUND_BYTES", AROUND * REQUEST)


@pytest.fixture(params=["queue", "threads"])
def tensors(request, tmp_path, small_requests):
    del small_requests
    file = Scratch(tmp_path)
    if request.param == "threads":
        file.queue = None
    made = [file.zeros((ROWS, COLUMNS)) for _ in range(2)]
    for number, tensor in enumerate(made):
        tensor.copy_(torch.arange(ROWS)[:, None] + number)
        release(tensor)
    return made


@pytest.mark.parametrize(("tile", "writes"), [(30, True), (100, False), (1_000, False), (1_000, True)])
def test_memory_holds_a_window_and_every_row_is_written(tensors, tile, writes):
    window = (2 * (-(-tile * COLUMNS * 4 // REQUEST) + 1) + AROUND) * REQUEST
    held = 0
    with FileSweep(tensors, writes) as rows:
        for start in range(0, ROWS, tile):
            stop = min(start + tile, ROWS)
            rows.at(start, stop)
            for tensor in tensors if writes else []:
                tensor[start:stop] *= 2
            if start % 3_000 < tile:
                held = max(held, sum(map(resident, tensors)))
    assert 0 < held <= window
    expected = torch.arange(ROWS)[:, None] * (2 if writes else 1)
    assert bool((tensors[0] == expected).all())
    assert bool((tensors[1] == expected + (2 if writes else 1)).all())


def test_a_pass_reads_what_the_cache_has_not_written_yet(tensors):
    tensors[0][7] = -1
    with FileSweep(tensors, writes=True) as rows:
        assert cached(scratch_of(tensors[0]), tensors[0]) == 0
        rows.at(0, ROWS)
        assert bool((tensors[0][7] == -1).all())
        tensors[0][8] = -2
    assert bool((tensors[0][8] == -2).all())


@pytest.mark.parametrize("writes", [False, True])
def test_rows_that_were_read_ahead_are_stored_where_others_cannot_be_read(tensors, writes, monkeypatch):
    before = tensors[0].clone()
    release(tensors[0])
    read = []

    def failing(rows, then):
        chunk = int((rows.data_ptr() - tensors[0].data_ptr()) // REQUEST)
        if chunk in (1, 2):
            then(CapacityError(f"chunk {chunk}"))
            return
        load(rows, then)
        read.append(chunk)

    monkeypatch.setattr(file_sweep, "load", failing)
    with pytest.raises(CapacityError, match="chunk 1"), FileSweep(tensors[:1], writes) as rows:
        rows.at(0, 2 * rows.chunk_rows)
    assert len(read) == AROUND
    assert resident(tensors[0]) == 0
    release(tensors[0])
    assert torch.equal(tensors[0], before)


def held(tensors):
    return sum(map(resident, tensors))


@pytest.fixture
def counted(monkeypatch):
    """The bytes that are read and not yet given back: now, and at most."""
    bytes_, counting = SimpleNamespace(now=0, most=0), Lock()

    def loaded(rows, then):
        with counting:
            bytes_.now += rows.nbytes
            bytes_.most = max(bytes_.now, bytes_.most)
        load(rows, then)

    def stored(rows, writes, then):
        def given_back(error):
            with counting:
                bytes_.now -= rows.nbytes
            then(error)

        store(rows, writes, given_back)

    monkeypatch.setattr(file_sweep, "load", loaded)
    monkeypatch.setattr(file_sweep, "store", stored)
    return bytes_


def doubled(sweep, tensors, tile=100):
    with sweep as rows:
        for start in range(0, ROWS, tile):
            rows.at(start, min(start + tile, ROWS))
            for tensor in tensors:
                tensor[start : start + tile] *= 2


def test_passes_in_threads_write_every_row_once(tmp_path, small_requests, counted):
    """Each thread takes the next of seven tensors, in two passes; at no time is there more than planned."""
    del small_requests
    file, limit = Scratch(tmp_path), 3 * (1 + AROUND) * REQUEST
    made = [file.zeros((ROWS // 4, COLUMNS)) for _ in range(7)]
    for number, tensor in enumerate(made):
        tensor.fill_(number + 1)

    def work(number):
        with course.sweep([made[number]], writes=True) as rows:
            chunk = rows.chunk_rows
            for start in range(0, len(made[number]), chunk):
                rows.at(start, min(start + chunk, len(made[number])))
                made[number][start : start + chunk] *= 2

    with ThreadPoolExecutor(3) as pool, Course([([each], True) for each in 2 * made]) as course:
        for _ in range(2):
            list(pool.map(work, range(7)))
    assert counted.now == 0
    assert counted.most <= limit
    assert held(made) == 0
    assert all(bool((tensor == 4 * (number + 1)).all()) for number, tensor in enumerate(made))


def test_what_a_disk_does_not_take_at_the_end_of_a_pass_is_an_error_of_the_last_one(tensors, monkeypatch):
    last = tensors[0].data_ptr() + tensors[0].nbytes - 1

    def failing(rows, writes, then):
        is_last = rows.data_ptr() <= last < rows.data_ptr() + rows.nbytes
        store(rows, writes, lambda error: then(CapacityError("the last rows") if is_last else error))

    monkeypatch.setattr(file_sweep, "store", failing)
    with pytest.raises(CapacityError, match="the last rows"), Course() as course:
        doubled(course.sweep(tensors[:1], writes=True), tensors[:1])
    assert held(tensors) == 0
