"""The thread that takes part in collectives: its order, its errors, and how those who wait for it are
released.
"""

import gc
import subprocess
import sys
import threading
import weakref
from pathlib import Path

import pytest

from widenet.errors import GroupError
from widenet.parallel.line import Line

ROOT = Path(__file__).parents[2]


def test_work_is_done_in_order_by_one_prepared_thread():
    ready = threading.local()
    line = Line(lambda: setattr(ready, "prepared", True))
    done = [
        line.submit(lambda number: (number, ready.prepared, threading.get_ident()), number)
        for number in range(50)
    ]
    results = [future.result() for future in done]
    assert [result[:2] for result in results] == [(number, True) for number in range(50)]
    assert len({result[2] for result in results}) == 1


def test_an_error_is_that_of_its_own_work():
    line = Line()
    failed, fine = line.submit(lambda: 1 / 0), line.submit(lambda: 7)
    with pytest.raises(ZeroDivisionError):
        failed.result()
    assert fine.result() == 7


def test_a_line_keeps_no_result_of_its_work():
    # Its thread would free a tensor while Python ends, which aborts the process.
    class Result:
        pass

    line, freed = Line(), threading.Event()
    weakref.finalize(line.submit(Result).result(), freed.set)
    assert freed.wait(timeout=60)


def test_a_line_keeps_nothing_of_work_that_failed():
    class Argument:
        pass

    line, freed, argument = Line(), threading.Event(), Argument()
    weakref.finalize(argument, freed.set)
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError):
            line.submit(lambda _: 1 / 0, argument).result()
        del argument
        assert freed.wait(timeout=60)
    finally:
        gc.enable()


def test_a_lost_process_releases_everybody_who_waits():
    line, never = Line(), threading.Event()
    waiting = [line.submit(never.wait), line.submit(bool)]
    line.fail(GroupError("process 1 was lost."))
    for future in [*waiting, line.submit(bool)]:
        with pytest.raises(GroupError, match=r"^process 1 was lost\.$"):
            future.result(timeout=60)
    never.set()


def test_a_line_has_failed_once_its_work_has_and_not_while_nobody_waits():
    line = Line()
    line.submit(bool).result()
    line.fail(GroupError("process 1 was lost."))
    assert not line.has_failed
    line.submit(bool)
    assert line.has_failed


def test_a_blocked_line_does_not_keep_its_process_from_ending():
    code = (
        "import sys, threading; from widenet.parallel.line import Line;"
        " Line().submit(threading.Event().wait); sys.exit(3)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False, timeout=60).returncode == 3


def test_the_thread_ends_with_its_line():
    line = Line()
    thread = line.submit(threading.current_thread).result()
    del line
    thread.join(60)
    assert not thread.is_alive()
