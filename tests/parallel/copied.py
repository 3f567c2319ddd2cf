"""`widenet` in a process that has loaded everything; what `--processes` starts are copies of it."""

import atexit
import inspect
import os
import signal
import subprocess
import warnings
from pathlib import Path
from types import SimpleNamespace

from tests.scripts import Conversation, to_its_end
from widenet.cli import main
from widenet.parallel import launch


class _Process(subprocess.Popen):
    """Forks where `subprocess.Popen` would start a program from nothing.

    Python may order the parameters of `_execute_child` as it likes, and name them so.
    """

    _parameters = inspect.signature(subprocess.Popen._execute_child)

    def _execute_child(self, *args):
        asked = self._parameters.bind(self, *args).arguments
        self.pid = os.fork()
        if self.pid:
            self._child_created = True
        else:
            self.be(asked)

    def be(self, asked):
        """Be a process of the group, with the environment, descriptors and signals of a new program."""
        os.setsid()
        os.dup2(asked["errwrite"] if asked["errwrite"] >= 0 else 2, 2)
        _leave(asked["pass_fds"])
        os.environ.clear()
        os.environ.update(asked["env"])
        for number in (signal.SIGTERM, signal.SIGTSTP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit._clear()
        to_its_end(lambda: main(asked["args"][3:]))


def _leave(descriptors):
    """Have no other descriptors than the usual three and those that this process is handed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for own in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if own not in {0, 1, 2, nothing, *descriptors}:
            os.dup2(nothing, own)


def command(words):
    """A command line that runs in this process's current directory."""
    return Conversation(words, "from tests.parallel.copied import run; run()")


def run():
    """Run the command line."""
    warnings.filterwarnings("error", module="widenet")
    launch.subprocess = SimpleNamespace(Popen=_Process)
    main()


def children(command):
    """Process ids of the processes that a command has started, in order of their ranks."""
    listed = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text()
    return [int(child) for child in listed.split()]
