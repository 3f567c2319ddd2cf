"""One training step: forward, loss, backward, update."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from widenet.kernels import RowGradient, Touched
from widenet.model.draws import Draws
from widenet.model.exchange import Pending
from widenet.model.layers.output import WideOutput
from widenet.model.limits import shortening
from widenet.model.network import Activity, Network, Prepared
from widenet.model.rule import Rule, StepNumbers
from widenet.model.sample import Choice
from widenet.model.sampled_loss import SampledLoss, sampled
from widenet.model.square_loss import SquareLoss
from widenet.model.wide_loss import OnTile, WideLoss
from widenet.model.wide_weight import WideWeight
from widenet.plan.tiles import blocks
from widenet.sparse import SparseBatch
from widenet.spec.layers import HiddenLayer
from widenet.transfer import sent

_BLOCK_ROWS = 16_384


def train_step(
    network: Network,
    prepared: Prepared,
    weights_E: Tensor | None,
    draws: Draws,
    rule: Rule,
    numbers: StepNumbers,
    norm_limit: float | None = None,
    judge: Callable[[float, StepNumbers], StepNumbers | None] | None = None,
) -> float:
    """The loss of a batch before the step, "sparseness" included, l1, l2 and "bias_l2" not; the network has made the step.

    prepared: the batch, by `network.prepare` with the same draws.
    weights_E: what each example counts, float32 [E]; None: all the same. The loss is the weighted sum over the examples,
    divided by their number. norm_limit: largest length of the whole gradient. judge: is told the loss before anything moves, and gives
    the numbers of the step, or None to leave it out.
    """
    with torch.no_grad():
        touched = prepared.touched or network.touched(prepared)
        _wake(network, touched, rule, numbers)
    with torch.enable_grad():
        activity = network.forward(prepared, draws)
        directs = {name: network.direct(output, activity) for name, output in network.outputs.items()}
    deferred: dict[str, WideLoss] = {}
    samples: dict[str, SampledLoss] = {}
    travels: list[Pending[list[Tensor]]] = []
    with torch.no_grad():
        for name, output in network.outputs.items():
            counted_E = network.example_weights(output, prepared, weights_E)
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
            wide = WideLoss(output, direct_EH, asked, share_E, _most_vectors(network, name, directs))
            at_once = output.owns_weight and norm_limit is None and judge is None
            travels.append(wide.run(_updating(output, rule, numbers) if at_once else None))
            if not at_once:
                deferred[name] = wide
    found = [travel.result() for travel in travels]
    totals = [penalty.detach().double() for penalty in activity.penalties] + [total for total, _ in found]
    loss = sum(totals[1:], totals[0])
    judged = numbers if judge is None else judge(float(loss), numbers)
    if judged is None:
        return float(loss)
    numbers = judged
    _backward([*directs.values(), *activity.penalties], [gradient_EH for _, gradient_EH in found])
    with torch.no_grad():
        update = _Update(network, _gathered(network, prepared, activity), touched, deferred, samples)
        update.apply(rule, numbers if norm_limit is None else update.within(norm_limit, numbers))
        network.follow(activity)
    return float(loss)  # only here the host waits for the device: nothing is left to launch


def _most_vectors(network: Network, output: str, directs: Mapping[str, Tensor]) -> int:
    """The largest number of vectors of those outputs that share an output's weight; along a sequence there are more of them."""
    weight = network.links[output, ""].weight
    return max(len(direct_EH) for name, direct_EH in directs.items() if network.links[name, ""].weight == weight)


def _shares(output: WideOutput, weights_E: Tensor | None, direct_EH: Tensor) -> Tensor:
    """What each example counts in the batch's loss, float32 [E]."""
    share = output.spec.loss_weight / max(len(direct_EH), 1)
    if weights_E is None:
        return torch.full((len(direct_EH),), share, device=direct_EH.device)
    return weights_E * share


def _updating(output: WideOutput, rule: Rule, numbers: StepNumbers) -> OnTile:
    """What updates a tile as soon as its gradient is known."""

    def on_tile(shard: int, start: int, stop: int, weight_gradient: Tensor, bias_gradient: Tensor) -> None:
        output.weight.update_tile(shard, start, stop, weight_gradient, rule, numbers)
        if output.bias is not None:
            output.bias.update_tile(shard, start, stop, bias_gradient, rule, numbers)

    return on_tile


