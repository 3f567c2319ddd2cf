"""The kernel's queue moves what threads would move, and says what it does not take."""

import errno
import mmap
import os
import platform
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

import pytest

from widenet.kernels import kernel_queue
from widenet.kernels.kernel_queue import KernelQueue
from widenet.kernels.rooms import map_memory
from widenet.kernels.scratch import PAGE_BYTES, Scratch

SIZE, PLACES = 64 * 1024, 40


@pytest.fixture
def file(tmp_path):
    """A file of distinct blocks."""
    made = Scratch(tmp_path)
    if made.is_cached or made.queue is None:
        pytest.skip("the temporary folder or the kernel has no way past the system's cache")
    for place in range(PLACES):
        os.pwrite(made.descriptor, bytes([place]) * SIZE, place * SIZE)
    os.fsync(made.descriptor)
    return made


@pytest.fixture
def memory():
    return map_memory(None, PLACES * SIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def begun(queue, writes, descriptor, address, offset, size=SIZE):
    done = Future()
    assert queue.start(writes, descriptor, address, offset, size, done.set_result)
    return done


def test_blocks_are_read_and_written_where_they_belong(file, memory):
    """By several threads, and each result begins the next request."""
    queue = KernelQueue()
    done = [Future() for _ in range(PLACES)]

    def exchange(place):
        """Read a block, then write it to the place of its neighbour."""
        other, address = place ^ 1, memory + place * SIZE

        def write(result):
            assert result == SIZE
            queue.start(True, file.direct, address, other * SIZE, SIZE, done[place].set_result)

        queue.start(False, file.direct, address, place * SIZE, SIZE, write)

    with ThreadPoolExecutor(4) as pool:
        for first in (0, 1):  # no block is read after its neighbour was written
            list(pool.map(exchange, range(first, PLACES, 2)))
            assert [done[place].result() for place in range(first, PLACES, 2)] == [SIZE] * (PLACES // 2)
    found = [os.pread(file.descriptor, SIZE, place * SIZE) for place in range(PLACES)]
    assert found == [bytes([place & ~1]) * SIZE for place in range(PLACES)]


def test_an_error_of_the_disk_and_the_end_of_the_file_are_results(file, memory):
    queue = KernelQueue()
    assert begun(queue, False, file.direct, 4096, 0).result() == -errno.EFAULT
    assert begun(queue, False, file.direct, memory, (PLACES - 1) * SIZE, 2 * SIZE).result() == SIZE
    assert begun(queue, False, file.direct, memory, PLACES * SIZE).result() == 0


def test_more_requests_than_a_queue_has_room_for_are_refused(file, memory, monkeypatch):
    """However fast the disk is: the results stay in the queue until somebody takes them."""
    monkeypatch.setattr(kernel_queue, "_DEPTH", 4)
    queue, taken, waits, goes_on = KernelQueue(), [], Event(), Event()

    def hold(_):
        waits.set()
        goes_on.wait()

    assert queue.start(False, file.direct, memory, 0, SIZE, hold)
    waits.wait()
    for _ in range(100_000):
        done = Future()
        if not queue.start(False, file.direct, memory, 0, PAGE_BYTES, done.set_result):
            break
        taken.append(done)
    goes_on.set()
    assert 4 <= len(taken) < 100_000
    assert {done.result() for done in taken} == {PAGE_BYTES}


def test_threads_take_the_place_of_a_queue_that_the_kernel_does_not_have(tmp_path, monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "another")
    with pytest.raises(OSError, match="not implemented"):
        KernelQueue()
    assert Scratch(tmp_path).queue is None
