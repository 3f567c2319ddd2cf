"""Compares data-parallel and model-parallel training: bytes by arithmetic, seconds by two real processes."""

import torch

from benchmarks.results import Table
from labs.communication.arithmetic import Sent, alexnet, autoencoder, num_weights, sent
from labs.communication.processes import seconds
from widenet.plan.layout import Layout

LINKS = {"1 Gbit/s": 0.125e9, "25 Gbit/s": 3.125e9, "PCIe, 2016": 25e9, "NVLink, H100": 450e9}
"""Bytes a second in each direction. 25 GB/s: measured between GPUs in a talk on DSSTNE, 2016."""

UNITS, BATCH_SIZE = 128, 256


def run(small: bool) -> list[Table]:
    """Return two tables: by arithmetic, and of real processes."""
    return [_counted(), _timed((10_000,) if small else (10_000, 100_000, 1_000_000), 3 if small else 5)]


def _counted() -> Table:
    networks: dict[str, Layout] = {"AlexNet, batch 128": alexnet(128), "AlexNet, batch 1024": alexnet(1024)}
    for width in (27_278, 1_000_000, 100_000_000):
        networks[f"{width:,} x {UNITS}, batch {BATCH_SIZE}"] = autoencoder(width, UNITS, BATCH_SIZE)
    table = Table(
        "MB that a process sends in a step, and how long that takes at the rate of a link",
        ["network", "processes", "way", "MB", *LINKS],
    )
    for name, layout in networks.items():
        for processes in (2, 8):
            for way, num_bytes in _ways(sent(layout, processes)).items():
                times = [_time(num_bytes / rate) for rate in LINKS.values()]
                table.rows.append([name, str(processes), way, f"{num_bytes / 1e6:,.1f}", *times])
    return table


def _ways(found: Sent) -> dict[str, float]:
    ways = {"data-parallel": found.data_parallel}
    if found.hybrid is not None:
        ways["hybrid of 2014"] = found.hybrid
    return ways | {"widenet": found.widenet}


def _time(taken: float) -> str:
    return f"{taken:,.1f} s" if taken >= 1 else f"{1e3 * taken:,.2f} ms"


def _timed(widths: tuple[int, ...], rounds: int) -> Table:
    table = Table(
        f"Two processes over gloo on one machine, {UNITS} units, batch {BATCH_SIZE}: sums of one step",
        ["width", "way", "MB that a process sends", "seconds", "times as long"],
    )
    # Exact sums: 64-bit integers of the hidden units, once forward and once backward.
    wide = 2 * seconds((BATCH_SIZE, UNITS), torch.int64, 4 * rounds)
    for width in widths:
        layout = autoencoder(width, UNITS, BATCH_SIZE)
        dense = seconds((num_weights(layout),), torch.float32, rounds)
        found = sent(layout, 2)
        table.rows += [
            [
                f"{width:,}",
                "data-parallel",
                f"{found.data_parallel / 1e6:,.1f}",
                f"{dense:.4f}",
                f"{dense / wide:,.0f}",
            ],
            [f"{width:,}", "widenet", f"{found.widenet / 1e6:,.1f}", f"{wide:.4f}", "1"],
        ]
    return table
