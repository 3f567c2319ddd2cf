"""Measures what QSGD loses and saves: bias, variance, bits a number, and the loss of a training."""

import subprocess

import numpy as np

from benchmarks.results import Table
from labs.classifier import Floats, examples, first_weights, gradient, loss
from labs.communication.arithmetic import autoencoder, sent_bytes, ways
from labs.qsgd.hosts import seconds_of_steps
from labs.qsgd.quantization import dense_bits, quantize, sparse_bits, variance_bound
from labs.qsgd.training import train
from widenet.randomness import stream


def run(small: bool) -> list[Table]:
    """Return the tables of messages and of trainings; in full also that of two hosts."""
    tables = [_messages(200 if small else 4_000), _trainings(100 if small else 2_000)]
    return tables if small else [*tables, _hosts()]


def _messages(draws: int) -> Table:
    num = len(first_weights(0))
    vectors = {
        "a gradient": gradient(first_weights(0), examples(16)),
        "normal numbers": stream(0, "labs/qsgd/normal").standard_normal(num),
    }
    columns = ["vector", "levels", "largest bias, standard errors", "variance / norm²", "its bound"]
    table = Table(
        f"Messages of {num} numbers, {draws:,} draws",
        [*columns, "bits a number: sparse code", "equal length"],
    )
    for name, vector in vectors.items():
        for num_levels in (1, 4, round(np.sqrt(num)), 127):
            bias, variance, bits = measured(vector, num_levels, draws)
            equal = dense_bits(quantize(vector, num_levels, stream(0, "labs/qsgd/once"))) / num
            cells = [f"{bias:.2f}", f"{variance:.4f}", f"{variance_bound(num, num_levels):.4f}"]
            table.rows.append([name, str(num_levels), *cells, f"{bits / num:.2f}", f"{equal:.2f}"])
    table.notes.append(
        "Bias: of the mean over all draws, projected on the vector, on the signs and on a random direction.\n"
    )
    return table


def measured(vector: Floats, num_levels: int, draws: int) -> tuple[float, float, float]:
    """Return the largest bias in standard errors, the variance over the squared norm, and the bits."""
    directions = np.stack(
        [vector, np.sign(vector), stream(0, "labs/qsgd/direction").standard_normal(len(vector))]
    )
    projected, squares, bits = np.empty((draws, len(directions))), 0.0, 0
    for number in range(draws):
        quantized = quantize(vector, num_levels, stream(0, "labs/qsgd/draws", number))
        error = quantized.values() - vector
        projected[number] = directions @ error
        squares += float((error**2).sum())
        bits += sparse_bits(quantized)
    errors = projected.std(axis=0, ddof=1) / np.sqrt(draws)
    bias = float(np.abs(projected.mean(axis=0) / errors).max())
    return bias, squares / draws / float((vector**2).sum()), bits / draws


def _trainings(steps: int) -> Table:
    data, test, start = examples(20_000), examples(2_000, position=1), first_weights(0)
    table = Table(
        f"Loss of 4 workers after {steps:,} steps at the learning rate 0.4",
        ["levels", "bits a number", "unbiased", "nearest, error feedback"],
    )
    exact = loss(train(start, data, "exact", 0, steps, 0.4), test)
    table.rows.append(["exact", "32", f"{exact:.4f}", f"{exact:.4f}"])
    for num_levels in (1, 4, 16, 127):
        found = [
            loss(train(start, data, way, num_levels, steps, 0.4), test)
            for way in ("unbiased", "error feedback")
        ]
        bits = np.log2(2 * num_levels + 1)
        cells = [f"{each:.4f}" if each < 100 else "diverged" for each in found]
        table.rows.append([str(num_levels), f"{np.ceil(bits):.0f}", *cells])
    return table


def _hosts() -> Table:
    """Time steps over two hosts: an upper bound of what any compression can gain."""
    table = Table(
        "A step of widenet on two hosts (network namespaces), one thread each",
        [
            "width x units, batch",
            "MB that a host sends",
            "ms, no limit",
            "ms, 1 Gbit/s",
            "largest possible gain",
        ],
    )
    try:
        for width, units, batch_size in ((27_278, 128, 256), (10_000, 256, 1024), (100_000, 128, 256)):
            free, limited = seconds_of_steps(width, units, batch_size, [None, "1gbit"])
            num_bytes = sent_bytes(ways(autoencoder(width, units, batch_size), 2)["widenet"], 2)
            cells = [f"{width:,} x {units}, {batch_size}", f"{num_bytes / 1e6:.2f}"]
            table.rows.append([*cells, f"{1e3 * free:.1f}", f"{1e3 * limited:.1f}", f"{limited / free:.2f}"])
    except (OSError, subprocess.CalledProcessError) as error:
        table.notes.append(f"Network namespaces cannot be made here: {error}\n")
    return table
