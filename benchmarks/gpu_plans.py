"""Steps, rankings and copies of a CUDA device, with the memory that `widenet plan` told."""

from dataclasses import dataclass
from time import monotonic
from typing import Any

import numpy as np

from benchmarks.alternately import Measured, measure, measure_alone
from benchmarks.gpu_cases import on_device
from benchmarks.places import workplace
from benchmarks.plans import EVERYBODY, HIDDEN, job_of, network
from benchmarks.results import Table, quartiles
from benchmarks.synthetic import write_histories
from widenet.plan.layout import WeightsIn
from widenet.plan.memory import memory, work
from widenet.plan.numbers import duration

HISTORY, K = 100, 100
_TRAIN, _COPIES = "benchmarks.steps.widenet_documents:train", "benchmarks.steps.device_copies:train"
_RANKING, _NAMED_AFTER = "benchmarks.steps.ranking", 3


@dataclass(frozen=True)
class Sizes:
    """Sizes of the networks.

    Attributes:
        steps: Items of the training steps, and the precision and batch size of each.
        ranked: Items and units of the networks that rank.
        host: Items of the training whose weights lie in the host's memory.
        units: Hidden units of the trainings.
        copied: Bytes of a copy.
        batch: Batch size with weights in the host's memory.
        device: Kind of device.
    """

    steps: tuple[int, tuple[tuple[str, int], ...]]
    ranked: tuple[tuple[int, int], ...]
    host: int
    units: int = HIDDEN
    copied: int = 2**30
    batch: int = 1024
    device: str = "cuda"


WHOLE = Sizes(
    (10_000_000, (("bfloat16", 4096), ("bfloat16", 1024), ("float32", 4096), ("tf32", 4096))),
    ((10_000_000, HIDDEN), (41_000, 512)),
    2_000_000,
)
TRIAL = Sizes((2_000, (("bfloat16", 64), ("float32", 32))), ((2_000, 16),), 2_000, 16, 2**20, 32, "cpu")


