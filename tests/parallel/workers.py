"""Groups of processes that have joined a torch group over gloo and run what a test hands them."""

import contextlib
import io
import os
import traceback
from datetime import timedelta
from multiprocessing.connection import Connection

from torch import distributed

from tests.scripts import CONTEXT
from widenet.cli import main
from widenet.parallel.exchange import Exchange, one_thread_an_operation

TIMEOUT = timedelta(seconds=60)


def exchange(num_shards=8, num_threads=1):
    return Exchange(num_shards, num_threads, is_shared=True)


def commanded(line, folder="."):
    """What a command line says in this process, and how it ends."""
    said, complained = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(complained),
    ):
        try:
            main(line)
            status = 0
        except SystemExit as ended:
            status = ended.code or 0
    return status, said.getvalue(), complained.getvalue()


class Group:
    """N processes of one group, within which `widenet.train` and all else may be called."""

    def __init__(self, size, folder, timeout=TIMEOUT):
        self.size, self.folder, self.timeout = 0, folder, timeout
        self.ends, self.processes, self.joined = [], [], 0
        self.resized(size)

    def resized(self, size):
        """This group, of so many processes: the first of those that there are, and new ones if it needs more.

        A process that has trained before trains in less time than a new one.
        """
        if size == self.size:
            return self
        while len(self.processes) < size:
            here, there = CONTEXT.Pipe()
            process = CONTEXT.Process(target=_work, args=(there,), daemon=True)
            process.start()
            there.close()
            self.ends.append(here)
            self.processes.append(process)
        self.size, self.joined = 0, self.joined + 1
        for rank, end in enumerate(self.ends[:size]):
            end.send((_join, (rank, size, f"{self.folder}/store-{self.joined}", self.timeout)))
        answers = self.outcomes(range(size))
        assert answers == [None] * size, f"answers to earlier questions: {answers}"
        self.size = size
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        for end in self.ends:
            end.close()
        for process in self.processes:
            process.join(10)
            process.kill()
            process.join()

    def start(self, work, *arguments, ranks=None):
        """Let some processes begin `work(*arguments)`."""
        for rank in range(self.size) if ranks is None else ranks:
            self.ends[rank].send((work, arguments))

    def outcomes(self, ranks=None):
        """What each gave or raised, by rank; a process that ended without a word gives EOFError."""
        return [_received(self.ends[rank]) for rank in (range(self.size) if ranks is None else ranks)]

    def __call__(self, work, *arguments):
        """What `work(*arguments)` gave in every process, by rank; raises what the first to fail raised."""
        self.start(work, *arguments)
        found = self.outcomes()
        for outcome in found:
            if isinstance(outcome, BaseException):
                raise outcome
        return found


def _received(end: Connection):
    try:
        return end.recv()
    except (EOFError, ConnectionResetError):
        return EOFError("the process has ended")


def _join(rank, size, store, timeout):
    """Leave the group that this process is in, if it is in one, and join another."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
    distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=size, timeout=timeout
    )


def _work(end):
    os.environ.pop("WIDENET_THREADS", None)
    with one_thread_an_operation():
        while True:
            try:
                work, arguments = end.recv()
            except EOFError:
                os._exit(0)
            try:
                end.send(work(*arguments))
            except BaseException as error:
                error.add_note(traceback.format_exc())
                end.send(error)
