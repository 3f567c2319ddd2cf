"""Compiles the kernels of a training in helper processes, while this one imports, reads and builds.

Numba compiles one function at a time in a process. A helper writes the code to Numba's cache, and this
process loads it when it needs it (`compiled.made_once`). If a helper fails or is killed, this process
compiles the rest itself: the code is the same.
"""

import fcntl
import json
import os
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from widenet.kernels.compiled import Kernel, is_missing, leave_to
from widenet.plan.machine import available_threads
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.spec.usual import usual_network, usual_training

_MOST_HELPERS = 3
"""More would not be done sooner: each loads Numba, which takes as long as a kernel or two."""

_RUNNING: list[subprocess.Popen[bytes]] = []
"""The helper of `compile_usual`, for which nobody waits."""


def compile_ahead(network: NetworkSpec, training: TrainingSpec) -> bool:
    """Start helpers for those kernels of a training on a CPU that Numba's cache on disk lacks.

    It is a guess by the documents: a kernel too many costs the helpers some time, and one that is left out is
    compiled when it is needed. This does not load torch.

    Returns:
        Whether helpers have been started.
    """
    try:
        kernels = [kernel for kernel in _kernels(network, training) if is_missing(kernel)]
        later = [kernel for kernel in _later() if is_missing(kernel)]
    except ImportError:  # there is no Numba
        return False
    spare = available_threads() - 1
    number = min(len(kernels), spare, _MOST_HELPERS)
    for share in [kernels[first::number] for first in range(number)]:
        leave_to(_helper(share), share)
    if later and spare:
        leave_to(_helper(later, is_patient=True), later)
    return spare > 0 and bool(kernels or later)


def compile_usual() -> subprocess.Popen[bytes] | None:
    """Start a helper for the kernels of the usual documents if none has ever been compiled here.

    Who makes a dataset will train soon. The helper has the lowest priority and ends by itself.

    Returns:
        The helper; None if there is compiled code, no place to keep it, or no Numba.
    """
    folder = _cache()
    codes = folder.glob(f"{Path(__file__).parent.name}_*/compiled*.nbi" if _chosen() else "compiled*.nbi")
    if find_spec("numba") is None or not _can_be_written(folder) or any(codes):
        return None
    helper = _started([])
    if helper is not None:
        _RUNNING.append(helper)
    return helper


def _chosen() -> str | None:
    """Return the folder for compiled code that the environment names, if any."""
    return os.environ.get("NUMBA_CACHE_DIR")


def _cache() -> Path:
    """Return the folder below which Numba keeps compiled code."""
    chosen = _chosen()
    return Path(chosen) if chosen else Path(__file__).parent / "__pycache__"


def _can_be_written(folder: Path) -> bool:
    """Return whether files can be written to a folder, which Numba makes where it is missing."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return os.access(there, os.W_OK)


def _kernels(network: NetworkSpec, training: TrainingSpec) -> list[Kernel]:
    """Return the kernels that need no torch to be compiled, the slow ones first."""
    from widenet.kernels.compiled_deferred import compiled_gradients, compiled_slopes
    from widenet.kernels.compiled_steps import compiled_steps
    from widenet.kernels.compiled_sweep import compiled_sweep
    from widenet.kernels.compiled_tiles import compiled_pass

    users = [*network.outputs, *network.hidden]
    owners = {share.layer for user in users for share in getattr(user, "weights", None) or ()}
    kernels: dict[Kernel, None] = {}
    for output in network.outputs:
        kind = output.activation.kind
        if kind not in ("sigmoid", "softmax") or output.loss.kind != "cross_entropy":
            continue
        by_tiles = output.weightless
        if kind == "softmax":
            kernels[compiled_pass if by_tiles else compiled_sweep, ("softmax_sums",)] = None
        waits = output.weights or output.name in owners or training.gradient_norm_limit
        if waits and not by_tiles:
            kernels |= dict.fromkeys([(compiled_slopes, (kind,)), (compiled_gradients, (kind,))])
        else:
            sweeps = not (by_tiles or output.weight_norm or output.cosine)
            kernels[compiled_sweep if sweeps else compiled_pass, (kind,)] = None
    rule = network.tuned(training.optimizer)
    kernels[(compiled_steps, (rule.kind, len(rule.state)))] = None
    return [*kernels]


def _later() -> list[Kernel]:
    """Return the kernels that a training needs for its first evaluation, and a run for recommendations."""
    from widenet.kernels.compiled_ranking import compiled_ranking
    from widenet.kernels.compiled_search import compiled_choice

    return [(compiled_ranking, ()), (compiled_choice, ())]


def _helper(kernels: list[Kernel], is_patient: bool = False) -> subprocess.Popen[bytes] | None:
    """Start a process that compiles kernels; None if it cannot be started.

    Args:
        kernels: The kernels.
        is_patient: Whether it only takes what others leave of the processors.
    """
    names = [(make.__module__, make.__qualname__, arguments) for make, arguments in kernels]
    return _started([json.dumps(names), *(["patient"] if is_patient else [])])


def _started(words: list[str]) -> subprocess.Popen[bytes] | None:
    """Start this file as a program; None if it cannot be started.

    A session of its own keeps Ctrl-C from it: it ends by itself within seconds. In a frozen program,
    `sys.executable` is the program itself.
    """
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    command = [sys.executable, "-P", "-m", __name__, *words]
    quiet, environment = subprocess.DEVNULL, {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    try:
        return subprocess.Popen(  # noqa: S603 # this Python
            command, stdin=quiet, stdout=quiet, stderr=quiet, env=environment, start_new_session=True
        )
    except OSError:
        return None


def _compile_usual() -> None:
    """Compile the kernels of the usual documents, whenever nobody else needs the processors.

    Several datasets may be made one after the other: one helper at a time is enough.
    """
    os.nice(19)
    _cache().mkdir(parents=True, exist_ok=True)
    lock = os.open(_cache() / "usual.lock", os.O_RDWR | os.O_CREAT, 0o600)  # held until this process ends
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    usual = _kernels(usual_network("items", is_sequence=False, num_features=1), usual_training(True, 1))
    for make, arguments in [*usual, *_later()]:
        make(*arguments)


if __name__ == "__main__":
    if len(sys.argv) == 1:
        _compile_usual()
    else:
        if sys.argv[2:] == ["patient"]:
            os.nice(19)
        for module, name, arguments in json.loads(sys.argv[1]):
            getattr(import_module(module), name)(*arguments)
