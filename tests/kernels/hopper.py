"""Compiles every kernel in Triton for an H200, on a machine without one, and prints a line of JSON for each:
its module, and whether it multiplies by the matrix units. Nothing is launched. With the word `all`, kernels
of steps are compiled for every form of state, and those that multiply also for TF32.
"""

import json
import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from widenet.kernels.bags import row_gradient
from widenet.kernels.optimizer_steps import Penalties
from widenet.kernels.triton import fixed_point, running_top_k
from widenet.kernels.triton.attention import (
    Heads,
    attention,
    attention_distances,
    attention_keys,
    attention_queries,
)
from widenet.kernels.triton.gather_sum import gather_sum
from widenet.kernels.triton.hidden_gradient import add_hidden_gradient
from widenet.kernels.triton.output_products import slopes_of_products, softmax_products
from widenet.kernels.triton.shard_losses import shard_losses
from widenet.kernels.triton.softmax_delta import softmax_delta
from widenet.kernels.triton.softmax_merge import softmax_merge
from widenet.kernels.triton.softmax_pulls import softmax_pulls
from widenet.kernels.triton.softmax_sums import add_softmax_sums
from widenet.kernels.triton.softmax_tile import softmax_tile
from widenet.kernels.triton.span import Span
from widenet.kernels.triton.steps import Steps
from widenet.kernels.triton.target_deltas import Entries, softmax_target_deltas
from widenet.kernels.triton.target_logits import target_logits
from widenet.kernels.triton.target_products import target_products
from widenet.kernels.triton.tile_others import UnitFormula, tile_others
from widenet.kernels.triton.tile_targets import tile_targets
from widenet.sparse import SparseBatch

ALL = "all" in sys.argv


class H200:
    """What Triton asks a device for before it compiles."""

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0 * device

    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)


def compiling(run):
    def compiled(self, *arguments, warmup, **options):
        del warmup
        kernel = run(self, *arguments, warmup=True, **options)
        products = "wgmma.mma_async" in kernel.asm["ptx"]
        print(json.dumps({"kernel": self.__module__.rpartition(".")[2], "products": products}), flush=True)
        return kernel

    return compiled


def main():
    driver.set_active(H200())
    JITFunction.run = compiling(JITFunction.run)
    running_top_k.LEAST = 16  # a larger sort compiles for long
    batch, weight, ones = SparseBatch.from_lists([[1, 2], [3]]), torch.ones(16, 1024), torch.ones(3)
    gather_sum(batch, weight)
    gather_sum(batch.with_values(ones), weight)
    terms, peaks = torch.ones(2, 3, 4), torch.ones(3, 1, dtype=torch.float64)
    fixed_point.exact_sum(terms)
    fixed_point.common_peaks(terms)
    fixed_point.rounded(fixed_point.fixed_sum(terms, peaks, 2), peaks, 2, torch.float32)
    kinds = (("sgd", 0), ("nesterov", 1), ("adam", 2))
    for kind, states in kinds if ALL else kinds[-1:]:
        steps, own = Steps(kind, Penalties(), (1.0,) * 6), [torch.zeros_like(weight)] * states
        steps.tile(weight, weight, own)
        steps.tiles([(weight, weight, own), (ones, ones, [ones] * states)])
        for moved in (None, torch.zeros(16, dtype=torch.int32)):
            steps.rows(weight, row_gradient(batch, torch.ones(2, 1024)), own, ones, moved, 1)
    examples, units, starts, entries = (
        torch.ones(16),
        torch.ones(32),
        torch.zeros(33, dtype=torch.int64),
        torch.zeros(1, dtype=torch.int64),
    )
    logits = torch.ones(16, 32), units
    add_softmax_sums(*logits, examples, examples.double())
    delta, biases = softmax_tile(*logits, examples, examples)
    target_logits(starts, entries, *logits, ones)
    softmax_pulls(starts, entries, ones, ones, *logits, examples, examples, delta, biases)
    formula = UnitFormula("sigmoid", (0.0, 0.0), "cross_entropy", (0.0,) * 5, by_logit=True)
    _, delta, biases = tile_others(*logits, examples, formula)
    tile_targets(starts, entries, None, *logits, examples, examples, delta, biases, formula)
    outputs(formula)
    for sizes in ((1, 100), (2, 32), (1, 1024)) if ALL else ((1, 100),):
        along_sequences(*sizes)
    running_top_k.RunningTopK(10, torch.zeros(16)).add(torch.ones(16, 32), range(1, 257, 8))


def along_sequences(heads, numbers):
    """The kernels of attention, over two sequences of two positions, with distances and without."""
    rows, times = torch.zeros(4, 3, heads, numbers), torch.tensor([0, 0, 1, 1], dtype=torch.int32)
    starts, gradient = torch.tensor([0, 2, 4], dtype=torch.int32), torch.zeros(4, heads, numbers)
    for distances in (torch.zeros(2, heads, numbers), None) if ALL else (torch.zeros(2, heads, numbers),):
        given = Heads.of(*rows.unbind(dim=1), distances, starts, times)
        read, *sums = attention(given)
        _, means = attention_queries(given, read, *sums, gradient)
        attention_keys(given, *sums, means, gradient)
        if distances is not None:
            attention_distances(given, *sums, means, gradient)


def outputs(formula):
    """The kernels of outputs that multiply, over two shards of 128 units."""
    direct, weight, biases = torch.zeros(256, 1024), torch.zeros(256, 1024), torch.zeros(256)
    span = Span(torch.full((2,), 128, dtype=torch.int32), 2, 128, 128, 0)
    statistics, losses = torch.zeros(2, 64, 256), torch.zeros(2, 64, 2, dtype=torch.float64)
    examples, entries = torch.zeros(256), torch.zeros(300, dtype=torch.int64)
    rounded = direct.bfloat16(), weight.bfloat16(), (128, 0)
    deltas = torch.zeros(256, 256, dtype=torch.bfloat16)
    softmax_products(*rounded, biases, span, statistics, statistics, 0, deltas)
    softmax_merge(statistics, statistics)
    sums = softmax_delta(deltas, statistics, 0, examples, examples, span)
    slopes_of_products(*rounded, biases, span, examples, formula, losses, 0, deltas)
    shard_losses(losses, losses[..., 0].contiguous())
    logits = target_products(rounded[0], weight, biases, entries, entries)
    results = examples, examples, span, sums, deltas, biases, losses[..., 0].contiguous(), 0
    softmax_target_deltas(Entries(entries, entries, logits), logits, logits, *results)
    add_hidden_gradient(deltas, *rounded[1:], span, torch.zeros(2, 256, 1024), is_first=False)
    kinds = (("sgd", 0), ("rmsprop", 1), ("adadelta", 2), ("adam", 2))
    for kind, states in kinds if ALL else kinds[-1:]:
        own = [torch.zeros_like(weight)] * states
        Steps(kind, Penalties(), (1.0,) * 6).output(weight, own, deltas, rounded[0], span)
    if not ALL:
        return
    in_tf32 = direct, weight, (128, 0)
    softmax_products(*in_tf32, biases, span, statistics, statistics, 0, deltas.float())
    add_hidden_gradient(deltas.float(), *in_tf32[1:], span, torch.zeros(2, 256, 1024), is_first=True)
    Steps("rmsprop", Penalties(), (1.0,) * 6).output(weight, [weight], deltas.float(), direct, span)


main()
