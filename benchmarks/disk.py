"""Trains with weights in memory, on a disk, and on a disk under a cap of memory: time, bytes and memory.

Beside them stands what `widenet plan` says: from the bandwidth of the disk, and from steps that `--measure`
times after the trainings. A virtual disk copies through memory, so its bandwidth is measured twice: with a
block for each thread, which stays in the processor's cache, and through as much memory as a step holds.

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
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cgroups import capped, within
from benchmarks.places import workplace
from widenet import dataset_from_lists
from widenet.plan.streaming import AROUND_BYTES, REQUEST_BYTES

WIDTH, UNITS, BATCH, STEPS, HISTORY = 400_000, 256, 64, 8, 20
ROUNDS, WARM_UP = 2, 2
_BLOCK, _FILE = 2**23, 2**31
_HELD = 2 * (AROUND_BYTES + _BLOCK)
"""About what a step with two threads holds in memory: what is read ahead or not yet written, and tiles."""
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
        bandwidths, through_memory = [], []
        for turn in range(ROUNDS):
            bandwidths.append(_bandwidth(folder, _BLOCK, 0))
            through_memory.append(_bandwidth(folder, REQUEST_BYTES, _HELD))
            for name in list(places)[:: -1 if turn % 2 else 1]:
                turns[name].append(_trained(folder, f"{name}, {turn}", *places[name]))
        bandwidth, through = float(np.median(bandwidths)), float(np.median(through_memory))
        plans = {place: _plan(folder, place, bandwidth) for place in ("device", "disk")}
        for place, plan in plans.items():
            plan["step_seconds"] = _plan(folder, place, measures=True)["hours"]["step_seconds"]
        work = plans["disk"]["work"]
        print(
            f"\nThe disk reads {bandwidth / 1e9:.2f} GB a second while it writes as much"
            f" ({min(bandwidths) / 1e9:.2f} to {max(bandwidths) / 1e9:.2f}), into and from a block for each"
            f" thread. Through {_HELD / 2**20:.0f} MiB of memory in turn, about as a step does, it is"
            f" {through / 1e9:.2f} GB ({min(through_memory) / 1e9:.2f} to {max(through_memory) / 1e9:.2f})."
        )
        print(
            f"Weights and state: {state / 1e9:.2f} GB. By the plan, a step reads"
            f" {work['read_bytes'] / 1e9:.2f} GB and writes {work['written_bytes'] / 1e9:.2f} GB.\n"
        )
        print(
            "| weights | ms a step | of the bound | of the bound through memory | plan: ms | --measure: ms"
            " | read, GB | written, GB | peak of memory, GB | plan: GB | fingerprint |"
        )
        print("|---|---|---|---|---|---|---|---|---|---|---|")
        compute = _median(turns["in memory"], "seconds")
        for name, (place, _) in places.items():
            _print(name, turns[name], compute, plans[place], bandwidth / through)


def _print(
    name: str, turns: list[dict[str, Any]], compute: float, plan: dict[str, Any], slower: float
) -> None:
    seconds, planned = _median(turns, "seconds"), plan.get("disk_seconds")
    cells = [
        name,
        f"{1000 * seconds:.0f}",
        f"{seconds / max(compute, planned or 0):.2f}",
        f"{seconds / max(compute, slower * (planned or 0)):.2f}",
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


def _plan(folder: Path, place: str, bandwidth: float | None = None, measures: bool = False) -> dict[str, Any]:
    words = ["plan", "network.json", "training.json", "--data", "data", "--device", "cpu", "--json"]
    words += ["--weights-in", place]
    words += ["--disk-bandwidth", f"{bandwidth:.0f}B"] if bandwidth is not None and place == "disk" else []
    words += ["--measure"] if measures else []
    words += ["--scratch", str(folder)] if measures and place == "disk" else []
    said = subprocess.run(
        [sys.executable, "-m", "widenet", *words], cwd=folder, check=False, capture_output=True, text=True
    ).stdout
    found: dict[str, Any] = json.loads(said)
    return found


def _bandwidth(folder: Path, size: int, held: int) -> float:
    """Return the bytes a second that the disk reads while it writes as many, past the system's cache.

    One file is read and written from 1, 2, 4 and 8 pairs of threads, from and into large pages; the fastest
    counts.

    Args:
        folder: Folder of the file.
        size: Bytes of a request.
        held: Bytes of memory that all threads together use in turn, but at least `size` for each.
    """
    path, count = folder / "blocks", _FILE // size
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    try:
        os.posix_fallocate(descriptor, 0, 2 * _FILE)
        with ThreadPoolExecutor(16) as pool:
            full = _block(size)
            for place in range(2 * count):
                os.pwritev(descriptor, [full], place * size)

            def move(first: int, step: int, writes: bool, blocks: list[mmap.mmap]) -> None:
                for place, block in zip(range(first, count, step), cycle(blocks)):
                    if writes:
                        os.pwritev(descriptor, [block], (count + place) * size)
                    else:
                        os.preadv(descriptor, [block], place * size)

            def seconds(pairs: int) -> float:
                own = max(1, held // (2 * pairs * size))
                threads = [(pair, writes) for pair in range(pairs) for writes in (False, True)]
                blocks = [[_block(size) for _ in range(own)] for _ in threads]
                started = perf_counter()
                work = [
                    pool.submit(move, pair, pairs, writes, of_thread)
                    for (pair, writes), of_thread in zip(threads, blocks, strict=True)
                ]
                for each in work:
                    each.result()
                return perf_counter() - started

            return _FILE / min(seconds(pairs) for pairs in (1, 2, 4, 8, 1, 2, 4, 8))
    finally:
        os.close(descriptor)
        path.unlink()


def _block(size: int) -> mmap.mmap:
    """Return memory of large pages."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block.madvise(mmap.MADV_HUGEPAGE)
    block[:] = bytes(size)
    return block
