"""One training step: forward, loss, backward, update; and what all weights need between two steps."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TypeGuard

import numpy as np
import torch
from torch import Tensor

from widenet.devices import sent
from widenet.errors import NumericsError
from widenet.kernels.bags import RowGradient, Touched
from widenet.kernels.cuda_products import cuda_products
from widenet.kernels.native import library_runs, triton_runs
from widenet.kernels.steps import KINDS
from widenet.model.layers.output import WideOutput
from widenet.model.network import Activity, Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.preparation import Prepared
from widenet.model.targets import Choice, Targets
from widenet.model.triton_step import TritonStep
from widenet.model.weight import WHOLE, Part, WideWeight, shortening, update_trunk
from widenet.model.wide_loss import NativeStep, OutputStep, SoftmaxStep, gradients_of_rows
from widenet.parallel.group import check_agreement, num_processes
from widenet.plan.tiles import GRADIENT_NUMBERS, LIMITED_ROWS, are_kept, blocks, tile_units
from widenet.training.checkpoint import digest_of, replicas_of

Observe = Callable[[Mapping[str, Tensor], "Gradients"], None]
"""Called with the values of the inputs and hidden layers and the losses, by layer, and with the gradients
before they are applied.
"""


def train_step(
    network: Network,
    rule: Optimizer,
    prepared: Prepared,
    numbers: StepNumbers,
    observe: Observe | None = None,
) -> float:
    """Train a network on a batch; return the batch's loss before the step.

    The loss includes "sparseness", but not l1 and l2.

    Args:
        network: The network.
        rule: Its optimizer.
        prepared: The batch, from `Network.prepare`.
        numbers: The step's number, and the learning rates.
        observe: See `Observe`.

    Raises:
        NumericsError: The loss is not finite; the message names the layer that overflowed first.
    """
    is_tf32 = network.layout.training.precision == "tf32"
    with cuda_products(is_tf32) if network.device.type == "cuda" else nullcontext():
        total, layers = _launched(network, rule, prepared, numbers, observe)
    loss = float(total)  # only here the host waits for the device: nothing is left to launch
    if not math.isfinite(loss):
        broken = (name for name, values in layers.items() if not bool(torch.isfinite(values).all()))
        where = next((f'layer "{name}"' for name in broken), "a penalty on sparseness")
        reason = f"the loss must be a finite number, first in {where}"
        raise NumericsError(reason, place=network.exchange.place, value=loss)
    return loss


def _launched(
    network: Network,
    rule: Optimizer,
    prepared: Prepared,
    numbers: StepNumbers,
    observe: Observe | None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Train a network on a batch; the device may still be working on the step when this returns.

    Returns:
        The loss float64 [], and the values of the inputs, the hidden layers and the losses, in the order in
        which they were computed.
    """
    limit, touched = network.layout.training.gradient_norm_limit, prepared.touched
    with torch.no_grad():
        network.bring_rows(touched, updates=True)
        for name in touched if rule.idle_weights_move else ():
            _catch_up(network, name, touched[name], rule, numbers)
    with torch.enable_grad():
        activity = network.forward(prepared)
        vectors = {name: network.direct(output, activity) for name, output in network.outputs.items()}
    waiting: dict[str, OutputStep] = {}
    pending: list[Callable[[], list[Tensor]]] = []
    with torch.no_grad():
        for name in vectors:
            own = _output_step(network, name, activity, vectors, rule, numbers)
            moves = limit is None and own.output.updates_at_once
            pending.append(own.start((rule, numbers) if moves else None))
            if not moves:
                waiting[name] = own
    losses, gradients_EH = zip(*(result() for result in pending), strict=True)
    totals = [*(penalty.detach().double() for penalty in activity.penalties), *losses]
    layers = {name: values_EH.detach() for name, values_EH in activity.values.items()}
    layers |= dict(zip(vectors, losses, strict=True))
    _backward([*vectors.values(), *activity.penalties], gradients_EH)
    with torch.no_grad():
        gradients = Gradients(network, activity, waiting)
        if observe is not None:
            observe(layers, gradients)
        gradients.apply(rule, numbers if limit is None else gradients.within(limit, numbers))
        network.follow(activity)
    return sum(totals[1:], totals[0]), layers


