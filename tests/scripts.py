"""Scripts in processes of their own, forked from one that has loaded widenet, which a start mostly is."""

import atexit
import contextlib
import multiprocessing
import os
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "tests.parallel.workers",
        "tests.parallel.matrix",
        "widenet.serve.service",
        "widenet.ui.start_site",
        "tests.parallel.preload",
    ]
)
"""One process loads everything; the others are copies of it, made before it has threads."""


class Script:
    """A script that runs: its process id, its end, and what it says.

    code: Python. said: a folder that is not there yet, for standard output and standard error. environment:
    variables to set. words: `sys.argv` after its first.
    """

    def __init__(self, code, said, environment=(), words=(), cwd="."):
        said.mkdir()
        self.paths = [said / "out", said / "err"]
        self._start(code, self.paths, environment, words, cwd)

    def _start(self, code, ends, environment, words, cwd):
        given = code, ends, dict(environment), list(words), str(cwd)
        self.process = CONTEXT.Process(target=_run, args=given, daemon=True)
        self.process.start()
        self.pid = self.process.pid

    def communicate(self, timeout=None):
        """Standard output and standard error, once it has ended; fails where it has not in time."""
        self.process.join(timeout)
        assert self.returncode is not None, [path.read_text() for path in self.paths if path.exists()]
        return tuple(path.read_text("utf-8") if path.exists() else "" for path in self.paths)

    @property
    def returncode(self):
        """The exit status, minus a signal that ended it, or None while it runs."""
        return self.process.exitcode

    def kill(self):
        """End it at once."""
        self.process.kill()


class Conversation(Script):
    """A script whose standard input, output and error are pipes, as those of a `subprocess.Popen`.

    code: Python, `widenet` itself if there is none. words: `sys.argv` after its first. environment: all its
    variables, this process's if there are none. It has this process's current directory. Libraries that read
    variables when they are imported (OMP_NUM_THREADS, ...) have read those that the tests began with: what
    sets others needs a program that starts from nothing.
    """

    def __init__(self, words, code="from widenet.cli import main; main()", environment=None):
        self.waiting = threading.Lock()
        (stdin, self.stdin), (self.stdout, stdout), (self.stderr, stderr) = (
            CONTEXT.Pipe(duplex=False) for _ in range(3)
        )
        ends = [stdin, stdout, stderr]
        self._start(code, ends, os.environ if environment is None else environment, words, Path.cwd())
        for theirs in ends:
            theirs.close()
        self.stdin = _opened(self.stdin, "w")
        self.stdout, self.stderr = _opened(self.stdout, "r"), _opened(self.stderr, "r")

    def communicate(self, timeout=None):
        """What is left of standard output and standard error, once it has ended."""
        self.stdin.close()
        with ThreadPoolExecutor(2) as pool:
            rest = [pool.submit(stream.read) for stream in (self.stdout, self.stderr)]
            self.wait(timeout)
            said = tuple(text.result() for text in rest)
        self.close()
        return said

    def wait(self, timeout=None):
        """The exit status, once it has ended; a script that has not in time is killed.

        Several threads may wait, of which the first reads the status.
        """
        with self.waiting:
            self.process.join(timeout)
            if self.process.is_alive():
                self.kill()
                raise TimeoutError(f"the process has not ended within {timeout} seconds")
            return self.returncode

    def poll(self):
        """The exit status, None while it runs."""
        return self.returncode

    def terminate(self):
        """Send SIGTERM."""
        self.process.terminate()

    def close(self):
        """End it at once, and close the pipes."""
        self.kill()
        self.process.join()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(BrokenPipeError):
                stream.close()


def _opened(end, mode):
    """A file of an end of a pipe."""
    file = os.fdopen(os.dup(end.fileno()), mode, encoding="utf-8")
    end.close()
    return file


def _run(code, ends, environment, words, cwd):
    """Be the script, from its beginning to what Python does at the end of a process.

    ends: standard output and standard error as paths, or these and standard input before them as pipes.
    environment: variables to set; for a script with pipes, all that it has.
    """
    atexit._clear()
    os.chdir(cwd)
    has_pipes = len(ends) > 2
    if has_pipes:
        os.environ.clear()
    os.environ.update(environment)
    if "WIDENET_LAUNCHER" in environment:
        os.environ["WIDENET_LAUNCHER"] = str(os.getppid())  # the process that it was forked from
    sys.argv = ["-c", *words]
    for descriptor, end in enumerate(ends, start=3 - len(ends)):
        is_path = isinstance(end, Path)
        opened = os.open(end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) if is_path else os.dup(end.fileno())
        os.dup2(opened, descriptor)
        os.close(opened)
    if has_pipes:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 the script's own
        for end in ends:
            end.close()
    to_its_end(lambda: exec(compile(code, "script", "exec"), {"__name__": "__main__"}))


def to_its_end(work):
    """Run what this process is for, then do what Python does at the end of a process, and end."""
    status = 0
    try:
        work()
    except SystemExit as ended:
        status = ended.code or 0
        if not isinstance(status, int):
            print(status, file=sys.stderr)
            status = 1
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
