"""One training step: forward, loss, backward, update."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from widenet.devices import sent
from widenet.kernels.bags import RowGradient, Touched
from widenet.kernels.cuda_products import cuda_products
from widenet.model.layers.output import WideOutput
from widenet.model.limits import shortening
from widenet.model.network import Activity, Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.preparation import Prepared
from widenet.model.sample import Choice
from widenet.model.weight import WHOLE, Part, TrunkWeight, WideWeight, update
from widenet.model.wide_loss import OutputStep, gradients_of_rows, output_step, sampled
from widenet.parallel.line import Pending
from widenet.plan.streaming import LIMITED_ROWS
from widenet.plan.tiles import blocks
from widenet.randomness import StepRandom
from widenet.training.all_weights import Launched, norm_of, norm_of_squares


class Update:
    """The gradients of a step that are still to be applied."""

    def __init__(
        self,
        network: Network,
        activity: Activity,
        gathered: Mapping[str, list[Tensor]],
        touched: Mapping[str, Mapping[int, Touched]],
        deferred: Mapping[str, OutputStep],
        samples: Mapping[str, tuple[OutputStep, Choice]],
    ) -> None:
        """Collect the gradients.

        Args:
            network: The network, after the backward pass.
            activity: What its forward pass has left.
            gathered: The sums gathered from each weight of sparse inputs.
            touched: The rows that the batch touches, by weight and shard.
            deferred: Steps of outputs whose weights were not updated during their passes.
            samples: Steps of outputs trained on a sample, each with the sample.
        """
        self.network = network
        self.rows: dict[str, dict[int, RowGradient]] = {}
        for weight, sums in gathered.items():
            gradients = [_gradient(sums_EH) for sums_EH in sums]
            gradient_NH = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
            self.rows[weight] = {shard: rows.by(gradient_NH) for shard, rows in touched[weight].items()}
        for name, (sample, choice) in samples.items():
            of_weight, of_bias = gradients_of_rows(sample, choice.units)
            if sample.output.weight.trained:
                self._add_rows(network.layout.links[name, ""].weight, of_weight)
            if _moves_bias(network.outputs[name].bias):
                self._add_rows(f"{name} bias", of_bias)
        split = {
            name: {shard: leaf.grad for shard, leaf in leaves.items() if leaf.grad is not None}
            for name, leaves in activity.split.items()
        }
        self.split = {name: gradients for name, gradients in split.items() if gradients}
        self.stepped: dict[str, list[OutputStep]] = {}
        for name, step in deferred.items():
            self.stepped.setdefault(network.layout.links[name, ""].weight, []).append(step)

    def within(self, limit: float, numbers: StepNumbers) -> StepNumbers:
        """Return the numbers of the step, scaled so that the whole gradient is no longer than a limit."""
        length = self._norm()
        return replace(numbers, gradient_scale=limit / length if length > limit else 1.0)

    def _norm(self) -> float:
        """Return the Euclidean length of the whole gradient."""
        exchange = self.network.exchange
        names = dict.fromkeys([*self.rows, *self.stepped, *self.split])
        terms = [exchange.each(self._squares(name)) for name in names]
        squares = exchange.start_sum(*terms, where="gradient norm").result()
        self._finish_descriptions()
        squares += [
            trunk.tensor.grad.double().square().sum() * self.network.share_of_gradient(name) ** 2
            for name, trunk in self.network.trunk.items()
            if trunk.tensor.grad is not None
        ]
        return math.sqrt(float(sum(squares)))

    def norms(self) -> dict[str, float | None]:
        """Return the norms of the gradients, by "gradients/" and the name of the weight; all must call this.

        They are those of the loss, without penalties, before `within` shortens them. The gradient of a weight
        that an output multiplies with is known only tile by tile and is left out, as are rows of the host's
        memory, which belong to no single shard.
        """
        exchange = self.network.exchange
        names = [name for name in dict.fromkeys([*self.rows, *self.split]) if name not in self.stepped]
        names = [name for name in names if WHOLE not in self.rows.get(name, {})]
        terms = [exchange.each(self._squares(name)) for name in names]
        squares = exchange.start_sum(*terms, where="norms").result() if terms else []
        norms = dict(zip(names, map(norm_of_squares, squares), strict=True))
        for name, trunk in self.network.trunk.items():
            if trunk.tensor.grad is not None:
                norms[name] = norm_of(trunk.tensor.grad * self.network.share_of_gradient(name))
        return {f"gradients/{name}": norm for name, norm in norms.items()}

    def apply(self, rule: Optimizer, numbers: StepNumbers) -> None:
        """Make one optimizer step of every weight that has a gradient here."""
        for name in dict.fromkeys([*self.rows, *self.stepped]):
            if not self._finish(name, rule, numbers):
                self.network.each(self.rows.get(name, {}), self._step(name, rule, numbers))
            self.network.wide[name].give_back()
        for name, gradients in self.split.items():
            self.network.exchange.each(self._split_step(self.network.wide[name], gradients, rule, numbers))
        self._finish_descriptions()
        by_share: dict[float, list[TrunkWeight]] = {}
        for name, trunk in self.network.trunk.items():
            by_share.setdefault(self.network.share_of_gradient(name), []).append(trunk)
        for share, weights in by_share.items():
            update(weights, rule, replace(numbers, gradient_scale=numbers.gradient_scale * share))
        self._limit_columns()

    def spread_descriptions(self) -> None:
        """Move the rows that contain vectors of attributes by the change of these."""
        for description in self.network.descriptions.values():
            description.spread(self.network.exchange)

    def _finish_descriptions(self) -> None:
        """Give the vectors of attributes their gradients, once those of all rows have been computed."""
        for name, description in self.network.descriptions.items():
            rows = {} if name in self.stepped else self.rows[name]
            share = self.network.share_of_gradient(name)
            description.finish(rows, self.network.exchange, f'weight "{name}"', share)

    def _add_rows(self, weight: str, rows: Mapping[int, RowGradient]) -> None:
        """Add gradients of some rows to those that other layers have for the same weight."""
        others = self.rows.get(weight)
        self.rows[weight] = (
            dict(rows) if others is None else {shard: others[shard].plus(rows[shard]) for shard in rows}
        )

    def _squares(self, name: str) -> Callable[[int], Tensor]:
        def of_shard(shard: int) -> Tensor:
            total = torch.zeros((), dtype=torch.float64, device=self.network.device)
            if name in self.split:
                gradient_RN = self.split[name][shard]
                for start, stop in blocks(len(gradient_RN), gradient_RN.shape[1], gradient_RN.device.type):
                    total += gradient_RN[start:stop].double().square().sum()
                return total
            share = self.network.share_of_gradient(name) ** 2
            for _, _, gradient, biases in self._tile_gradients(name, shard):
                total += self._square_sum(gradient) * share
                for bias in biases:
                    total += bias.double().square().sum()
            if name not in self.stepped:
                total += self._square_sum(self.rows[name][shard]) * share
            return total

        return of_shard

    def _square_sum(self, gradient: Tensor | RowGradient) -> Tensor:
        """Return the sum of squares of a gradient, float64 []; touched rows are summed a block at a time."""
        if isinstance(gradient, Tensor):
            return gradient.double().square().sum()
        total = torch.zeros((), dtype=torch.float64, device=self.network.device)
        for start, stop in blocks(len(gradient), gradient.gradient_EH.shape[1], self.network.device.type):
            total += gradient.rows(start, stop).double().square().sum()
        return total

    def _finish(self, name: str, rule: Optimizer, numbers: StepNumbers) -> bool:
        """Let the native library make the steps of a weight of one output; return whether it has."""
        users = self.stepped.get(name, [])
        if len(users) != 1 or name in self.network.descriptions:
            return False
        return users[0].finish(rule, self._scaled(name, numbers), numbers, self.rows.get(name, {}))

    def _scaled(self, name: str, numbers: StepNumbers) -> StepNumbers:
        """Return the numbers of the step of a weight, of whose gradient this process has a share."""
        scale = numbers.gradient_scale * self.network.share_of_gradient(name)
        return replace(numbers, gradient_scale=scale)

    def _step(self, name: str, rule: Optimizer, numbers: StepNumbers) -> Callable[[int], None]:
        weight, scaled = self.network.wide[name], self._scaled(name, numbers)

        def of_shard(shard: int) -> None:
            if name not in self.stepped:
                weight.update_rows(shard, self.rows[name][shard], rule, scaled)
            for start, stop, gradient, biases in self._tile_gradients(name, shard, updates=True):
                weight.update_tile(shard, start, stop, gradient, rule, scaled)
                for wide, bias in zip(self._biases(name), biases, strict=True):
                    wide.update_tile(shard, start, stop, bias, rule, numbers)

        return of_shard

    def _split_step(
        self, weight: WideWeight, gradients: Mapping[int, Tensor], rule: Optimizer, numbers: StepNumbers
    ) -> Callable[[int], None]:
        def of_shard(shard: int) -> None:
            gradient_RN = gradients[shard]
            for start, stop in blocks(len(gradient_RN), gradient_RN.shape[1], gradient_RN.device.type):
                weight.update_tile(shard, start, stop, gradient_RN[start:stop], rule, numbers)

        return of_shard

    def _biases(self, name: str) -> list[WideWeight]:
        """Return the biases of the outputs that use a weight; some outputs have none, or a frozen one."""
        biases = [user.output.bias for user in self.stepped.get(name, [])]
        return [bias for bias in biases if bias is not None and bias.trained]

    def _tile_gradients(
        self, name: str, shard: int, updates: bool = False
    ) -> Iterator[tuple[int, int, Tensor | RowGradient, list[Tensor]]]:
        """Yield start, stop, gradient and bias gradients of every tile of a weight that outputs use.

        Args:
            name: The weight.
            shard: The shard.
            updates: Whether each tile is updated before the next one. Then several may come together, if no
                sum depends on it.
        """
        users = self.stepped.get(name, [])
        if not users:
            return
        touched = self.rows[name][shard] if name in self.rows else None
        is_summed = not updates or name in self.network.descriptions
        rows = 0 if is_summed else min(user.rows_at_once for user in users)
        for start, stop in users[0].spans(shard, rows, updates):
            parts = [(user, *user.gradient(shard, start, stop)) for user in users]
            gradient = _summed([gradient for _, gradient, _ in parts], touched, start, stop)
            if name in self.network.descriptions:
                assert isinstance(gradient, Tensor)
                self.network.descriptions[name].add(shard, start, stop, gradient)
            biases = [bias for user, _, bias in parts if _moves_bias(user.output.bias)]
            yield start, stop, gradient, biases

    def _limit_columns(self) -> None:
        """Shorten the weights from sparse inputs to hidden units that exceed the layer's "weight_norm"."""
        for name, weight in self.network.layout.weights.items():
            if weight.norm_limit is not None and weight.rows_are_features:
                wide = self.network.wide[name]
                _limit_columns(self.network, wide, weight.norm_limit, f'layer "{weight.layer}"')


