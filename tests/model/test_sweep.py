"""Passes over rows in files: of which memory holds only those at work, ahead and behind."""

import pytest
import torch

from tests.test_scratch import cached, resident
from widenet.errors import CapacityError
from widenet.model import sweep
from widenet.model.sweep import Sweep, groups
from widenet.plan import streaming
from widenet.plan.streaming import chunk_rows
from widenet.scratch import Scratch, load, release, scratch_of

ROWS, COLUMNS, REQUEST = 20_000, 64, 32 * 1024
AHEAD, BEHIND = 2, 3
"""Chunks of one tensor; of two, half of them: at least one."""


@pytest.fixture
def small_requests(monkeypatch):
    monkeypatch.setattr(streaming, "REQUEST_BYTES", REQUEST)
    monkeypatch.setattr(streaming, "AHEAD_BYTES", AHEAD * REQUEST)
    monkeypatch.setattr(streaming, "BEHIND_BYTES", BEHIND * REQUEST)


@pytest.fixture
def tensors(tmp_path, small_requests):
    del small_requests
    file = Scratch(tmp_path)
    made = [file.zeros((ROWS, COLUMNS)) for _ in range(2)]
    for number, tensor in enumerate(made):
        tensor.copy_(torch.arange(ROWS)[:, None] + number)
        release(tensor)
    return made


@pytest.mark.parametrize("tile", [30, 100, 1_000])
@pytest.mark.parametrize("writes", [False, True])
def test_memory_holds_a_window_and_every_row_is_written(tensors, tile, writes):
    window = (-(-tile * COLUMNS * 4 // REQUEST) + 1 + AHEAD // 2 + BEHIND // 2) * 2 * REQUEST
    held = 0
    with Sweep(tensors, writes) as rows:
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


def test_nothing_of_a_pass_stays_in_memory(tensors):
    with Sweep(tensors, writes=True) as rows:
        rows.at(0, 10)
    assert sum(map(resident, tensors)) == 0


def test_rows_ahead_are_in_memory_before_they_are_asked_for(tensors, monkeypatch):
    read = []

    def noted(tensor):
        load(tensor)
        read.append(tensor.data_ptr())

    monkeypatch.setattr(sweep, "load", noted)
    with Sweep(tensors[:1]) as rows:
        chunk = rows.chunk_rows
        rows.at(0, 1)
    assert sorted(read) == [tensors[0][number * chunk :].data_ptr() for number in range(1 + AHEAD)]


def test_a_pass_reads_what_the_cache_has_not_written_yet(tensors):
    tensors[0][7] = -1
    with Sweep(tensors, writes=True) as rows:
        assert cached(scratch_of(tensors[0]), tensors[0]) == 0
        rows.at(0, ROWS)
        assert bool((tensors[0][7] == -1).all())
        tensors[0][8] = -2
    assert bool((tensors[0][8] == -2).all())


def test_an_error_in_the_midst_of_a_pass_leaves_nothing_in_memory(tensors):
    with pytest.raises(IndexError), Sweep(tensors, writes=True) as rows:
        rows.at(ROWS + 1, tensors[0][ROWS + 1])
    assert sum(map(resident, tensors)) == 0


@pytest.mark.parametrize("writes", [False, True])
def test_rows_that_were_read_ahead_are_stored_where_others_cannot_be_read(tensors, writes, monkeypatch):
    before = tensors[0].clone()
    release(tensors[0])
    read = []

    def failing(rows):
        chunk = int((rows.data_ptr() - tensors[0].data_ptr()) // REQUEST)
        if chunk in (1, 2):
            raise CapacityError(f"chunk {chunk}")
        load(rows)
        read.append(chunk)

    monkeypatch.setattr(sweep, "load", failing)
    with pytest.raises(CapacityError, match="chunk 1"), Sweep(tensors[:1], writes) as rows:
        rows.at(0, 2 * rows.chunk_rows)
    assert len(read) == AHEAD
    assert resident(tensors[0]) == 0
    release(tensors[0])
    assert torch.equal(tensors[0], before)


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [([1024] * 3, 32), ([4 * 33], 1024), ([4096, 4096], 8), ([100_000] * 3, 128)]
)
@pytest.mark.usefixtures("small_requests")
def test_chunks_are_whole_pages_of_every_tensor(row_bytes, rows):
    assert chunk_rows(row_bytes) == rows
    assert all(rows * size % 4096 == 0 for size in row_bytes)


def test_tensors_in_memory_take_part_without_effect():
    with Sweep([torch.zeros(3, 3)]) as rows:
        rows.at(0, 3)
        assert rows.chunk_rows is None


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (None, [(0, 4)]),
        (10, [(0, 1), (1, 2), (2, 3), (3, 4)]),
        (20, [(0, 2), (2, 4)]),
        (34, [(0, 3), (3, 4)]),
    ],
)
def test_tiles_are_grouped_by_their_rows(rows, expected):
    assert [*groups([0, 10, 20, 30, 35], rows)] == expected
