"""Compiles every kernel in Triton for an A100 and an H200, on a machine without one, and prints the module
and the architecture of each.

Nothing is launched. With the word `all`, kernels of steps are compiled for every form of state.
"""

import sys

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from widenet.kernels.bags import Touched
from widenet.kernels.steps import OptimizerStep
from widenet.kernels.triton import fixed_point, running_top_k
from widenet.kernels.triton.gather_sum import gather_sum
from widenet.kernels.triton.output import TileTargets, take_pulls, tile_shares, tile_slopes
from widenet.kernels.triton.steps import step_all, step_rows, step_tile
from widenet.sparse import SparseBatch

ALL = "all" in sys.argv


class Device:
    """What Triton asks a device for before it compiles."""

    def __init__(self, architecture):
        self.architecture = architecture

    def get_current_device(self):
        return self.architecture

    def get_current_stream(self, device):
        return 0 * device

    def get_current_target(self):
        return GPUTarget("cuda", self.architecture, 32)


def compiling(run):
    def compiled(self, *arguments, warmup, **options):
        del warmup
        kernel = run(self, *arguments, warmup=True, **options)
        architecture = kernel.metadata.target.arch
        print(self.__module__.rpartition(".")[2], architecture, flush=True)
        return kernel

    return compiled


def main(architecture):
    driver.set_active(Device(architecture))
    running_top_k.LEAST = 16  # a larger sort compiles for long
    batch, weight, ones = SparseBatch.from_lists([[1, 2], [3]]), torch.ones(16, 1024), torch.ones(3)
    gather_sum(batch, weight)
    gather_sum(batch.with_values(ones), weight)
    fixed_point.exact_sum(torch.ones(2, 3, 4))
    targets = TileTargets(batch.indptr, batch.indices, 0, 64, 2)
    for dtype in (torch.float32, torch.bfloat16):
        tile, half = torch.ones(2, 3, 4096), dtype == torch.bfloat16
        of_targets = torch.ones(2, 4096), ones, ones.double(), torch.ones(2, 3, 1024), ones, ones
        tile_shares(tile, *of_targets, targets, half)
        take_pulls(tile.to(dtype), 1032, ones, ones, ones, torch.ones(3, 1024, dtype=dtype), ones, targets)
        for values in (ones, None):
            tile_slopes(tile, torch.ones(2, 4096), ones.double(), ones, values, targets, half)
    kinds = (("sgd", 0), ("nesterov", 1), ("adam", 2))
    for kind, states in kinds if ALL else kinds[-1:]:
        step, own = OptimizerStep(kind, (1.0,) * 6), [torch.zeros_like(weight)] * states
        step_tile(kind, step.numbers, weight, weight, own)
        several = [each.view(1, 16, 1024) for each in (weight, *own)]
        step_tile(kind, step.numbers, several[0], torch.ones(1, 16, 1032), several[1:], ones[None])
        step_all(kind, [step.numbers] * 2, [weight] * 2, [weight] * 2, [own] * 2)
        for since in (torch.ones(16, dtype=torch.int32), None):
            touched = Touched.of(batch).by(torch.ones(2, 1024))
            step_rows(kind, step.numbers, weight, touched, own, since, 5, 0.9)
    running_top_k.RunningTopK(10, torch.zeros(16)).add(torch.ones(16, 32), range(1, 257, 8))


JITFunction.run = compiling(JITFunction.run)
for number in (80, 90):
    main(number)
