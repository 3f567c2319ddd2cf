"""Compiles every kernel in Triton for an H200, on a machine without one, and prints each kernel's module;
nothing is launched.
"""

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from widenet.kernels import row_gradient
from widenet.kernels.compiled_steps import Penalties
from widenet.kernels.triton import running_top_k
from widenet.kernels.triton.fixed_point import fixed_sum
from widenet.kernels.triton.gather_sum import gather_sum
from widenet.kernels.triton.softmax_pulls import softmax_pulls
from widenet.kernels.triton.softmax_sums import add_softmax_sums
from widenet.kernels.triton.softmax_tile import softmax_tile
from widenet.kernels.triton.steps import Steps
from widenet.kernels.triton.target_logits import target_logits
from widenet.kernels.triton.tile_others import UnitFormula, tile_others
from widenet.kernels.triton.tile_targets import tile_targets
from widenet.sparse import SparseBatch


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
        print(self.__module__.rpartition(".")[2], len(kernel.asm["cubin"]) > 0)
        return kernel

    return compiled


def main():
    driver.set_active(H200())
    JITFunction.run = compiling(JITFunction.run)
    running_top_k.LEAST = 16  # a larger sort compiles for long
    batch, weight, ones = SparseBatch.from_lists([[1, 2], [3]]), torch.ones(16, 1024), torch.ones(3)
    gather_sum(batch, weight)
    gather_sum(batch.with_values(ones), weight.bfloat16())
    fixed_sum([torch.ones(2, 4)] * 2, torch.ones(2, 1, dtype=torch.float64))
    for kind, states in (("sgd", 0), ("nesterov", 1), ("adam", 2)):
        steps, own = (
            Steps(kind, Penalties(), torch.ones(8, dtype=torch.float64)),
            [torch.zeros_like(weight)] * states,
        )
        steps.tile(weight, weight, own)
        for moved in (None, torch.zeros(16, dtype=torch.int32)):
            steps.rows(weight, row_gradient(batch, torch.ones(2, 1024)), own, ones, moved)
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
    running_top_k.RunningTopK(10, torch.zeros(16)).add(torch.ones(16, 32), 1)


main()
