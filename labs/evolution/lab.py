"""Evolves a small network with 1, 2 and 4 workers, beside gradient descent: bits, bytes and losses."""

import hashlib

from benchmarks.results import Table
from labs.classifier import NUM_WEIGHTS, accuracy, examples, first_weights, gradient, loss
from labs.evolution.strategy import Settings
from labs.evolution.workers import evolve_with


def run(small: bool) -> list[Table]:
    """Return the table of workers."""
    settings = Settings(pairs=32 if small else 64)
    data, test = examples(256 if small else 2_000), examples(2_000, position=1)
    generations, start = 30 if small else 200, first_weights(0)
    title = f"{generations} generations of {2 * settings.pairs} networks of {NUM_WEIGHTS} weights"
    table = Table(
        title, ["workers", "loss", "accuracy", "bytes a worker sends a generation", "weights, SHA-256"]
    )
    for workers in (1, 2, 4):
        found = evolve_with(settings, start, data, generations, workers)
        digests = {hashlib.sha256(weights.tobytes()).hexdigest()[:12] for weights in found}
        weights, sent = found[0], 16 * settings.pairs // workers * (workers - 1)
        table.rows.append(
            [
                str(workers),
                f"{loss(weights, test):.4f}",
                f"{accuracy(weights, test):.1%}",
                f"{sent:,}",
                " and ".join(sorted(digests)),
            ]
        )
    weights = start.copy()
    for _ in range(generations):
        weights -= 0.8 * gradient(weights, data)
    cells = [f"{loss(weights, test):.4f}", f"{accuracy(weights, test):.1%}"]
    table.rows.append(
        [f"gradient descent, {generations} steps", *cells, f"{4 * NUM_WEIGHTS:,} in float32", "-"]
    )
    evaluations = 2 * settings.pairs * generations
    table.notes += [
        f"Gradient descent takes {generations:,} gradients, each about 3 evaluations; the others take"
        f" {evaluations:,} evaluations.\n"
    ]
    return [table]
