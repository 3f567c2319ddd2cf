"""`widenet` in a process that has loaded everything; the process of a service's model is a copy of it."""

import inspect
import os
import runpy
import subprocess
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

from widenet.cli import main
from widenet.serve import model_process, remote


class Copy(subprocess.Popen):
    """Forks where `subprocess.Popen` would start a program from nothing: that of a service's model.

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
        """Be the program, from its beginning to its end."""
        _be_model(*asked["args"][-2:], asked["pass_fds"])


def leave(descriptors):
    """Have no other descriptors than the usual three and those that this process is handed."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for own in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if own not in {0, 1, 2, nothing, *descriptors}:
            os.dup2(nothing, own)


def _be_model(program, settings, descriptors):
    """Be the process of a model: `model_process`, or a program in a file."""
    try:
        os.setsid()
        leave(descriptors)
        if program == model_process.__name__:
            model_process.main(settings)
        else:
            sys.argv = [program, settings]
            runpy.run_path(program, run_name="__main__")
    except SystemExit as ended:
        os._exit(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def run(model=None):
    """Run the command line.

    model: a file of this folder that the process of a model runs instead of the usual program.
    """
    if model is not None:
        remote.PROGRAM[:] = [str(Path(__file__).with_name(model))]
    remote.subprocess = SimpleNamespace(Popen=Copy)
    main()
