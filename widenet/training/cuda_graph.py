"""Training steps as a CUDA graph: recorded once over memory that stays, and replayed for each batch, which is put there."""

from collections.abc import Iterator

import torch
from torch import Tensor

from widenet.kernels.devices import has_triton
from widenet.model.draws import Draws
from widenet.model.losses import loss_of
from widenet.model.network import Network
from widenet.model.packing import Packed, Packer
from widenet.model.preparation import Prepared
from widenet.model.rule import StepNumbers
from widenet.plan.job import Job, not_recorded
from widenet.spec.activations import ROW_WISE
from widenet.spec.layers import HiddenLayer, InputLayer, OutputLayer, Trunk
from widenet.training.optimizers import Optimizer
from widenet.training.step import launched_step, train_step
from widenet.transfer import sent


def check_recordable(job: Job) -> None:
    """Raise OptionError where the steps of a training cannot be recorded; `Job.of` has asked where it runs."""
    rule = Optimizer(job.training.optimizer, job.training.l1, job.training.l2, job.network.dialect)
    obstacle = next(_obstacles(job, rule), None)
    if obstacle is not None:
        raise not_recorded(obstacle)


def _obstacles(job: Job, rule: Optimizer) -> Iterator[str]:
    """What of a training no graph can hold: what the host must know within a step, and random numbers, which it draws."""
    training, penalty = job.training, " with l2" if rule.kind == "sgd" else ""
    found = {
        "Triton cannot be imported": not has_triton(),
        '"gradient_norm_limit" asks for the length of each gradient': training.gradient_norm_limit is not None,
        '"brake" asks for the loss before each step': training.brake,
        f'under "{rule.kind}"{penalty} weights move that a batch does not touch': rule.idle_weights_move,
        "it reads a sequence": bool(job.weights.along),
    }
    yield from (obstacle for obstacle, is_there in found.items() if is_there)
    yield from (f'layer "{layer.name}" {obstacle}' for layer in job.network.hidden for obstacle in _obstacles_of_hidden(job, layer))
    yield from (f'output "{output.name}" {obstacle}' for output in job.network.outputs for obstacle in _obstacles_of(job, output))


def _obstacles_of_hidden(job: Job, layer: Trunk) -> Iterator[str]:
    if not isinstance(layer, HiddenLayer):
        yield f"is a {layer.kind} layer"
        return
    if layer.dropout:
        yield "has dropout, whose random numbers the host draws"
    if layer.weight_norm is not None and _is_over_sparse(job, layer):
        yield "has a weight_norm over a sparse input"


def _obstacles_of(job: Job, output: OutputLayer) -> Iterator[str]:
    kind = output.activation.kind
    closed = kind == "softmax" and loss_of(output.loss, output.activation).slope_of_logit
    found = {
        "is trained on a sample": output.sample is not None,
        "is trained without its logits": job.drifts(output),
        "shares its weights": job.weights.is_shared(output.name),
        "stands on a sparse input": _is_over_sparse(job, output),
        f'has the activation "{kind}" under "{output.loss.kind}"': kind in ROW_WISE and not closed,
        "has dense targets": output.field not in job.entries and not closed,
        'has "others": "ignore"': output.others == "ignore",
        "has a delta_boost": output.delta_boost is not None,
        "has a delta_norm": output.delta_norm is not None,
    }
    yield from (obstacle for obstacle, is_there in found.items() if is_there)


def _is_over_sparse(job: Job, layer: HiddenLayer | OutputLayer) -> bool:
    sources = (job.network.layer(source) for source in job.network.sources(layer))
    return any(isinstance(source, InputLayer) and source.field in job.entries for source in sources)


class GraphSteps:
    """The steps of a training whose batches have `num_examples` examples; `check_recordable` has been asked.

    The first batch of some capacities makes its step eagerly, so that nothing is compiled or loaded while the graph is recorded; the second
    records it. The bits are those of eager steps.
    """

    def __init__(self, network: Network, rule: Optimizer, num_examples: int) -> None:
        self.network, self.rule, self.num_examples = network, rule, num_examples
        self.packer = Packer()
        self.graph: torch.cuda.CUDAGraph | None = None
        self.memory: Packed | None = None
        self.loaded = torch.zeros(0)
        self.loss = torch.zeros(0)

    def pack(self, prepared: Prepared, weights_E: Tensor | None, num_examples: int) -> Packed | None:
        """A batch as `step` takes it, made ahead in the order of steps; None of one that trains eagerly."""
        return self.packer.pack(prepared, weights_E) if num_examples == self.num_examples else None

    def step(self, packed: Packed, prepared: Prepared, weights_E: Tensor | None, draws: Draws, numbers: StepNumbers) -> float:
        """The loss of a batch before the step; the network has made the step. Arguments as of `train_step`."""
        if self.memory is None or self.memory.capacities != packed.capacities:
            self.graph, self.loss = None, torch.zeros(0)  # their memory is free before others take as much
            self.memory = Packed(packed.whole.clone(), packed.real.clone(), packed.capacities)
            self.loaded = sent(self.rule.table(numbers), self.network.device)
            return train_step(self.network, *self.memory.unpacked(prepared, weights_E), draws, self.rule, self._standing(numbers))
        self.memory.whole.copy_(packed.whole)
        self.memory.real.copy_(packed.real)
        self.loaded.copy_(self.rule.table(numbers).pin_memory(), non_blocking=True)
        if self.graph is None:
            self._record(*self.memory.unpacked(prepared, weights_E), draws, numbers)
        assert self.graph is not None
        self.graph.replay()
        return float(self.loss)

    def _standing(self, numbers: StepNumbers) -> StepNumbers:
        """The numbers of a step, loaded from where those of all steps are put."""
        return StepNumbers(numbers.number, numbers.rates, loaded=self.loaded)

    def _record(self, prepared: Prepared, weights_E: Tensor | None, draws: Draws, numbers: StepNumbers) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # Another thread may copy batches meanwhile, which only a recording of this thread's calls allows.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.loss = launched_step(self.network, prepared, weights_E, draws, self.rule, self._standing(numbers))
