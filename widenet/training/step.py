"""One training step: forward, loss, backward, update."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from widenet.kernels import RowGradient, Touched
from widenet.model.draws import Draws
from widenet.model.exchange import Pending
from widenet.model.layers.output import WideOutput
from widenet.model.network import Activity, Network
from widenet.model.output_step import OutputStep
from widenet.model.preparation import Prepared
from widenet.model.rule import Rule, StepNumbers
from widenet.model.sample import Choice
from widenet.model.sampled_loss import SampledStep, sampled
from widenet.model.square_loss import SquareLoss
from widenet.model.wide_loss import Takers, output_step, run
from widenet.model.wide_weight import WideWeight
from widenet.sparse import SparseBatch
from widenet.training.overflow import Launched
from widenet.training.update import Update


@dataclass(frozen=True)
class Step:
    """A batch, and the numbers of the step that it makes.

    Attributes:
        prepared: The batch, as `Network.prepare` gives it with the same random numbers.
        weights_E: Per-example loss weights, float32 [E]; None: all the same. The loss is the weighted sum
            over the examples, divided by their number.
        draws: The step's random numbers.
        numbers: The step's number, and the learning rates.
        norm_limit: Largest length of the whole gradient.
        judge: Is told the loss before anything moves, and gives the numbers of the step, or None to leave it
            out.
    """

    prepared: Prepared
    weights_E: Tensor | None
    draws: Draws
    numbers: StepNumbers
    norm_limit: float | None = None
    judge: Callable[[float, StepNumbers], StepNumbers | None] | None = None


def train_step(network: Network, rule: Rule, step: Step) -> float:
    """Make a step of the network, and return the loss of the batch before it.

    The loss includes "sparseness", but not l1, l2 and "bias_l2".

    Raises:
        NumericsError: The loss is not finite; the message names the layer that overflowed first.
    """
    launched = launched_step(network, rule, step)
    loss = float(launched.loss)  # only here the host waits for the device: nothing is left to launch
    launched.check(loss)
    return loss


def launched_step(network: Network, rule: Rule, step: Step) -> Launched:
    """Make a step of the network, at which a device may still be at work afterwards."""
    prepared, draws, judge = step.prepared, step.draws, step.judge
    numbers = rule.on_device(step.numbers, network.device) if judge is None else step.numbers
    with torch.no_grad():
        touched = prepared.touched or network.touched(prepared)
        _wake(network, touched, rule, numbers)
    with torch.enable_grad():
        activity = network.forward(prepared, draws)
        directs = {name: network.direct(output, activity) for name, output in network.outputs.items()}
    deferred: dict[str, OutputStep] = {}
    samples: dict[str, SampledStep] = {}
    travels: list[Pending[list[Tensor]]] = []
    with torch.no_grad():
        for name in network.outputs:
            output = network.met(name, activity, touched)
            counted_E = network.example_weights(output, prepared, step.weights_E)
            direct_EH, share_E = directs[name].detach(), _shares(output, counted_E, directs[name])
            asked = prepared.asked[name]
            if isinstance(asked, SparseBatch):
                assert output.drift is not None
                travels.append(SquareLoss(output.drift, direct_EH, asked, share_E).run(numbers))
                continue
            if isinstance(asked, Choice):
                samples[name] = sampled(output, direct_EH, asked, share_E, rule, numbers)
                travels.append(samples[name].start())
                continue
            wide = output_step(output, direct_EH, asked, share_E, _most_vectors(network, name, directs))
            at_once = output.owns_weight and step.norm_limit is None and judge is None
            travels.append(run(wide, _updating(output, rule, numbers) if at_once else None))
            if not at_once:
                deferred[name] = wide
    found = [travel.result() for travel in travels]
    launched = _launched(network, activity, [total for total, _ in found])
    judged = numbers if judge is None else judge(float(launched.loss), numbers)
    if judged is None:
        return launched
    numbers = rule.on_device(judged, network.device)
    _backward([*directs.values(), *activity.penalties], [gradient_EH for _, gradient_EH in found])
    with torch.no_grad():
        update = Update(network, _gathered(network, prepared, activity), touched, deferred, samples)
        update.apply(rule, numbers if step.norm_limit is None else update.within(step.norm_limit, numbers))
        network.follow(activity)
    return launched


def _launched(network: Network, activity: Activity, losses: list[Tensor]) -> Launched:
    """A step after its forward pass. losses: the outputs' own, in their order."""
    totals = [penalty.detach().double() for penalty in activity.penalties] + losses
    values = {name: values_EH.detach() for name, values_EH in activity.values.items()}
    return Launched(sum(totals[1:], totals[0]), values, dict(zip(network.outputs, losses, strict=True)))


