"""Averaged replicas, and one network divided between two hosts: bytes, seconds and NDCG on goodbooks-10k."""

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks.goodbooks import prepare
from benchmarks.hosts import train_on_hosts
from benchmarks.places import presets, workplace
from benchmarks.results import Table
from widenet import Dataset, train
from widenet.plan.averaging import average_bytes
from widenet.plan.binding import bind
from widenet.plan.job import Job
from widenet.plan.work import work
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

UNITS = 64
BATCH = 256
EVERY = (1, 8, 64)
CASES: dict[str, dict[str, Any]] = {
    f"one network, batch {BATCH}": {},
    f"one network, batch {2 * BATCH}": {"batch_size": 2 * BATCH},
    **{f"2 replicas, averaged every {k}": {"averaging": {"replicas": 2, "every": k}} for k in EVERY},
}


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--cases", type=int, nargs="+", default=range(len(CASES)), help="rows, from 0")
    parser.add_argument("--rates", nargs="*", default=["1gbit", "100mbit"], help="rates of the cable")
    parser.add_argument("--epochs", type=int, default=3, help="epochs before NDCG is measured; 0: not at all")


def run(asked: argparse.Namespace) -> None:
    """Print a row for each case."""
    table = Table(
        "Two hosts, one thread each",
        [
            "training",
            f"NDCG@20 after {asked.epochs} epochs",
            "MB a host sends an epoch, by the plan",
            *(f"{what} an epoch, {rate}/s" for rate in asked.rates for what in ("MB", "s")),
        ],
    )
    names = [*CASES]
    with workplace() as folder:
        prepare(folder)
        for number in asked.cases:
            changes = CASES[names[number]]
            cells = [_quality(folder, changes, asked.epochs) if asked.epochs else "-"]
            cells.append(f"{_planned(folder, changes) / 1e6:,.1f}")
            for rate in asked.rates:
                sent, seconds = _measured(folder, changes, rate)
                cells += [f"{sent / 1e6:,.1f}", f"{seconds:.1f}"]
            table.rows.append([names[number], *cells])
            print(table.rows[-1], flush=True)
    print(table)


def _documents(epochs: int, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the documents of the preset, with fewer units."""
    network, training = (json.loads(path.read_text("utf-8")) for path in presets("goodbooks")["best"])
    network["layers"][1]["units"] = UNITS
    return network, training | {"epochs": epochs, "batch_size": BATCH, "histograms": False} | more


def _quality(folder: Path, changes: dict[str, Any], epochs: int) -> str:
    """Return the NDCG@20 of a training in one process, which has the bits of two."""
    model = train(*_documents(epochs, **changes), folder / "data", folder / "run", overwrite=True)
    return f"{model.evaluate(folder / 'data', ks=(20,))['ndcg@20']:.4f}"


def _planned(folder: Path, changes: dict[str, Any]) -> float:
    """Return the bytes that a host sends in an epoch, by `widenet plan`."""
    network, training = _documents(1, **changes)
    dataset, spec = Dataset.open(folder / "data"), TrainingSpec.of(training)
    job = Job.of(bind(NetworkSpec.of(network), spec, dataset.fields), num_processes=2)
    steps = -(-dataset.num_examples // (spec.batch_size * job.replicas))
    if spec.averaging is None:
        return steps * work(job).sent_bytes
    return -(-steps // spec.averaging.every) * average_bytes(job)


def _measured(folder: Path, changes: dict[str, Any], rate: str) -> tuple[float, float]:
    """Return the bytes that the first host sends in an epoch, and the seconds of the second of two epochs."""
    paths = ["network.json", "training.json"]
    for path, document in zip(paths, _documents(2, **changes), strict=True):
        (folder / path).write_text(json.dumps(document))
    paths += ["--data", "data", "--out", "hosts"]
    sent = train_on_hosts([*paths, "--overwrite", "--device", "cpu"], folder, rate)
    log = [json.loads(line) for line in (folder / "hosts" / "log.jsonl").read_text("utf-8").splitlines()]
    return sent / len(log), float(log[-1]["seconds"])