def _moves_bias(bias: WideWeight | None) -> bool:
    return bias is not None and bias.trained


def _summed(
    gradients: list[Tensor | RowGradient], touched: RowGradient | None, start: int, stop: int
) -> Tensor | RowGradient:
    """Return the gradient of the rows [start, stop) of a shard, summed over all uses of the weight."""
    total_TH = gradients[0]
    if isinstance(total_TH, RowGradient):  # a weight by columns has one use
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


def _column_squares(part: Part, device: torch.device) -> Tensor:
    """Return the sum of squares of every column, float64 [H], computed a block of rows at a time."""
    total_H = torch.zeros(part.weight.shape[1], dtype=torch.float64, device=device)
    for block_RH in part.blocks(LIMITED_ROWS):
        total_H += block_RH.double().square().sum(dim=0)
    return total_H


def _limit_columns(network: Network, weight: WideWeight, limit: float, where: str) -> None:
    squares_H = network.exchange.sum(
        network.exchange.each(lambda shard: _column_squares(weight.parts[shard], network.device)), where
    )
    factor_H = shortening(squares_H.sqrt(), limit).float()
    if bool((factor_H < 1).any()):
        network.exchange.each(lambda shard: _multiply(weight.parts[shard], factor_H))


def _multiply(part: Part, factor_H: Tensor) -> None:
    """Multiply every column by a number of its own, in place."""
    for block_RH in part.blocks(LIMITED_ROWS, updates=True):
        block_RH.mul_(factor_H)


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
    deferred: dict[str, OutputStep] = {}
    samples: dict[str, tuple[OutputStep, Choice]] = {}
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
                pending.append(sample.start(None))
                continue
            own = output_step(output, direct_EH, targets, share_E, _max_vectors(network, name, vectors))
            at_once = step.updates_at_once(output) and own.moves(rule, numbers)
            pending.append(own.start((rule, numbers) if at_once else None))
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
