"""The two sides: a worktree of the old commit with an environment of its own, and this checkout."""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.same.differences import OLD

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "build" / "same" / OLD


class NoComparisonError(Exception):
    """The guard cannot compare; the text says why."""


class Side:
    """The `widenet` of one tree: commands run in `work`, several at once."""

    def __init__(self, python, tree, work, variables):
        self.python, self.tree, self.work = python, tree, work
        self.environment = {
            key: value for key, value in os.environ.items() if key != "PYTHONPATH"
        } | variables
        self.idle, self.started = queue.LifoQueue(), []
        work.mkdir(parents=True, exist_ok=True)

    def _start(self):
        words = [self.python, "-P", Path(__file__).with_name("command.py")]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = subprocess.Popen(words, cwd=self.work, env=self.environment, **streams)
        self.started.append(command)
        loaded = command.stdout.readline().strip()
        if not loaded or not Path(loaded).resolve().is_relative_to(self.tree.resolve()):
            raise NoComparisonError(
                f"widenet must come from {self.tree}; this side has loaded {loaded or 'nothing'}"
            )
        return command

    @contextmanager
    def _begun(self, arguments, printed):
        """Start a command; gives its process id and a function that waits for its exit status."""
        try:
            command = self.idle.get_nowait()
        except queue.Empty:
            command = self._start()
        request = {"arguments": list(map(str, arguments)), "folder": str(self.work), "printed": str(printed)}
        print(json.dumps(request), file=command.stdin, flush=True)
        process = int(command.stdout.readline())
        yield process, lambda: int(command.stdout.readline())
        self.idle.put(command)

    def run(self, arguments, printed):
        """Run a command, which prints into a file; returns its exit status."""
        with self._begun(arguments, printed) as (_, wait):
            return wait()

    def stop(self, sign, arguments, printed, reached):
        """Run a command, and send it a signal as soon as something holds; returns its exit status."""
        with self._begun(arguments, printed) as (process, wait):
            while not reached() and Path(f"/proc/{process}").exists():
                time.sleep(0.002)
            with suppress(ProcessLookupError):
                (os.killpg if sign == signal.SIGKILL else os.kill)(process, sign)
            return wait()

    def close(self):
        """End its processes."""
        for command in self.started:
            command.stdin.close()
            command.send_signal(signal.SIGTERM)
            command.wait()


def old_side(work, variables):
    """The side of OLD, whose tree and environment are made once."""
    tree, python = KEPT / "tree", KEPT / "environment" / "bin" / "python"
    if not tree.is_dir():
        if _git("cat-file", "-e", f"{OLD}^{{commit}}").returncode:
            raise NoComparisonError(
                f"this checkout's history lacks commit {OLD}; `git fetch --unshallow` gets it"
            )
        _git("worktree", "prune")
        if (made := _git("worktree", "add", "--detach", str(tree), OLD)).returncode:
            raise NoComparisonError(f"no worktree of {OLD}: {made.stderr.strip()}")
    if not (KEPT / "installed").exists():
        shutil.rmtree(KEPT / "environment", ignore_errors=True)
        _install(tree, python)
        (KEPT / "installed").touch()
    return Side(python, tree, work, variables)


def _install(tree, python):
    """Make the environment of a tree; it borrows the libraries of this one if both ask for the same ones."""
    if _requirements(tree) == _requirements(ROOT):
        _checked(sys.executable, "-m", "venv", "--without-pip", python.parent.parent)
        folder = _checked(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        libraries = [path for path in sys.path if path.endswith("site-packages")]
        Path(folder, "libraries.pth").write_text("\n".join(libraries) + "\n")
        own = ["--no-deps", "--no-build-isolation", "-e", tree]
    else:
        _checked(sys.executable, "-m", "venv", python.parent.parent)
        own = ["-c", tree / "constraints.txt", "-e", f"{tree}[dsstne,knn]"]
    _checked(python, "-m", "pip", "install", "--quiet", *own)


def _requirements(tree):
    """What a tree asks of the libraries that these cases use."""
    project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
    needs = [*project["dependencies"], *project["optional-dependencies"]["dsstne"]]
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (tree / "constraints.txt").read_text(), re.MULTILINE))
    return [(need, pins.get(re.split("[<>=]", need)[0])) for need in needs]


def _git(*words):
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)


def _checked(*words):
    ended = subprocess.run(list(map(str, words)), cwd=KEPT, capture_output=True, text=True)
    if ended.returncode:
        raise NoComparisonError(f"{' '.join(map(str, words))}: {(ended.stderr or ended.stdout)[-2000:]}")
    return ended.stdout
