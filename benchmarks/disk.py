"""Trains with weights in memory, on a disk, and on a disk under a cap of memory: time, bytes and memory.

Beside them stands what `widenet plan` says: from the bandwidth of the disk, and from steps that `--measure`
times after the trainings.

The cap is a control group of the kernel; without the right to make one, that row is left out. The trainings
take turns A B C, C B A. Times and bytes are medians of all their steps but the first two of each turn;
the bytes are those that the kernel counts (/proc/self/io), so rows that are read again count again.
"""

import json
import mmap
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cgroups import capped, within
from benchmarks.places import workplace
from widenet import dataset_from_lists

WIDTH, UNITS, BATCH, STEPS, HISTORY = 400_000, 256, 64, 24, 20
ROUNDS, WARM_UP = 2, 2
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
def moved():
    lines = dict(line.split(": ") for line in open("/proc/self/io").read().splitlines())
    return int(lines["read_bytes"]), int(lines["write_bytes"])
def timed(*arguments):
    (read, written), started = moved(), perf_counter()
    try:
        return step(*arguments)
    finally:
        seconds, (read_now, written_now) = perf_counter() - started, moved()
        steps.append({"seconds": seconds, "read": read_now - read, "written": written_now - written})
loop.train_step = timed
model = train("network.json", "training.json", "data", sys.argv[1], weights_in=sys.argv[2], device="cpu")
print(json.dumps({
    "fingerprint": model.fingerprint(), "steps": steps,
    "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}))
"""


def run() -> None:
    """Print the bandwidth of the disk, and a row for each training."""
    with workplace() as folder, ExitStack() as stack:
        draw = np.random.default_rng(0)
        rows = [
            np.unique((WIDTH * draw.random(HISTORY) ** 3).astype(np.int64)).tolist()
            for _ in range(BATCH * STEPS)
        ]
        dataset_from_lists(folder / "data", rows, width=WIDTH)
        (folder / "network.json").write_text(json.dumps(_NETWORK))
        (folder / "training.json").write_text(json.dumps(_TRAINING))
        state = _plan(folder, "disk", 1e9)["scratch_bytes"]
        places: dict[str, tuple[str, Path | None]] = {
            "in memory": ("device", None),
            "on a disk": ("disk", None),
        }
        try:
            group = stack.enter_context(capped(state // 4))
            places[f"on a disk, {state / 4e9:.2f} GB of memory"] = "disk", group
        except OSError as error:
            print(f"No row under a cap: {error}.")
        turns: dict[str, list[dict[str, Any]]] = {name: [] for name in places}
        bandwidths = []
        for turn in range(ROUNDS):
            bandwidths.append(_bandwidth(folder))
            for name in list(places)[:: -1 if turn % 2 else 1]:
                turns[name].append(_trained(folder, f"{name}, {turn}", *places[name]))
        bandwidth = float(np.median(bandwidths))
        plans = {name: _plan(folder, place, bandwidth, group) for name, (place, group) in places.items()}
        timed = {place: _plan(folder, place, measures=True)["measured"] for place in ("device", "disk")}
        for name, plan in plans.items():
            plan["step_seconds"] = timed[places[name][0]]["step_seconds"]
        work = plans["on a disk"]["work"]
        print(
            f"\nThe disk reads {bandwidth / 1e9:.2f} GB a second while it writes as much"
            f" ({min(bandwidths) / 1e9:.2f} to {max(bandwidths) / 1e9:.2f})."
        )
        print(
            f"Weights and state: {state / 1e9:.2f} GB. By the plan, a step reads"
            f" {work['read_bytes'] / 1e9:.2f} GB and writes {work['written_bytes'] / 1e9:.2f} GB.\n"
        )
        print(
            "| weights | ms a step | of the bound | plan: ms | --measure: ms | read, GB | written, GB"
            " | peak of memory, GB | plan: GB | fingerprint |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|")
        compute = _median(turns["in memory"], "seconds")
        for name, plan in plans.items():
            _print(name, turns[name], compute, plan)


def _print(name: str, turns: list[dict[str, Any]], compute: float, plan: dict[str, Any]) -> None:
    seconds, planned = _median(turns, "seconds"), plan.get("disk_seconds")
    cells = [
        name,
        f"{1000 * seconds:.0f}",
        f"{seconds / max(compute, planned or 0):.2f}",
        "" if planned is None else f"{1000 * planned:.0f}",
        f"{1000 * plan['step_seconds']:.0f}",
        f"{_median(turns, 'read') / 1e9:.2f}",
        f"{_median(turns, 'written') / 1e9:.2f}",
        f"{np.median([turn['peak'] for turn in turns]) / 1e9:.2f}",
        f"{plan['memory_bytes']['total'] / 1e9:.2f}",
        " ".join(sorted({turn["fingerprint"][:8] for turn in turns})),
    ]
    print(f"| {' | '.join(cells)} |", flush=True)


def _median(turns: list[dict[str, Any]], name: str) -> float:
    return float(np.median([step[name] for turn in turns for step in turn["steps"][WARM_UP:]]))


def _trained(folder: Path, out: str, place: str, group: Path | None) -> dict[str, Any]:
    line = [sys.executable, "-c", _TRAIN, out, place]
    line = line if group is None else within(group, line)
    said = subprocess.run(line, cwd=folder, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    shutil.rmtree(folder / out)
    return found


def _plan(
    folder: Path,
    place: str,
    bandwidth: float | None = None,
    group: Path | None = None,
    measures: bool = False,
) -> dict[str, Any]:
    """Return the plan of a training; within a group, of its memory."""
    words = ["plan", "network.json", "training.json", "--data", "data", "--device", "cpu", "--json"]
    words += ["--weights-in", place]
    words += ["--measure"] if measures else []
    words += ["--scratch", str(folder)] if measures and place == "disk" else []
    line = [sys.executable, "-m", "widenet", *words]
    line = line if group is None else within(group, line)
    said = subprocess.run(line, cwd=folder, check=False, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(said)
    if bandwidth is not None and place == "disk":
        moved = max(found["work"]["read_bytes"], found["work"]["written_bytes"])
        found["disk_seconds"] = moved / bandwidth
    return found


def _bandwidth(folder: Path) -> float:
    """Return the bytes a second that the disk reads while it writes as many, past the system's cache.

    One file is read and written from 1, 2, 4 and 8 pairs of threads, from and into large pages; the fastest
    counts.
    """
    path = folder / "blocks"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        os.posix_fallocate(descriptor, 0, 2 * _BLOCKS * _BLOCK)
        with ThreadPoolExecutor(16) as pool:
            blocks = [_block() for _ in range(16)]
            for place in range(2 * _BLOCKS):
                os.pwritev(descriptor, [blocks[0]], place * _BLOCK)

            def move(first: int, step: int, writes: bool) -> None:
                block = blocks[2 * first + writes]
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


def _block() -> mmap.mmap:
    """Return memory of large pages."""
    block = mmap.mmap(-1, _BLOCK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    block[:] = bytes(_BLOCK)
    return block