def steps(sizes: Sizes, rounds: int, seconds: float, limit: float) -> Table:
    """Return the seconds of training steps, and their memory, planned and measured."""
    width, kinds = sizes.steps
    trainings = [
        {"optimizer": "adam", "precision": precision, "batch_size": batch} for precision, batch in kinds
    ]
    with workplace() as folder:
        deadline = monotonic() + limit
        write_histories(folder, width, 4 * max(batch for _, batch in kinds), HISTORY)
        job = {"folder": str(folder), "network": network(sizes.units)}
        found = measure_alone(
            [
                on_device(f"{precision}, batch {batch:,}", _TRAIN, sizes.device, **job, training=training)
                for (precision, batch), training in zip(kinds, trainings, strict=True)
            ],
            rounds,
            seconds,
            deadline=deadline,
        )
    columns = ["precision", "ms a step", "peak GB", "planned", "an epoch", "first loss"]
    table = Table(f"{width:,} users and items, {sizes.units} hidden units, softmax, adam", columns)
    for measured, training in zip(found, trainings, strict=True):
        planned = job_of(width, training, 1, sizes.units)
        taken = _kept(table, measured)
        if taken is not None:
            table.rows.append(
                [
                    measured.program.name,
                    f"{1000 * taken:,.1f}",
                    f"{measured.facts['peak_bytes'] / 1e9:.1f}",
                    f"{memory(planned).total / 1e9:.1f}",
                    duration(taken * -(-width // planned.num_examples)),
                    f"{measured.first['loss']:,.5g}",
                ]
            )
    return table


def recommend(sizes: Sizes, rounds: int, seconds: float, limit: float) -> Table:
    """Return the users for whom a device finds the best items in a second."""
    columns = [
        "program",
        "users a second",
        "ms a block",
        "peak GB",
        "same items",
        "for all",
    ]
    table = Table(f"The {K} best new items of a user, blocks of 512 users", columns)
    for width, units in sizes.ranked:
        with workplace() as folder:
            deadline = monotonic() + limit / len(sizes.ranked)
            write_histories(folder, width, 2048, HISTORY)
            job = {"folder": str(folder), "network": network(units), "k": K}
            programs = [
                on_device(f"{width:,} x {units}: widenet", f"{_RANKING}:widenet", sizes.device, **job)
            ] + [
                on_device(
                    f"{width:,} x {units}: PyTorch, mm and topk, {name}",
                    f"{_RANKING}:plain",
                    sizes.device,
                    **job,
                    precision=precision,
                )
                for name, precision in (("float32", "highest"), ("TF32", "high"))
            ]
            found = measure(programs, rounds, seconds, together=True, deadline=deadline)
            for measured in found:
                _add_ranking(table, measured, found[0])
    table.notes.append(
        f"For all: {EVERYBODY:,} users. Same items: as widenet, in the first block;"
        " rounding orders nearly equal items."
    )
    return table


def _add_ranking(table: Table, measured: Measured, ours: Measured) -> None:
    taken = _kept(table, measured)
    if taken is None:
        return
    users = measured.facts["users"]
    same = "-"
    if ours.problem is None:
        mine, theirs = (np.load(each.facts["items"]) for each in (ours, measured))
        both = [len(np.intersect1d(one, other)) for one, other in zip(mine, theirs, strict=True)]
        same = f"{np.sum(both) / mine.size:.5f}"
    table.rows.append(
        [
            measured.program.name,
            f"{users / taken:,.0f}",
            f"{1000 * taken:,.1f}",
            f"{measured.facts['peak_bytes'] / 1e9:.2f}",
            same,
            duration(EVERYBODY * taken / users),
        ]
    )


def host(sizes: Sizes, rounds: int, seconds: float, limit: float) -> Table:
    """Return a step with weights in the host's memory, beside one with weights on the device."""
    training: dict[str, Any] = {"optimizer": "adam", "precision": "bfloat16", "batch_size": sizes.batch}
    places: tuple[WeightsIn, ...] = ("device", "host")
    with workplace() as folder:
        deadline = monotonic() + limit
        write_histories(folder, sizes.host, 4 * sizes.batch, HISTORY)
        job = {"folder": str(folder), "network": network(sizes.units), "training": training}
        programs = [
            on_device(
                f"weights in: {place}",
                _TRAIN,
                sizes.device,
                **job,
                weights_in=place,
                named_after=_NAMED_AFTER,
            )
            for place in places
        ]
        copies = [
            on_device(name, _COPIES, sizes.device, num_bytes=sizes.copied, ways=ways, back=back)
            for name, ways, back in (
                ("to the device", 1, False),
                ("back", 1, True),
                ("both at once", 2, False),
            )
        ]
        found = measure_alone([*programs, *copies], rounds, seconds, deadline=deadline)
    title = f"{sizes.host:,} x {sizes.units} x {sizes.host:,}, softmax, adam, bfloat16, batch {sizes.batch:,}"
    columns = [
        "weights",
        "ms a step",
        "GB copied",
        "planned",
        "GB/s",
        "peak GB",
        "fingerprint",
    ]
    table = Table(title, columns)
    for measured, place in zip(found, places, strict=False):
        planned = job_of(sizes.host, training, 1, sizes.units, place)
        needed = work(planned)
        taken = _kept(table, measured)
        if taken is not None:
            copied = measured.facts.get("to_device", 0) + measured.facts.get("to_host", 0)
            table.rows.append(
                [
                    measured.program.name,
                    f"{1000 * taken:,.1f}",
                    f"{copied / 1e9:.2f}",
                    f"{(needed.read_bytes + needed.written_bytes) / 1e9:.2f}",
                    f"{copied / taken / 1e9:.1f}",
                    f"{measured.facts['peak_bytes'] / 1e9:.2f}",
                    measured.facts.get("fingerprint", "-")[:8],
                ]
            )
    rates = [
        f"{each.program.name} {each.facts['bytes'] / each.median / 1e9:.1f}"
        for each in found[len(places) :]
        if each.problem is None
    ]
    table.notes.append(f"Fingerprints: after step {_NAMED_AFTER}. Copies alone, GB/s: {', '.join(rates)}.")
    return table


def _kept(table: Table, measured: Measured) -> float | None:
    """Keep a program's turns, and return its seconds a step; for a program that failed, add its row."""
    facts = {"versions": measured.versions, "seconds": measured.seconds, "steps": measured.steps}
    table.turns[measured.program.name] = {**facts, **measured.facts, "problem": measured.problem}
    if measured.problem is None:
        middle, *_ = quartiles(measured.seconds)
        return middle
    table.rows.append([measured.program.name, measured.problem, *["-"] * (len(table.columns) - 2)])
    return None