def _catch_up(
    network: Network, name: str, rows: Mapping[int, Touched], rule: Optimizer, numbers: StepNumbers
) -> None:
    """Bring the rows that a batch reads up to date, as the optimizer moves rows without a gradient."""
    weight = network.wide[name]
    network.each(rows, lambda shard: weight.catch_up(shard, rows[shard].features_U, rule, numbers))


def _output_step(
    network: Network,
    name: str,
    activity: Activity,
    vectors: Mapping[str, Tensor],
    rule: Optimizer,
    numbers: StepNumbers,
) -> OutputStep:
    """Return the step of an output before its first pass."""
    prepared, output = activity.prepared, network.output_for(name, activity)
    direct_EH, targets, weight_E = vectors[name].detach(), prepared.targets[name], prepared.weights_E
    share = output.spec.loss_weight / max(len(direct_EH), 1)
    if weight_E is None:
        weight_E = torch.full((len(direct_EH),), share, device=direct_EH.device)
    else:
        if output.spec.predict == "next":
            positions = prepared.positions[network.layout.along[name]]
            weight_E = weight_E[positions.examples_N[positions.asking_M]]
        weight_E = weight_E * share
    if isinstance(targets, Choice):
        return sampled_step(output, direct_EH, targets, weight_E, rule, numbers)
    # Outputs that share a weight have equal tiles, and one along a sequence more vectors than examples.
    weights = {other: network.layout.links[other, ""].weight for other in vectors}
    most = max(len(vectors[other]) for other, weight in weights.items() if weight == weights[name])
    return new_step(output, direct_EH, targets, weight_E, rule, most)


