"""The `widenet` command of an environment: runs each request in a copy of this process, which has loaded the
libraries once. Prints the copy's process id, then its exit status.
"""

import gc
import json
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from pkgutil import walk_packages

SECONDS = 1200
"""After which a command is ended by an alarm."""


def run(command, arguments, folder, printed):
    """Run the command in this process, which ends."""
    os.setsid()
    signal.alarm(SECONDS)
    os.chdir(folder)
    for target, path in ((0, os.devnull), (1, printed), (2, f"{printed}.errors")):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), target)
    sys.argv = [str(Path(sys.executable).with_name("widenet")), *arguments]
    sys.exit(command())


def load(package):
    """Load what commands would load; no module of the package starts a thread."""
    for library in ("torch", "duckdb", "pyarrow.parquet", "pydantic", "typer", "rich", "safetensors.torch"):
        import_module(library)
    for module in walk_packages(package.__path__, f"{package.__name__}.", onerror=lambda _: None):
        if not {"spark", "triton", "__main__"} & set(module.name.split(".")):
            with suppress(ImportError):
                import_module(module.name)
    gc.freeze()


def main():
    (script,) = entry_points(group="console_scripts", name="widenet")
    command = script.load()
    load(sys.modules["widenet"])
    print(sys.modules["widenet"].__file__, flush=True)
    for line in iter(sys.stdin.readline, ""):
        if (process := os.fork()) == 0:
            run(command, **json.loads(line))
        print(process, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
