"""Trains with weights in memory, on a disk, and on a disk under a cap of memory: time and memory.

The cap is a control group of the kernel; without the right to make one, that row is left out.
"""

import json
import mmap
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cgroups import capped, within
from benchmarks.places import workplace
from widenet import dataset_from_lists

WIDTH, UNITS, BATCH, STEPS, HISTORY = 400_000, 256, 64, 8, 20
_BLOCK, _BLOCKS = 2**23, 256
_NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "scale": "mean"},
        {"name": "taste", "units": UNITS, "activation": "tanh", "initializer": "gaussian"},
        {"name": "next", "kind": "output", "field": "items", "initializer": "gaussian"},
    ]
}
_TRAINING = {"epochs": 1, "batch_size": BATCH, "optimizer": "adam"}
_TRAIN = """
import json, resource, sys
from time import perf_counter
from widenet import train
from widenet.training import loop
steps, step = [], loop.train_step
def timed(*arguments):
    started = perf_counter()
    try:
        return step(*arguments)
    finally:
        steps.append(perf_counter() - started)
loop.train_step = timed
print(json.dumps({
    "fingerprint": train("network.json", "training.json", "data", sys.argv[1], weights_in=sys.argv[2],
                         device="cpu").fingerprint(),
    "seconds": steps, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def run() -> None:
    """Print the bandwidth of the disk, and a row for each training."""
    with workplace() as folder:
        draw = np.random.default_rng(0)
        rows = [
            np.unique((WIDTH * draw.random(HISTORY) ** 3).astype(np.int64)).tolist()
            for _ in range(BATCH * STEPS)
        ]
        dataset_from_lists(folder / "data", rows, width=WIDTH)
        (folder / "network.json").write_text(json.dumps(_NETWORK))
        (folder / "training.json").write_text(json.dumps(_TRAINING))
        bandwidth = _bandwidth(folder)
        plan = _plan(folder, bandwidth, "disk")
        state, work = plan["scratch_bytes"], plan["work"]
        print(f"\nThe disk reads {bandwidth / 1e9:.2f} GB a second while it writes as much.")
        print(
            f"Weights and state: {state / 1e9:.2f} GB. A step reads {work['read_bytes'] / 1e9:.2f} GB"
            f" and writes {work['written_bytes'] / 1e9:.2f} GB.\n"
        )
        print(
            "| weights | ms a step | of the bound | plan: ms | peak of memory, GB | plan: GB | fingerprint |"
        )
        print("|---|---|---|---|---|---|---|")
        resident = _trained(folder, "memory", "device")
        compute = float(np.median(resident["seconds"][2:]))
        _print("in memory", resident, compute, None, _plan(folder, bandwidth, "device"))
        bound = max(compute, plan["disk_seconds"])
        _print("on a disk", _trained(folder, "disk", "disk"), bound, plan["disk_seconds"], plan)
        with suppress(OSError), capped(state // 4) as group:
            found = _trained(folder, "capped", "disk", group)
            _print(f"on a disk, {state / 4e9:.2f} GB of memory", found, bound, plan["disk_seconds"], plan)


def _print(
    name: str, found: dict[str, Any], bound: float, planned: float | None, plan: dict[str, Any]
) -> None:
    seconds = float(np.median(found["seconds"][2:]))
    times = (
        f"{1000 * seconds:.0f} | {seconds / bound:.2f} | {'' if planned is None else round(1000 * planned)}"
    )
    memory = f"{found['peak'] / 1e9:.2f} | {plan['memory_bytes']['total'] / 1e9:.2f}"
    print(f"| {name} | {times} | {memory} | {found['fingerprint'][:8]} |", flush=True)


def _trained(folder: Path, out: str, place: str, group: Path | None = None) -> dict[str, Any]:
    line = [sys.executable, "-c", _TRAIN, out, place]
    line = line if group is None else within(group, line)
    said = subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def _plan(folder: Path, bandwidth: float, place: str) -> dict[str, Any]:
    words = ["plan", "network.json", "training.json", "--data", "data", "--device", "cpu", "--json"]
    words += ["--weights-in", place]
    words += ["--disk-bandwidth", f"{bandwidth:.0f}B"] if place == "disk" else []
    said = subprocess.run(
        [sys.executable, "-m", "widenet", *words], cwd=folder, check=False, capture_output=True, text=True
    ).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def _bandwidth(folder: Path) -> float:
    """Return the bytes a second that the disk reads while it writes as many, past the system's cache.

    One file is read and written from 1, 2, 4 and 8 pairs of threads; the fastest counts.
    """
    path = folder / "blocks"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        os.posix_fallocate(descriptor, 0, 2 * _BLOCKS * _BLOCK)
        with ThreadPoolExecutor(16) as pool:
            full = mmap.mmap(-1, _BLOCK)
            for place in range(2 * _BLOCKS):
                os.pwritev(descriptor, [full], place * _BLOCK)

            def move(first: int, step: int, writes: bool) -> None:
                block = mmap.mmap(-1, _BLOCK)
                for place in range(first, _BLOCKS, step):
                    if writes:
                        os.pwritev(descriptor, [block], (_BLOCKS + place) * _BLOCK)
                    else:
                        os.preadv(descriptor, [block], place * _BLOCK)

            def seconds(pairs: int) -> float:
                started = perf_counter()
                work = [
                    pool.submit(move, pair, pairs, writes)
                    for pair in range(pairs)
                    for writes in (False, True)
                ]
                for each in work:
                    each.result()
                return perf_counter() - started

            return _BLOCKS * _BLOCK / min(seconds(pairs) for pairs in (1, 2, 4, 8, 1, 2, 4, 8))
    finally:
        os.close(descriptor)
        path.unlink()