class _Seed(torch.autograd.Function):
    """A scalar whose way back hands a gradient to an end: given the gradient itself, autograd would first load a library of symbols."""

    @staticmethod
    def forward(ctx: Any, end: Tensor, gradient: Tensor) -> Tensor:
        ctx.gradient = gradient
        return end.new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Any) -> tuple[Tensor, None]:
        return ctx.gradient, None


def _backward(ends: list[Tensor], gradients: list[Tensor]) -> None:
    """From the outputs, whose gradients are given, and the penalties back to the trunk's weights and the gathered sums."""
    given = [(end, gradient) for end, gradient in zip(ends, gradients, strict=False) if end.requires_grad]
    with torch.enable_grad():
        # The way back begins with the seed made last; an end that several outputs share adds up their gradients in their order.
        seeds = [_Seed.apply(end, gradient) for end, gradient in reversed(given)]  # type: ignore[no-untyped-call]
    live = [*seeds[::-1], *(penalty for penalty in ends[len(gradients) :] if penalty.requires_grad)]
    if live:
        torch.autograd.backward(live)


def _wake(network: Network, touched: Mapping[str, Mapping[int, Touched]], rule: Rule, numbers: StepNumbers) -> None:
    """Bring the rows that this batch reads up to date, where those without a gradient move."""
    if rule.idle_weights_move:
        for name, by_shard in touched.items():
            network.exchange.each(_waking(by_shard, network.wide[name], rule, numbers))


def _waking(touched: Mapping[int, Touched], weight: WideWeight, rule: Rule, numbers: StepNumbers) -> Callable[[int], None]:
    return lambda shard: weight.wake(shard, touched[shard].features_U, rule, numbers)


def _gathered(network: Network, prepared: Prepared, activity: Activity) -> dict[str, list[Tensor]]:
    """Of every weight of sparse inputs, the sums that were gathered from it."""
    return {weight: [activity.gathered[key] for key in keys] for weight, keys in network.uses(prepared).items()}