def _most_vectors(network: Network, output: str, directs: Mapping[str, Tensor]) -> int:
    """The largest number of vectors of those outputs that share an output's weight; along a sequence there
    are more of them.
    """
    weight = network.layout.links[output, ""].weight
    return max(
        len(direct_EH)
        for name, direct_EH in directs.items()
        if network.layout.links[name, ""].weight == weight
    )


def _shares(output: WideOutput, weights_E: Tensor | None, direct_EH: Tensor) -> Tensor:
    """What each example counts in the batch's loss, float32 [E]."""
    share = output.spec.loss_weight / max(len(direct_EH), 1)
    if weights_E is None:
        return torch.full((len(direct_EH),), share, device=direct_EH.device)
    return weights_E * share


def _updating(output: WideOutput, rule: Rule, numbers: StepNumbers) -> Takers:
    """What updates a tile, and a shard's biases, as soon as the gradient is known."""

    def weight(shard: int, start: int, stop: int, gradient: Tensor | RowGradient) -> None:
        output.weight.update_tile(shard, start, stop, gradient, rule, numbers)

    def bias(shard: int, gradient: Tensor) -> None:
        if output.bias is not None:
            output.bias.update_tile(shard, 0, len(gradient), gradient, rule, numbers)

    return Takers(weight, bias)


class _Seed(torch.autograd.Function):
    """A scalar whose way back hands a gradient to an end: given the gradient itself, autograd would first
    load a library of symbols.
    """

    @staticmethod
    def forward(ctx: Any, end: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return end.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Tensor, None]:
        return ctx.gradient, None


def _backward(ends: list[Tensor], gradients: list[Tensor]) -> None:
    """From the outputs, whose gradients are given, and the penalties back to the trunk's weights and the
    gathered sums.
    """
    given = [(end, gradient) for end, gradient in zip(ends, gradients, strict=False) if end.requires_grad]
    with torch.enable_grad():
        # The way back begins with the seed made last; an end that several outputs share adds up their
        # gradients in their order.
        seeds = [_Seed.apply(end, gradient) for end, gradient in reversed(given)]  # type: ignore[no-untyped-call]
    live = [*seeds[::-1], *(penalty for penalty in ends[len(gradients) :] if penalty.requires_grad)]
    if live:
        torch.autograd.backward(live)


def _wake(
    network: Network, touched: Mapping[str, Mapping[int, Touched]], rule: Rule, numbers: StepNumbers
) -> None:
    """Bring the rows that this batch reads up to date, where those without a gradient move."""
    if rule.idle_weights_move:
        for name, by_shard in touched.items():
            network.exchange.each(_waking(by_shard, network.wide[name], rule, numbers))


def _waking(
    touched: Mapping[int, Touched], weight: WideWeight, rule: Rule, numbers: StepNumbers
) -> Callable[[int], None]:
    return lambda shard: weight.wake(shard, touched[shard].features_U, rule, numbers)


def _gathered(network: Network, prepared: Prepared, activity: Activity) -> dict[str, list[Tensor]]:
    """Of every weight of sparse inputs, the sums that were gathered from it."""
    return {
        weight: [activity.gathered[key] for key in keys] for weight, keys in network.uses(prepared).items()
    }
