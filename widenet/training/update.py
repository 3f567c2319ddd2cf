"""What a step still has to move once every gradient is known: rows of inputs, outputs whose weights wait,
and the trunk.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from torch import Tensor

from widenet.kernels import RowGradient, Touched
from widenet.model.limits import shortening
from widenet.model.network import Network
from widenet.model.output_step import OutputStep
from widenet.model.rule import Rule, StepNumbers
from widenet.model.sampled_loss import SampledStep
from widenet.model.wide_loss import gradient as tile_gradient
from widenet.model.wide_weight import WideWeight
from widenet.plan.tiles import blocks
from widenet.spec.layers import HiddenLayer
from widenet.transfer import sent

_BLOCK_ROWS = 16_384


class Update:
    """The gradients of one step that wait to be applied."""

    def __init__(
        self,
        network: Network,
        gathered: Mapping[str, list[Tensor]],
        touched: Mapping[str, Mapping[int, Touched]],
        deferred: dict[str, OutputStep],
        samples: dict[str, SampledStep],
    ) -> None:
        self.network, self.deferred = network, deferred
        self.rows: dict[str, dict[int, RowGradient]] = {}
        for weight, sums in gathered.items():
            gradient_NH = torch.cat([_gradient(sums_EH) for sums_EH in sums])
            self.rows[weight] = {shard: rows.by(gradient_NH) for shard, rows in touched[weight].items()}
        for name, sample in samples.items():
            self._add_rows(network.layout.links[name, ""].weight, sample.rows_of_weight)
            if sample.rows_of_bias is not None:
                self._add_rows(f"{name} bias", sample.rows_of_bias)
        self.stepped: dict[str, list[OutputStep]] = {}
        for name, step in deferred.items():
            self.stepped.setdefault(network.layout.links[name, ""].weight, []).append(step)

    def within(self, limit: float, numbers: StepNumbers) -> StepNumbers:
        """The numbers of a step whose whole gradient is at most so long."""
        length = self._norm()
        return replace(numbers, gradient_scale=limit / length if length > limit else 1.0)

    def _norm(self) -> float:
        """The Euclidean length of the whole gradient."""
        exchange = self.network.exchange
        wide = [exchange.each(self._squares(name)) for name in dict.fromkeys([*self.rows, *self.stepped])]
        squares = exchange.start_sum(*wide, where="gradient norm").result()
        grown = {
            name: trunk.tensor.grad
            for name, trunk in self.network.trunk.items()
            if trunk.tensor.grad is not None
        }
        squares += [
            gradient.double().square().sum() * self.network.share_of_gradient(name) ** 2
            for name, gradient in grown.items()
        ]
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
        self.rows[weight] = (
            dict(rows) if others is None else {shard: others[shard].plus(rows[shard]) for shard in rows}
        )

    def _squares(self, name: str) -> Callable[[int], Tensor]:
        def of(shard: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64, device=self.network.device)
            share = self.network.share_of_gradient(name) ** 2
            for _, _, gradient, biases in self._tile_gradients(name, shard):
                total += self._square_sum(gradient) * share
                for bias in biases:
                    total += bias.double().square().sum()
            if name not in self.stepped:
                total += self._square_sum(self.rows[name][shard]) * share
            return total

        return of

    def _square_sum(self, gradient: Tensor | RowGradient) -> Tensor:
        """float64 []; of rows that a batch touches, a block at a time."""
        if isinstance(gradient, Tensor):
            return gradient.double().square().sum()
        total = torch.zeros((), dtype=torch.float64, device=self.network.device)
        for start, stop in blocks(len(gradient), gradient.gradient_EH.shape[1], self.network.device.type):
            total += gradient.rows(start, stop).double().square().sum()
        return total

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

    def _tile_gradients(
        self, name: str, shard: int
    ) -> Iterator[tuple[int, int, Tensor | RowGradient, list[Tensor]]]:
        """Every tile of a weight that outputs use: its gradient from all its uses, and the outputs' bias
        gradients.
        """
        users = self.stepped.get(name, [])
        if not users:
            return
        touched = self.rows[name][shard] if name in self.rows else None
        for index, (start, stop) in enumerate(users[0].tiles[shard]):
            found = [tile_gradient(user, shard, index) for user in users]
            gradient = _summed([gradient for gradient, _ in found], touched, start, stop)
            yield (
                start,
                stop,
                gradient,
                [bias for user, (_, bias) in zip(users, found, strict=True) if user.output.bias is not None],
            )

    def _limit_columns(self) -> None:
        """Keep the incoming weights of hidden units over sparse inputs within their layer's "weight_norm"."""
        for layer in self.network.spec.hidden:
            limit = layer.weight_norm if isinstance(layer, HiddenLayer) else None
            for source in self.network.spec.sources(layer):
                weight = self.network.wide.get(f"{layer.name}/{source}")
                if limit is not None and weight is not None:
                    _limit_columns(self.network, weight, limit, f'layer "{layer.name}"')


def _summed(
    gradients: list[Tensor | RowGradient], touched: RowGradient | None, start: int, stop: int
) -> Tensor | RowGradient:
    """The gradient of the rows [start, stop) of a shard from all uses of a weight; one by columns has one
    use.
    """
    total_TH = gradients[0]
    if isinstance(total_TH, RowGradient):
        return total_TH
    for other_TH in gradients[1:]:
        assert isinstance(other_TH, Tensor)
        total_TH += other_TH
    if touched is not None:
        features_U = touched.features_U
        low, high = torch.searchsorted(
            features_U, sent(torch.tensor([start, stop]), features_U.device)
        ).tolist()
        total_TH.index_add_(0, features_U[low:high] - start, touched.rows(low, high))
    return total_TH


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
    squares_H = network.exchange.sum(
        network.exchange.each(lambda shard: _column_squares(weight.parts[shard].weight)), where
    )
    factor_H = shortening(squares_H.sqrt(), limit).float()
    if bool((factor_H < 1).any()):
        network.exchange.each(lambda shard: weight.parts[shard].weight.mul_(factor_H))