class _Update:
    """The gradients of one step that wait to be applied."""

    def __init__(
        self,
        network: Network,
        gathered: Mapping[str, list[Tensor]],
        touched: Mapping[str, Mapping[int, Touched]],
        deferred: dict[str, WideLoss],
        samples: dict[str, SampledLoss],
    ) -> None:
        self.network, self.deferred = network, deferred
        self.rows: dict[str, dict[int, RowGradient]] = {}
        for weight, sums in gathered.items():
            gradient_NH = torch.cat([_gradient(sums_EH) for sums_EH in sums])
            self.rows[weight] = {shard: rows.by(gradient_NH) for shard, rows in touched[weight].items()}
        for name, sample in samples.items():
            self._add_rows(network.links[name, ""].weight, sample.rows_of_weight)
            if sample.rows_of_bias is not None:
                self._add_rows(f"{name} bias", sample.rows_of_bias)
        self.stepped: dict[str, list[WideLoss]] = {}
        for name, wide in deferred.items():
            self.stepped.setdefault(network.links[name, ""].weight, []).append(wide)

    def within(self, limit: float, numbers: StepNumbers) -> StepNumbers:
        """The numbers of a step whose whole gradient is at most so long."""
        length = self._norm()
        return replace(numbers, gradient_scale=limit / length if length > limit else 1.0)

    def _norm(self) -> float:
        """The Euclidean length of the whole gradient."""
        exchange = self.network.exchange
        wide = [exchange.each(self._squares(name)) for name in dict.fromkeys([*self.rows, *self.stepped])]
        squares = exchange.start_sum(*wide, where="gradient norm").result()
        grown = {name: trunk.tensor.grad for name, trunk in self.network.trunk.items() if trunk.tensor.grad is not None}
        squares += [gradient.double().square().sum() * self.network.share_of_gradient(name) ** 2 for name, gradient in grown.items()]
        return math.sqrt(float(sum(squares)))

    def apply(self, rule: Rule, numbers: StepNumbers) -> None:
        """One optimizer step of everything that has a gradient here."""
        exchange = self.network.exchange
        for name in dict.fromkeys([*self.rows, *self.stepped]):
            exchange.each(self._step(name, rule, numbers))
        for name, trunk in self.network.trunk.items():
            trunk.update(rule, self._scaled(name, numbers))
        self._limit_columns()

    def _scaled(self, name: str, numbers: StepNumbers) -> StepNumbers:
        """The numbers of a step of a weight, whose sharers may each count for less."""
        return replace(numbers, gradient_scale=numbers.gradient_scale * self.network.share_of_gradient(name))

    def _add_rows(self, weight: str, rows: Mapping[int, RowGradient]) -> None:
        """Take the gradients of some rows of a weight, on top of those that other layers have for it."""
        others = self.rows.get(weight)
        self.rows[weight] = dict(rows) if others is None else {shard: others[shard].plus(rows[shard]) for shard in rows}

    def _squares(self, name: str) -> Callable[[int], Tensor]:
        def of(shard: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64, device=self.network.device)
            share = self.network.share_of_gradient(name) ** 2
            for _, _, gradient, biases in self._tile_gradients(name, shard):
                total += gradient.double().square().sum() * share
                for bias in biases:
                    total += bias.double().square().sum()
            if name not in self.stepped:
                touched = self.rows[name][shard]
                for start, stop in blocks(len(touched), touched.gradient_EH.shape[1], self.network.device.type):
                    total += touched.rows(start, stop).double().square().sum() * share
            return total

        return of

    def _step(self, name: str, rule: Rule, numbers: StepNumbers) -> Callable[[int], None]:
        weight, scaled = self.network.wide[name], self._scaled(name, numbers)

        def of(shard: int) -> None:
            if name not in self.stepped:
                weight.update_rows(shard, self.rows[name][shard], rule, scaled)
            for start, stop, gradient, biases in self._tile_gradients(name, shard):
                weight.update_tile(shard, start, stop, gradient, rule, scaled)
                for wide, bias in zip(self._biases(name), biases, strict=True):
                    wide.update_tile(shard, start, stop, bias, rule, numbers)

        return of

    def _biases(self, name: str) -> list[WideWeight]:
        """The biases of the outputs that use a weight; some have none."""
        return [user.output.bias for user in self.stepped.get(name, []) if user.output.bias is not None]

    def _tile_gradients(self, name: str, shard: int) -> Iterator[tuple[int, int, Tensor, list[Tensor]]]:
        """Every tile of a weight that outputs use: its gradient from all its uses, and the outputs' bias gradients."""
        users = self.stepped.get(name, [])
        if not users:
            return
        touched = self.rows[name][shard] if name in self.rows else None
        for index, (start, stop) in enumerate(users[0].tiles[shard]):
            found = [user.gradient(shard, index) for user in users]
            gradient_TH = found[0][0]
            for other_TH, _ in found[1:]:
                gradient_TH += other_TH
            if touched is not None:
                features_U = touched.features_U
                low, high = torch.searchsorted(features_U, sent(torch.tensor([start, stop]), features_U.device)).tolist()
                gradient_TH.index_add_(0, features_U[low:high] - start, touched.rows(low, high))
            yield start, stop, gradient_TH, [bias for user, (_, bias) in zip(users, found, strict=True) if user.output.bias is not None]

    def _limit_columns(self) -> None:
        """Keep the incoming weights of hidden units over sparse inputs within their layer's "weight_norm"."""
        for layer in self.network.spec.hidden:
            limit = layer.weight_norm if isinstance(layer, HiddenLayer) else None
            for source in self.network.spec.sources(layer):
                weight = self.network.wide.get(f"{layer.name}/{source}")
                if limit is not None and weight is not None:
                    _limit_columns(self.network, weight, limit, f'layer "{layer.name}"')


def _gradient(gathered_EH: Tensor) -> Tensor:
    assert gathered_EH.grad is not None
    return gathered_EH.grad


def _column_squares(weight_RH: Tensor) -> Tensor:
    """Sum of squares of every column, float64 [H], a block of rows at a time."""
    total_H = torch.zeros(weight_RH.shape[1], dtype=torch.float64, device=weight_RH.device)
    for block_RH in torch.split(weight_RH, _BLOCK_ROWS):
        total_H += block_RH.double().square().sum(dim=0)
    return total_H


def _limit_columns(network: Network, weight: WideWeight, limit: float, where: str) -> None:
    squares_H = network.exchange.sum(network.exchange.each(lambda shard: _column_squares(weight.parts[shard].weight)), where)
    factor_H = shortening(squares_H.sqrt(), limit).float()
    if bool((factor_H < 1).any()):
        network.exchange.each(lambda shard: weight.parts[shard].weight.mul_(factor_H))
