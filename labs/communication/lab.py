"""Compares data-parallel and model-parallel training: bytes by arithmetic, seconds by two real processes."""

from collections.abc import Sequence

from benchmarks.results import Table
from labs.communication.arithmetic import alexnet, autoencoder, sent_bytes, ways
from labs.communication.processes import PROCESSES, measured
from widenet.plan.layout import Layout

LINKS = {"1 Gbit/s": 0.125e9, "25 Gbit/s": 3.125e9, "PCIe, 2016": 25e9, "NVLink, H100": 450e9}
"""Bytes a second in each direction. 25 GB/s: measured between GPUs in a talk on DSSTNE, 2016."""

UNITS, BATCH_SIZE = 128, 256


def run(small: bool) -> list[Table]:
    """Return two tables: by arithmetic, and of real processes."""
    widths = (10_000,) if small else (10_000, 100_000, 1_000_000)
    return [_counted(), _timed(widths, rounds=3 if small else 5)]


def _counted() -> Table:
    networks = {"AlexNet, batch 128": alexnet(128), "AlexNet, batch 1024": alexnet(1024)}
    networks |= _autoencoders((27_278, 1_000_000, 100_000_000))
    table = Table(
        "MB that a process sends in a step, and how long that takes at the rate of a link",
        ["network", "processes", "way", "MB", *LINKS],
    )
    for name, layout in networks.items():
        for processes in (2, 8):
            for way, exchanges in ways(layout, processes).items():
                num_bytes = sent_bytes(exchanges, processes)
                times = [_time(num_bytes / rate) for rate in LINKS.values()]
                table.rows.append([name, str(processes), way, f"{num_bytes / 1e6:,.1f}", *times])
    return table


def _autoencoders(widths: Sequence[int]) -> dict[str, Layout]:
    return {
        f"{width:,} x {UNITS}, batch {BATCH_SIZE}": autoencoder(width, UNITS, BATCH_SIZE) for width in widths
    }


def _time(taken: float) -> str:
    return f"{taken:,.1f} s" if taken >= 1 else f"{1e3 * taken:,.2f} ms"


def _timed(widths: Sequence[int], rounds: int) -> Table:
    table = Table(
        "Two processes over gloo on one machine: the exchanges of one step",
        ["network", "way", "MB by arithmetic", "MB that left a process", "seconds", "of widenet's"],
    )
    networks = {"AlexNet, batch 128": alexnet(128), **_autoencoders(widths)}
    of_networks = {name: ways(layout, PROCESSES) for name, layout in networks.items()}
    steps = iter(measured([step for found in of_networks.values() for step in found.values()], rounds))
    for name, found in of_networks.items():
        by_way = dict(zip(found, steps, strict=False))
        for way, step in by_way.items():
            counted = sent_bytes(found[way], PROCESSES)
            cells = [f"{each / 1e6:,.1f}" for each in (counted, step.sent_bytes)]
            times = [f"{step.seconds:.4f}", f"{step.seconds / by_way['widenet'].seconds:,.1f}"]
            table.rows.append([name, way, *cells, *times])
    return table
