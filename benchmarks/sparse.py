"""Times the sparse input layer at two widths, beside copying its bytes and reading the same rows."""

import argparse
from collections.abc import Callable
from typing import Any

from benchmarks.alternately import THREADS, Measured, Program, measure
from benchmarks.results import Table, publish, spread

WIDTHS = (100_000, 10_000_000)
HIDDEN, BATCH, BATCHES = 64, 1024, 16
OPTIMIZER = "rmsprop"
COPIED_BYTES = 2**28


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--rounds", type=int, default=9, help="turns of every program")
    parser.add_argument("--seconds", type=float, default=1.0, help="length of a turn, at least one step")


def run(asked: argparse.Namespace) -> None:
    """Print a table of reading, forward and update at each width, as shares of the copying speed."""
    programs = [Program("copying", "benchmarks.sparse:copying", {"threads": THREADS})]
    programs += [
        Program(
            f"{work}, {width:,} features",
            "benchmarks.sparse:layer",
            {"width": width, "work": work},
            ["widenet", "torch"],
        )
        for work in ("reading", "forward", "update")
        for width in WIDTHS
    ]
    copying, *layers = measure(programs, asked.rounds, asked.seconds)
    title = f"A sparse input layer of {HIDDEN} units, {OPTIMIZER}, {BATCH} examples a step"
    table = Table(
        title,
        [
            "work",
            "time / copying the same bytes",
            "ms a step",
            "MB moved a step",
            "time / that of the smaller width",
        ],
    )
    if copying.problem is None:
        for place, measured in enumerate(layers):
            _add(table, measured, copying, layers[place - place % 2])
        per_second = spread([2 * COPIED_BYTES / seconds / 1e9 for seconds in copying.seconds], "{:.1f}")
        table.notes.append(
            f"Copying reads and writes {per_second} GB/s with {THREADS} threads. Every step has the same"
            " number of entries."
        )
    print(table, flush=True)
    publish("sparse", [table], asked.out)


def _add(table: Table, measured: Measured, copying: Measured, narrow: Measured) -> None:
    if measured.problem is not None or narrow.problem is not None:
        table.add(measured, narrow)
        return
    moved = measured.facts["moved_bytes"]
    share = moved / (2 * COPIED_BYTES)
    least = Measured(copying.program, [seconds * share for seconds in copying.seconds])
    table.add(measured, least, f"{moved / 1e6:,.0f}", spread(measured.ratios(narrow), "{:.2f}"))


def copying(threads: int) -> Callable[[int], dict[str, Any]]:
    """Copies of a block that no cache holds."""
    import torch

    torch.set_num_threads(threads)
    source, target = torch.ones(COPIED_BYTES // 4), torch.zeros(COPIED_BYTES // 4)

    def steps(number: int) -> dict[str, Any]:
        for _ in range(number):
            target.copy_(source)
        return {}

    return steps


def layer(width: int, work: str) -> Callable[[int], dict[str, Any]]:
    """Make the steps of one direction of the layer over all shards, with its own weights, state and batches.

    `work` is "forward", "update", or "reading", which only reads the rows of "forward" in the same order.
    """
    import numpy as np
    import torch
    from torch.nn.functional import embedding_bag

    from benchmarks.synthetic import draw_histories
    from widenet.kernels.bags import Touched, gather_sums, roomy, split
    from widenet.model.optimizers import Optimizer, StepNumbers
    from widenet.model.weight import Part, WideWeight
    from widenet.parallel.exchange import Exchange, one_thread_an_operation
    from widenet.plan.tiles import Shards
    from widenet.sparse import SparseBatch
    from widenet.spec.training import TrainingSpec

    training = TrainingSpec.of({"optimizer": OPTIMIZER})
    shards, rule = Shards(width, training.shards), Optimizer(training.optimizer)
    exchange = Exchange(shards.count, THREADS)
    parts = {shard: Part(roomy((shards.size(shard), HIDDEN)).normal_()) for shard in exchange.shards}
    weight = WideWeight(shards, parts, by_rows=True)
    weight.prepare(rule)
    rows = draw_histories(width, BATCH * BATCHES)
    batches = [
        SparseBatch.from_lists([row.tolist() for row in rows[start : start + BATCH]])
        for start in range(0, len(rows), BATCH)
    ]
    parted = [
        split(batch, shards.count) for batch in batches
    ]  # as the thread does it that reads batches ahead
    whole = torch.zeros(1, dtype=torch.int64)
    gradient_EH, rates = torch.randn(BATCH, HIDDEN), np.full(2**20, 1e-3)
    done = 0

    def step() -> int:
        batch, cut = batches[done % BATCHES], parted[done % BATCHES]
        if work == "forward":
            rows = [part.weight for part in parts.values()]
            exchange.sum(gather_sums(batch, rows, HIDDEN, THREADS), "input")
            return 4 * HIDDEN * (batch.num_entries + BATCH)
        if work == "reading":
            exchange.each(
                lambda shard: embedding_bag(cut[shard].indices, parts[shard].weight, whole, mode="sum")
            )
            return 4 * HIDDEN * batch.num_entries
        numbers = StepNumbers(done + 1, rates)

        def of(shard: int) -> int:
            touched = Touched.of(cut[shard]).by(gradient_EH)
            weight.update_rows(shard, touched, rule, numbers)
            return len(touched)

        touched = sum(exchange.each(of))
        return 4 * HIDDEN * (batch.num_entries + 4 * touched)

    def steps(number: int) -> dict[str, Any]:
        nonlocal done
        moved = 0
        with one_thread_an_operation(), torch.no_grad():
            for _ in range(number):
                moved += step()
                done += 1
        return {"moved_bytes": moved / number}

    return steps
