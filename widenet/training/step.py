"""One training step: forward, loss, backward, update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from widenet.kernels.bags import Touched
from widenet.kernels.cuda_products import cuda_products
from widenet.model.layers.output import WideOutput
from widenet.model.network import Activity, Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.preparation import Prepared
from widenet.model.sample import Choice
from widenet.model.sampled_loss import sampled
from widenet.model.step_random import StepRandom
from widenet.model.wide_loss import Passes, output_passes, start
from widenet.model.wide_weight import WideWeight
from widenet.parallel.line import Pending
from widenet.training.all_weights import Launched
from widenet.training.update import Update


@dataclass(frozen=True)
class Step:
    """A batch, and the numbers of the step that it makes.

    Attributes:
        prepared: The batch, from `Network.prepare` with the same random numbers.
        random: The step's random numbers.
        numbers: The step's number, and the learning rates.
        norm_limit: Largest length of the whole gradient.
        updates: Whether weights change; without, a step gives its loss alone.
        observe: Called with the gradients before they are applied.
    """

    prepared: Prepared
    random: StepRandom
    numbers: StepNumbers
    norm_limit: float | None = None
    updates: bool = True
    observe: Callable[[Launched, Update], None] | None = None

    def updates_at_once(self, output: WideOutput) -> bool:
        """Return whether each tile of an output is updated as soon as its gradient is known."""
        return output.updates_at_once and self.norm_limit is None and self.updates


def train_step(network: Network, rule: Optimizer, step: Step) -> float:
    """Train a network on a batch; return the batch's loss before the step.

    The loss includes "sparseness", but not l1, l2 and "bias_l2".

    Raises:
        NumericsError: The loss is not finite; the message names the layer that overflowed first.
    """
    with cuda_products(tf32=network.layout.training.precision == "tf32"):
        launched = _launched_step(network, rule, step)
    loss = float(launched.loss)  # only here the host waits for the device: nothing is left to launch
    launched.check(loss)
    return loss


def _launched_step(network: Network, rule: Optimizer, step: Step) -> Launched:
    """Train a network on a batch; the device may still be working on the step when this returns."""
    prepared, random, numbers = step.prepared, step.random, step.numbers
    with torch.no_grad():
        touched = prepared.touched
        assert touched is not None
        network.bring_rows(touched, updates=True)
        _catch_up(network, touched, rule, numbers)
    with torch.enable_grad():
        activity = network.forward(prepared, random)
        vectors = {name: network.direct(output, activity) for name, output in network.outputs.items()}
    deferred: dict[str, Passes] = {}
    samples: dict[str, tuple[Passes, Choice]] = {}
    pending: list[Pending[list[Tensor]]] = []
    with torch.no_grad():
        for name in network.outputs:
            output = network.output_for(name, activity, touched)
            weights_E = network.example_weights(output, prepared)
            direct_EH, share_E = vectors[name].detach(), _shares(output, weights_E, vectors[name])
            targets = prepared.targets[name]
            if isinstance(targets, Choice):
                sample = sampled(output, direct_EH, targets, share_E, rule, numbers)
                samples[name] = sample, targets
                pending.append(start(sample, None))
                continue
            own = output_passes(output, direct_EH, targets, share_E, _max_vectors(network, name, vectors))
            at_once = step.updates_at_once(output) and own.moves(rule, numbers, numbers)
            pending.append(start(own, (rule, numbers) if at_once else None))
            if not at_once:
                deferred[name] = own
    results = [result.result() for result in pending]
    launched = _launched(network, activity, [loss for loss, _ in results])
    if not step.updates:
        for name in touched:
            network.wide[name].give_back()
        return launched
    _backward([*vectors.values(), *activity.penalties], [gradient_EH for _, gradient_EH in results])
    with torch.no_grad():
        gathered = _gathered(network, prepared, activity)
        update = Update(network, activity, gathered, touched, deferred, samples)
        if step.observe is not None:
            step.observe(launched, update)
        update.apply(rule, numbers if step.norm_limit is None else update.within(step.norm_limit, numbers))
        network.follow(activity)
        update.spread_descriptions()
    return launched


def _launched(network: Network, activity: Activity, losses: list[Tensor]) -> Launched:
    """Return a step after its forward pass, from the losses of the outputs in their order."""
    totals = [penalty.detach().double() for penalty in activity.penalties] + losses
    values = {name: values_EH.detach() for name, values_EH in activity.values.items()}
    return Launched(sum(totals[1:], totals[0]), values, dict(zip(network.outputs, losses, strict=True)))


def _max_vectors(network: Network, output: str, vectors: Mapping[str, Tensor]) -> int:
    """Return the largest number of vectors among the outputs that share an output's weight.

    An output along a sequence has more vectors than examples.
    """
    weight = network.layout.links[output, ""].weight
    return max(
        len(direct_EH)
        for name, direct_EH in vectors.items()
        if network.layout.links[name, ""].weight == weight
    )


def _shares(output: WideOutput, weights_E: Tensor | None, direct_EH: Tensor) -> Tensor:
    """Return per-example loss weights, float32 [E]: the output's, over the number of vectors."""
    share = output.spec.loss_weight / max(len(direct_EH), 1)
    if weights_E is None:
        return torch.full((len(direct_EH),), share, device=direct_EH.device)
    return weights_E * share


def _backward(ends: list[Tensor], gradients: list[Tensor]) -> None:
    """Compute the gradients of the trunk's weights and of the gathered sums.

    Args:
        ends: The vectors that enter the outputs, then the penalties.
        gradients: The gradients to the vectors.
    """
    ones = [torch.ones_like(penalty) for penalty in ends[len(gradients) :]]
    live = [each for each in zip(ends, [*gradients, *ones], strict=True) if each[0].requires_grad]
    if live:
        torch.autograd.backward([end for end, _ in live], [gradient for _, gradient in live])


def _catch_up(
    network: Network, touched: Mapping[str, Mapping[int, Touched]], rule: Optimizer, numbers: StepNumbers
) -> None:
    """Bring the rows that this batch reads up to date, if the optimizer moves rows without a gradient."""
    if rule.idle_weights_move:
        for name, by_shard in touched.items():
            network.each(by_shard, _catching_up(by_shard, network.wide[name], rule, numbers))


def _catching_up(
    touched: Mapping[int, Touched], weight: WideWeight, rule: Optimizer, numbers: StepNumbers
) -> Callable[[int], None]:
    return lambda shard: weight.catch_up(shard, touched[shard].features_U, rule, numbers)


def _gathered(network: Network, prepared: Prepared, activity: Activity) -> dict[str, list[Tensor]]:
    """Return, for every trained weight of sparse inputs, the sums that were gathered from it."""
    return {
        weight: [activity.gathered[key] for key in keys]
        for weight, keys in network.uses(prepared).items()
        if network.wide[weight].trained
    }
