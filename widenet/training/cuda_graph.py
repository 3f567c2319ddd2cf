"""Records a training step as a CUDA graph, and replays it for each batch."""

import torch
from torch import Tensor

from widenet.kernels.table import runner, step_runner, tile_runner
from widenet.model.network import Network
from widenet.model.packing import Packed, Packer
from widenet.model.preparation import Prepared
from widenet.model.rule import StepNumbers
from widenet.plan.graph import check_recordable, not_recorded
from widenet.plan.job import Job
from widenet.training.optimizers import Optimizer
from widenet.training.overflow import Launched
from widenet.training.step import Step, launched_step, train_step
from widenet.transfer import sent


def check_recordable_here(job: Job) -> None:
    """Raise OptionError if the steps of a training cannot be recorded, or Triton is missing."""
    check_recordable(job)
    device, optimizer = torch.device("cuda"), job.training.optimizer.kind
    if runner("row_update", device) != "triton":
        raise not_recorded("Triton cannot be imported")
    if step_runner(device, optimizer) != "triton":
        raise not_recorded(f'Triton has no steps of "{optimizer}"')
    for output in job.network.outputs:
        kind = "closed softmax" if output.activation.kind == "softmax" else output.activation.kind
        if tile_runner(device, kind, output.loss.kind) != "triton":
            raise not_recorded(
                f'Triton has no formula of the activation or the loss of output "{output.name}"'
            )


class GraphSteps:
    """Makes the steps of batches with `num_examples` examples; `check_recordable_here` must have passed.

    The graph reads each batch from the same memory, into which the batch is copied. The first batch of new
    capacities makes its step eagerly, so that nothing is compiled or loaded during the recording; the second
    is recorded. The bits are those of eager steps.
    """

    def __init__(self, network: Network, rule: Optimizer, num_examples: int) -> None:
        self.network, self.rule, self.num_examples = network, rule, num_examples
        self.packer = Packer()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.memory: Packed | None = None
        self.loaded = torch.zeros(0)
        self.launched: Launched | None = None

    def pack(self, prepared: Prepared, weights_E: Tensor | None, num_examples: int) -> Packed | None:
        """Pack a batch for `step`, ahead and in the order of steps; None if the batch must train eagerly."""
        return self.packer.pack(prepared, weights_E) if num_examples == self.num_examples else None

    def step(self, packed: Packed, step: Step) -> float:
        """Make a step of the network, and return the loss of the batch before it, as `train_step` does."""
        if self.memory is None or self.memory.capacities != packed.capacities:
            self.graph = self.launched = None  # free their memory before allocating as much again
            self.memory = Packed(packed.whole.clone(), packed.real.clone(), packed.capacities)
            self.loaded = sent(self.rule.table(step.numbers), self.network.device)
            return train_step(self.network, self.rule, self._in_memory(step))
        self.memory.whole.copy_(packed.whole)
        self.memory.real.copy_(packed.real)
        self.loaded.copy_(self.rule.table(step.numbers).pin_memory(), non_blocking=True)
        if self.graph is None:
            self._record(self._in_memory(step))
        assert self.graph is not None
        assert self.launched is not None
        self.graph.replay()
        loss = float(self.launched.loss)
        self.launched.check(loss)
        return loss

    def _in_memory(self, step: Step) -> Step:
        """Return the same step, with its batch and numbers read from the graph's memory."""
        assert self.memory is not None
        prepared, weights_E = self.memory.unpacked(step.prepared, step.weights_E)
        numbers = StepNumbers(step.numbers.number, step.numbers.rates, loaded=self.loaded)
        return Step(prepared, weights_E, step.random, numbers)

    def _record(self, step: Step) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # Another thread may copy batches meanwhile; "thread_local" records only this thread's calls.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.launched = launched_step(self.network, self.rule, step)