def _backward(ends: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
    """Compute the gradients of the trunk's weights and of the gathered sums.

    Args:
        ends: The vectors that enter the outputs, then the penalties.
        gradients: The gradients to the vectors.
    """
    ones = [torch.ones_like(penalty) for penalty in ends[len(gradients) :]]
    live = [each for each in zip(ends, [*gradients, *ones], strict=True) if each[0].requires_grad]
    if live:
        torch.autograd.backward([end for end, _ in live], [gradient for _, gradient in live])


class Gradients:
    """The gradients of a step that are still to be applied.

    Attributes:
        network: The network.
        rows: Gradients of some rows, by weight and shard.
        split: Gradients of the weights of split layers, by weight and shard.
        waiting: Steps of outputs that have not moved their weight, by weight.
    """

    def __init__(self, network: Network, activity: Activity, waiting: Mapping[str, OutputStep]) -> None:
        """Collect the gradients.

        Args:
            network: The network, after the backward pass.
            activity: The forward pass.
            waiting: Steps of outputs whose weights were not updated during their passes.
        """
        self.network, touched = network, activity.prepared.touched
        self.rows: dict[str, dict[int, RowGradient]] = {}
        self.waiting: dict[str, list[OutputStep]] = {}
        for weight, keys in network.uses.items():
            if network.wide[weight].trained:
                gradients = [grad for key in keys if (grad := activity.gathered[key].grad) is not None]
                assert len(gradients) == len(keys)
                gradient_NH = gradients[0] if len(gradients) == 1 else torch.cat(gradients)
                self.rows[weight] = {shard: rows.by(gradient_NH) for shard, rows in touched[weight].items()}
        for name, own in waiting.items():
            targets, weight = activity.prepared.targets[name], network.layout.links[name, ""].weight
            if isinstance(targets, Choice):
                of_weight, of_bias = gradients_of_rows(own, targets.units)
                self._add_rows(weight, own.output.weight, of_weight)
                self._add_rows(f"{name} bias", network.outputs[name].bias, of_bias)
            else:
                self.waiting.setdefault(weight, []).append(own)
        split = {
            name: {shard: leaf.grad for shard, leaf in leaves.items() if leaf.grad is not None}
            for name, leaves in activity.split.items()
        }
        self.split = {name: gradients for name, gradients in split.items() if gradients}

    def _add_rows(self, name: str, weight: WideWeight | None, rows: dict[int, RowGradient]) -> None:
        """Add gradients of some rows to those that other layers have for the same trained weight."""
        if weight is not None and weight.trained:
            others = self.rows.get(name)
            plus = rows if others is None else {shard: others[shard].plus(rows[shard]) for shard in rows}
            self.rows[name] = plus

    def within(self, limit: float, numbers: StepNumbers) -> StepNumbers:
        """Return the numbers of the step, scaled so that the whole gradient is no longer than a limit."""
        squares = [*self._squares(self._names(), "gradient norm").values()]
        self._finish_descriptions()
        squares += [
            trunk.tensor.grad.double().square().sum() * self.network.share_of_gradient(name) ** 2
            for name, trunk in self.network.trunk.items()
            if trunk.tensor.grad is not None
        ]
        length = math.sqrt(float(sum(squares)))
        return replace(numbers, gradient_scale=limit / length if length > limit else 1.0)

    def norms(self) -> dict[str, float | None]:
        """Return the norms of the gradients, by "gradients/" and the name of the weight; all must call this.

        They are those of the loss, without penalties, before `within` shortens them. The gradient of a weight
        that an output multiplies with is known only tile by tile and is left out, as are rows of the host's
        memory, which belong to no single shard.
        """
        names = [name for name in self._names() if name not in self.waiting]
        squares = self._squares([name for name in names if WHOLE not in self.rows.get(name, {})], "norms")
        norms = {name: norm_of_squares(square) for name, square in squares.items()}
        for name, trunk in self.network.trunk.items():
            if trunk.tensor.grad is not None:
                norms[name] = norm_of(trunk.tensor.grad * self.network.share_of_gradient(name))
        return {f"gradients/{name}": norm for name, norm in norms.items()}

    def apply(self, rule: Optimizer, numbers: StepNumbers) -> None:
        """Make one optimizer step of every weight that has a gradient here."""
        for name in self._names():
            scaled, rows = self._scaled(name, numbers), self.rows.get(name, {})
            users = self.waiting.get(name, [])
            is_alone = len(users) == 1 and name not in self.network.descriptions
            if is_alone and isinstance(users[0], NativeStep):
                users[0].finish(rule, scaled, numbers, rows)
            else:
                self.network.each(rows, self._step(name, rule, scaled, numbers))
            self.network.wide[name].give_back()
        self._finish_descriptions()
        trunk = self.network.trunk.items()
        update_trunk([(weight, self._scaled(name, numbers)) for name, weight in trunk], rule)
        for name, own in self.network.layout.weights.items():
            if own.norm_limit is not None and own.rows_are_features:
                _limit_columns(self.network, name, own.norm_limit, f'layer "{own.layer}"')
        for description in self.network.descriptions.values():
            description.spread(self.network.exchange)

    def _names(self) -> list[str]:
        """Return the names of the wide weights that have a gradient here."""
        return [*dict.fromkeys([*self.rows, *self.waiting, *self.split])]

    def _finish_descriptions(self) -> None:
        """Give the vectors of attributes their gradients, once those of all rows have been computed."""
        for name, description in self.network.descriptions.items():
            rows = {} if name in self.waiting else self.rows[name]
            share = self.network.share_of_gradient(name)
            description.finish(rows, self.network.exchange, f'weight "{name}"', share)

    def _squares(self, names: Sequence[str], where: str) -> dict[str, Tensor]:
        """Return the sum of squares of the gradient of each weight, exact over all shards, float64 []."""

        def of_shard(name: str, shard: int) -> Tensor:
            share = self.network.share_of_gradient(name) ** 2
            total = torch.zeros((), dtype=torch.float64, device=self.network.device)
            for _, _, gradient, biases in self._tiles(name, shard):
                total += _square_sum(gradient) * share
                for bias in biases:
                    total += _square_sum(bias)
            return total

        return _sums(self.network, names, of_shard, where)

    def _scaled(self, name: str, numbers: StepNumbers) -> StepNumbers:
        """Return the numbers of the step of a weight, of whose gradient its users may have a share."""
        share = self.network.share_of_gradient(name)
        return numbers if share == 1 else replace(numbers, gradient_scale=numbers.gradient_scale * share)

    def _step(
        self, name: str, rule: Optimizer, of_weight: StepNumbers, of_biases: StepNumbers
    ) -> Callable[[int], None]:
        weight, users = self.network.wide[name], self.waiting.get(name, [])
        biases = [user.output.bias for user in users if _moves(user.output.bias)]

        def of_shard(shard: int) -> None:
            for start, stop, gradient, bias_gradients in self._tiles(name, shard, updates=True):
                weight.update_tile(shard, start, stop, gradient, rule, of_weight)
                for bias, bias_T in zip(biases, bias_gradients, strict=True):
                    bias.update_tile(shard, start, stop, bias_T, rule, of_biases)

        return of_shard

    def _tiles(
        self, name: str, shard: int, updates: bool = False
    ) -> Iterator[tuple[int, int, Tensor | RowGradient, list[Tensor]]]:
        """Yield start, stop, gradient and bias gradients of every tile of a weight; touched rows at once.

        Args:
            name: The weight.
            shard: The shard, or `WHOLE`.
            updates: Whether each tile is updated before the next one. Then several may come together, if no
                sum depends on it.
        """
        if name in self.split:
            gradient_RN = self.split[name][shard]
            for start, stop in blocks(len(gradient_RN), gradient_RN.shape[1], gradient_RN.device.type):
                yield start, stop, gradient_RN[start:stop], []
            return
        touched = self.rows[name][shard] if name in self.rows else None
        if name not in self.waiting:
            assert touched is not None
            yield 0, 0, touched, []
            return
        users, is_described = self.waiting[name], name in self.network.descriptions
        most = min(user.rows_at_once for user in users) if updates and not is_described else 0
        for start, stop in users[0].spans(shard, most, updates):
            parts = [(user, *user.gradient(shard, start, stop)) for user in users]
            gradient = _summed([gradient for _, gradient, _ in parts], touched, start, stop)
            if is_described:
                assert isinstance(gradient, Tensor)
                self.network.descriptions[name].add(shard, start, stop, gradient)
            yield (
                start,
                stop,
                gradient,
                [bias_T for user, _, bias_T in parts if _moves(user.output.bias)],
            )


def _moves(bias: WideWeight | None) -> TypeGuard[WideWeight]:
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


def _square_sum(gradient: Tensor | RowGradient) -> Tensor:
    """Return the sum of squares of a gradient, float64 []; touched rows are summed a block at a time."""
    if isinstance(gradient, Tensor):
        return gradient.double().square().sum()
    device = gradient.features_U.device
    total = torch.zeros((), dtype=torch.float64, device=device)
    for start, stop in blocks(len(gradient), gradient.gradient_EH.shape[1], device.type):
        total += gradient.rows(start, stop).double().square().sum()
    return total


def _limit_columns(network: Network, name: str, limit: float, where: str) -> None:
    """Shorten the weights from a sparse input to a hidden unit that exceed the layer's "weight_norm"."""
    parts = network.wide[name].parts

    def squares(shard: int) -> Tensor:
        total_H = torch.zeros(network.wide[name].columns, dtype=torch.float64, device=network.device)
        for block_RH in parts[shard].blocks(LIMITED_ROWS):
            total_H += block_RH.double().square().sum(dim=0)
        return total_H

    def shorten(shard: int) -> None:
        for block_RH in parts[shard].blocks(LIMITED_ROWS, updates=True):
            block_RH.mul_(factor_H)

    squares_H = network.exchange.sum(network.exchange.each(squares), where)
    factor_H = shortening(squares_H.sqrt(), limit).float()
    if bool((factor_H < 1).any()):
        network.exchange.each(shorten)


def settle(network: Network, rule: Optimizer, rates: np.ndarray, num_steps: int) -> None:
    """Bring all weights up to date, before anybody reads them all.

    Rows take the steps that they have skipped since a batch last touched them. Items that no step knows get
    their biases.

    Args:
        network: The network.
        rule: Its optimizer.
        rates: Learning rates of all steps, float64 [steps + 1].
        num_steps: Number of finished steps.
    """
    for weight in network.wide.values():
        weight.catch_up_all(rule, StepNumbers(num_steps + 1, rates))
    for output in network.outputs.values():
        output.set_unknown_biases()


def check_weights(network: Network, progress: str) -> None:
    """Raise if a weight is not finite, or if the processes hold different copies; all must call this.

    Args:
        network: The network, between two steps.
        progress: Further facts that must be equal, such as the sum of losses.

    Raises:
        NumericsError: A weight is infinite or undefined.
        DisagreementError: The processes computed different numbers.
    """
    in_processes, place = network.exchange.collect(_broken(network), "weights"), network.exchange.place
    for name in (*network.trunk, *network.wide):
        rule = f'the weights of "{name}" must be finite numbers'
        NumericsError.require(name not in in_processes, rule, place=place)
    if num_processes() == 1:
        return
    copies = replicas_of(network)
    digests = {name: digest_of(tensor) for name, tensor in copies.items()}
    check_agreement(network.exchange, {**digests, "progress": progress}, place)


def _broken(network: Network) -> str | None:
    """Return the first weight with an infinity or NaN in this process; None if all are finite."""
    trunk = {name: [weight.tensor] for name, weight in network.trunk.items()}
    wide = {
        name: (block for part in weight.parts.values() for block in part.blocks())
        for name, weight in network.wide.items()
    }
    tensors: dict[str, Iterable[Tensor]] = {**trunk, **wide}
    for name, parts in tensors.items():
        if not all(bool(torch.isfinite(part).all()) for part in parts):
            return name
    return None


def regularization(network: Network, l1: float, l2: float) -> float:
    """Return the penalties on all trained weights: l2 w^2 / 2 + l1 |w|; biases have none.

    A weight that several layers share counts once.
    """

    def penalty(numbers: Tensor) -> Tensor:
        return l2 / 2 * numbers.square().sum() + l1 * numbers.abs().sum()

    wide = [name for name, weight in network.wide.items() if weight.trained and not weight.is_bias]
    trunk = [weight.tensor.detach() for weight in network.trunk.values() if weight.trained]
    penalties = [*_sums_of(network, wide, penalty, "regularization").values()]
    penalties += [penalty(tensor.double()) for tensor in trunk if tensor.dim() > 1]
    return sum(map(float, penalties))


def norms_of_weights(network: Network) -> dict[str, float | None]:
    """Return the norms of all trained weights, by "weights/" and their names; all must call this."""
    wide = [name for name, weight in network.wide.items() if weight.trained]
    squares = _sums_of(network, wide, lambda numbers: numbers.square().sum(), "norms")
    norms = {name: norm_of_squares(square) for name, square in squares.items()}
    norms |= {
        name: norm_of(weight.tensor.detach()) for name, weight in network.trunk.items() if weight.trained
    }
    return {f"weights/{name}": norm for name, norm in norms.items()}


def _sums_of(
    network: Network, names: Sequence[str], of_numbers: Callable[[Tensor], Tensor], where: str
) -> dict[str, Tensor]:
    """Return sums of a function over wide weights, by name; it gets some numbers at a time, in float64."""

    def of_shard(name: str, shard: int) -> Tensor:
        total = torch.zeros((), dtype=torch.float64, device=network.device)
        for block in network.wide[name].parts[shard].blocks():
            for start, stop in blocks(len(block), block.shape[1], block.device.type):
                total += of_numbers(block[start:stop].double())
        return total

    return _sums(network, names, of_shard, where)


def _sums(
    network: Network, names: Sequence[str], of_shard: Callable[[str, int], Tensor], where: str
) -> dict[str, Tensor]:
    """Return sums over shards by the names of wide weights, exact, float64 []; all must call this."""
    terms = [network.exchange.each(partial(of_shard, name)) for name in names]
    totals = network.exchange.start_sum(*terms, where=where)() if terms else []
    return dict(zip(names, totals, strict=True))


def norm_of(tensor: Tensor) -> float | None:
    """Return the square root of the sum of squares, in the order of a contiguous tensor; None: not finite."""
    return norm_of_squares(tensor.contiguous().double().square().sum())


def norm_of_squares(squares: Tensor) -> float | None:
    """Return the square root of a sum of squares; None if it is not finite."""
    norm = math.sqrt(float(squares))
    return norm if math.isfinite(norm) else None


def new_step(
    output: WideOutput,
    direct_EH: Tensor,
    targets: Targets,
    weight_E: Tensor,
    rule: Optimizer,
    tiled_for: int = 0,
    stands: dict[int, Tensor] | None = None,
) -> OutputStep:
    """Return a step before its first pass: the library's if it knows it and the optimizer.

    Args:
        output: The output, for the batch.
        direct_EH: The incoming vectors, float32.
        targets: Targets of the E examples.
        weight_E: See `OutputStep`.
        rule: The optimizer of the units.
        tiled_for: Smallest number of examples for which to cut tiles; outputs that share a weight need equal
            tiles.
        stands: See `OutputStep`.
    """
    shards, num, device = output.known, len(direct_EH), direct_EH.device
    sizes = {
        shard: shards.size(shard) if stands is None else len(stands[shard]) for shard in output.weight.parts
    }
    spec, is_plain = output.spec, stands is None and output.features is None and not output.spec.weightless
    is_plain &= spec.others == "use" and spec.delta_boost is None and spec.delta_norm is None
    is_known = output.is_closed or (spec.activation.kind, spec.loss.kind) == ("sigmoid", "cross_entropy")
    has_library = library_runs(device) and rule.spec.kind in KINDS
    has_rows = output.features is None and not spec.weightless
    is_softmax = output.is_closed and has_rows and spec.delta_norm is None and not targets.are_dense
    has_triton = output.weight.whole is not None and targets.joined is not None and triton_runs(device)
    kind = SoftmaxStep if is_softmax else OutputStep
    if is_plain and is_known and (has_library or has_triton):
        kind = NativeStep if has_library else TritonStep
    return kind(
        output=output,
        direct_EH=output.operand(direct_EH),
        targets=targets,
        weight_E=weight_E,
        sizes=sizes,
        # A weight by columns is updated a whole column of a shard at a time.
        tile_units=tile_units(max(num, tiled_for), device.type) if output.features is None else output.width,
        keeps=are_kept(num, sum(sizes.values()), device.type, output.half, output.kept_bytes),
        stands=stands,
        rows_at_once=GRADIENT_NUMBERS // max(direct_EH.shape[1], 1) if kind is NativeStep else 0,
    )


def sampled_step(
    output: WideOutput,
    direct_EH: Tensor,
    choice: Choice,
    weight_E: Tensor,
    rule: Optimizer,
    step: StepNumbers,
) -> OutputStep:
    """Return the step of an output over the chosen units, on copies of their rows, which catch up first.

    An example's own targets count once. Every other unit counts as often as the number of units it
    represents: its value in sums over units, its exponential in a softmax. See Bengio and Senecal, "Adaptive
    importance sampling to accelerate training of a neural probabilistic language model", IEEE Transactions on
    Neural Networks 19(4), 2008.
    """

    def copied(weight: WideWeight) -> WideWeight:
        def of_shard(shard: int) -> tuple[int, Part]:
            if rule.idle_weights_move:
                weight.catch_up(shard, choice.units[shard], rule, step)
            return shard, Part(weight.select(shard, choice.units[shard]))

        return WideWeight(weight.shards, dict(output.exchange.each(of_shard)), trained=weight.trained)

    bias = None if output.bias is None else copied(output.bias)
    narrow = replace(output, weight=copied(output.weight), bias=bias, updates_at_once=False)
    return new_step(narrow, direct_EH, choice.targets, weight_E, rule, stands=choice.stands)
