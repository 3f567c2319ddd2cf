"""Compares averaged replicas with one network: loss after equal epochs, and how often they exchange."""

from benchmarks.results import Table
from labs.averaging.replicas import train
from labs.classifier import NUM_WEIGHTS, examples, first_weights, loss

BATCH_SIZE, RATE = 32, 0.05


def run(small: bool) -> list[Table]:
    """Return the table of losses."""
    data, test = examples(2_048 if small else 32_768), examples(2_000, position=1)
    epochs, start = 2 if small else 5, first_weights(0)
    steps = epochs * len(data.labels) // BATCH_SIZE
    table = Table(
        f"Loss after {epochs} epochs of {len(data.labels):,} examples, momentum, rate {RATE}",
        ["training", "loss", "averages", "numbers that a replica sends, all in all"],
    )
    for factor in (1, 2, 4):
        found, _ = train(start, data, 1, 1, factor * BATCH_SIZE, epochs, RATE)
        sent = f"{steps // factor * NUM_WEIGHTS:,} (gradients of {factor} workers)" if factor > 1 else "0"
        table.rows.append(
            [f"one network, batch {factor * BATCH_SIZE}", f"{loss(found, test):.4f}", "-", sent]
        )
    for num_replicas in (2, 4):
        for every in (1, 8, 64):
            found, meetings = train(start, data, num_replicas, every, BATCH_SIZE, epochs, RATE)
            sent = f"{meetings * 2 * NUM_WEIGHTS:,}"
            name = f"{num_replicas} replicas, averaged every {every}"
            table.rows.append([name, f"{loss(found, test):.4f}", f"{meetings:,}", sent])
    table.notes.append("A replica sends its weights and its momentum to be averaged.\n")
    return [table]
