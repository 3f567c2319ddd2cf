"""Scripts in processes of their own, forked from one that has loaded widenet, which a start mostly is."""

import atexit
import multiprocessing
import os
import sys
import threading
import traceback
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["tests.parallel.workers", "tests.parallel.matrix", "tests.parallel.preload", "widenet.runs"]
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
        self.process = CONTEXT.Process(
            target=_run, args=(code, self.paths, dict(environment), list(words), str(cwd)), daemon=True
        )
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


def _run(code, paths, environment, words, cwd):
    """Be the script, from its beginning to what Python does at the end of a process."""
    atexit._clear()
    os.chdir(cwd)
    os.environ.update(environment)
    sys.argv = ["-c", *words]
    for descriptor, path in enumerate(map(Path, paths), start=1):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, descriptor)
        os.close(opened)
    status = 0
    try:
        exec(compile(code, "script", "exec"), {"__name__": "__main__"})
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
