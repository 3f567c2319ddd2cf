"""A network in plain dense float64 torch, written from the formulas of the documents, and the real one's
step held against it.
"""

import math
from types import SimpleNamespace

import torch

from tests.model.definitions import activation, example_losses
from tests.model.spatial_twin import FOLLOWING, PER_CHANNEL, convolved, normalized, pooled
from tests.rows import all_rows
from widenet.model.build import build
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.randomness import StepRandom
from widenet.sparse import SparseBatch
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.schedules import rates
from widenet.training.step import settle, train_step

CPU = torch.device("cpu")


def on_the_way_back(z, change):
    """The same numbers, whose gradient is changed before it goes on."""
    same = z * 1
    if same.requires_grad:
        same.register_hook(change)
    return same


def limited(z, limit):
    """Sums of which each example's gradient, taken E times for it is that of a mean, is at most so long."""
    if limit is None:
        return z
    return on_the_way_back(
        z, lambda g: g * (limit / (len(g) * g.norm(dim=1, keepdim=True)).clamp_min(1e-300)).clamp_max(1.0)
    )


def boosted(z, positive, boost):
    """Logits whose gradient is multiplied, where they are targets by one number and elsewhere by another."""
    return (
        z
        if boost is None
        else on_the_way_back(z, lambda g: g * torch.where(positive, boost.target, boost.other))
    )


def dense(entries, num_examples, width):
    """Values and presence [E, width] of (example, unit, value) entries."""
    values, listed = (
        torch.zeros(num_examples, width, dtype=torch.float64),
        torch.zeros(num_examples, width, dtype=torch.bool),
    )
    for example, unit, value in entries:
        values[example, unit] += value
        listed[example, unit] = True
    return values, listed


def entries_of(batch, values="use"):
    """The (example, unit, value) entries of a sparse batch, in storage order."""
    numbers = (
        [1.0] * len(batch.indices) if batch.values is None or values == "ignore" else batch.values.tolist()
    )
    indptr, units = batch.indptr.tolist(), batch.indices.tolist()
    return [
        (e, units[p], numbers[p]) for e in range(len(indptr) - 1) for p in range(indptr[e], indptr[e + 1])
    ]


class Twin:
    """The dense network of a document; weights are [in, out] by (layer, source), of outputs by (layer, ""),
    biases by (layer, "bias").

    stands: by output, for how many units each of a sample stands, 0 for others.
    """

    def __init__(self, spec, widths, counts=None, stands=None):
        self.spec, self.widths, self.counts, self.stands = spec, widths, counts or {}, stands or {}
        self.statistics = {}

    def loss(self, weights, batch, weights_E, random):
        """The loss of a batch, penalties of sparseness included."""
        values, hidden_entries, penalty = {}, {}, 0.0
        for layer in self.spec.inputs:
            values[layer.name], hidden_entries[layer.field] = self._input(layer, batch[layer.field], random)
        shapes = {layer.name: layer.shape or (values[layer.name].shape[1],) for layer in self.spec.inputs}
        for layer in self.spec.hidden:
            sources = self.spec.sources(layer)
            if layer.kind == "pooling":
                found, shape = pooled(
                    layer, [values[source] for source in sources], [shapes[source] for source in sources]
                )
                shapes[layer.name], values[layer.name] = (
                    shape,
                    sum((values[name] for name in layer.skip or ()), found),
                )
                continue
            z = self._sums(layer, weights, values, shapes)
            a = activation(layer.activation, limited(z, getattr(layer, "delta_norm", None)))
            if getattr(layer, "sparseness", None) is not None:
                p, mean = layer.sparseness.target, a.mean(dim=0)
                penalty += (
                    layer.sparseness.weight
                    * (p * torch.log(p / mean) + (1 - p) * torch.log((1 - p) / (1 - mean))).sum()
                )
            values[layer.name] = self._dropped(layer, a, random)
        total = penalty
        for layer in self.spec.outputs:
            found = self._output_losses(
                layer, weights, values, batch[layer.field], hidden_entries.get(layer.field)
            )
            counted = found if weights_E is None else found * weights_E.double()
            total = total + layer.loss_weight * counted.sum() / len(found)
        return total

    def _sharers(self, key):
        """How many connections use a weight."""
        shares = [
            (share.layer, share.layer_source)
            for layer in self.spec.layers
            for share in getattr(layer, "weights", None) or ()
        ]
        owners = [(name, source or self.spec.sources(self.spec.layer(name))[0]) for name, source in shares]
        return 1 + sum(key in (owner, (owner[0], "")) for owner in owners)

    def _sums(self, layer, weights, values, shapes):
        """What the activation of a hidden layer takes, [E, units]."""
        sources = [
            (values[source], self._weight(weights, layer, source), shapes[source])
            for source in self.spec.sources(layer)
        ]
        if layer.kind == "convolution":
            found = [convolved(layer, x, shape, weight) for x, weight, shape in sources]
            shapes[layer.name] = found[0][1]
            z = sum(sums for sums, _ in found)
        else:
            z, shapes[layer.name] = sum(x @ weight for x, weight, _ in sources), (layer.units,)
        if layer.bias:
            z = z + weights[layer.name, "bias"].repeat_interleave(math.prod(shapes[layer.name][1:]))
        z = sum((values[name] for name in layer.skip or ()), z)
        if layer.batch_normalization is not None:
            scale, shift = (weights[layer.name, f"normalization {part}"] for part in ("scale", "shift"))
            z, self.statistics[layer.name] = normalized(
                layer.batch_normalization, z, shapes[layer.name][0], scale, shift
            )
        return z

    def _input(self, layer, field, random):
        if isinstance(field, torch.Tensor):
            x = self._dropped(layer, field.double(), random)
            count, hidden = torch.full((len(x), 1), float(x.shape[1])), None
        else:
            stored = entries_of(field)
            kept = (
                random.kept(f"denoise/{layer.name}", (len(stored),), layer.denoise).tolist()
                if layer.denoise
                else [True] * len(stored)
            )
            hidden = [entry for entry, stays in zip(stored, kept, strict=True) if not stays]
            stays = [
                entry for entry, stays in zip(entries_of(field, layer.values), kept, strict=True) if stays
            ]
            x, listed = dense(stays, len(field.indptr) - 1, self.widths[layer.name])
            count = listed.sum(dim=1, keepdim=True).clamp_min(1)
            if layer.denoise_rescale:
                x = x / (1 - layer.denoise)
            if layer.popularity_damping:
                seen = torch.from_numpy(self.counts[layer.field]).double()
                factor = (seen / seen[seen > 0].mean()) ** -layer.popularity_damping
                x = x * torch.where(seen > 0, factor, 1.0)
        divisor = {
            "none": 1.0,
            "mean": count,
            "rsqrt": count**0.5,
            "unit": x.square().sum(dim=1, keepdim=True).sqrt().clamp_min(1e-300),
        }
        return x / divisor[layer.scale], hidden

    def _dropped(self, layer, x, random):
        if not layer.dropout:
            return x
        return (
            x
            * torch.from_numpy(random.kept(f"dropout/{layer.name}", tuple(x.shape), layer.dropout))
            / (1 - layer.dropout)
        )

    def _weight(self, weights, layer, source):
        shares = getattr(layer, "weights", None) or ()
        share = next((share for share in shares if share.source in (None, source)), None)
        own = "" if layer.kind == "output" else source
        if share is None:
            return weights[layer.name, own]
        owner = self.spec.layer(share.layer)
        of = "" if owner.kind == "output" else share.layer_source or self.spec.sources(owner)[0]
        return weights[owner.name, of].T if share.transposed else weights[owner.name, of]

    def _output_losses(self, layer, weights, values, field, hidden_entries):
        sources = self.spec.sources(layer)
        direct = torch.cat([values[source] for source in sources], dim=1)
        weight = None if layer.weightless else self._weight(weights, layer, sources[0])
        if layer.cosine is not None:
            direct = direct / direct.norm(dim=1, keepdim=True) / layer.cosine.temperature
            weight = weight / weight.norm(dim=0, keepdim=True)
        z = direct if layer.weightless else direct @ weight
        z = z + weights[layer.name, "bias"] if layer.bias else z
        if isinstance(field, torch.Tensor):
            t = torch.nn.functional.pad(field.double(), (0, z.shape[1] - field.shape[1]))
            z = boosted(limited(z, layer.delta_norm), t > 0, layer.delta_boost)
            return example_losses(
                layer, activation(layer.activation, z), t, torch.ones_like(t, dtype=torch.bool)
            )
        entries = hidden_entries if layer.predict == "hidden" else entries_of(field)
        if layer.values == "ignore":
            entries = [(example, unit, 1.0) for example, unit, _ in entries]
        t, listed = dense(entries, len(z), z.shape[1])
        stands = self.stands.get(layer.name, torch.ones(z.shape[1], dtype=torch.float64))
        if layer.others == "ignore":
            stands = torch.zeros_like(stands)
        z = boosted(limited(z, layer.delta_norm), t > 0, layer.delta_boost)
        if layer.activation.kind == "softmax":
            z = torch.where(listed, z, z + stands.clamp_min(1e-250).log())
        return example_losses(layer, activation(layer.activation, z), t, listed, stands)

    def step(self, weights, batch, weights_E, random, training, rate):
        """Loss, gradients and the weights after one step of plain descent, with penalties and limits."""
        leaves = {
            key: weight.clone().requires_grad_() for key, weight in weights.items() if key[1] not in FOLLOWING
        }
        loss = self.loss(leaves, batch, weights_E, random)
        gradients = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
        for key, gradient in gradients.items() if self.spec.shared_gradient == "mean" else ():
            gradients[key] = gradient / self._sharers(key)
        if training.gradient_norm_limit is not None:
            for key, leaf in leaves.items():
                leaf.grad = gradients[key]
            torch.nn.utils.clip_grad_norm_(leaves.values(), training.gradient_norm_limit)
        after = {}
        for (name, end), old in weights.items():
            layer = self.spec.layer(name)
            if end in FOLLOWING:
                share = layer.batch_normalization.momentum
                after[name, end] = (1 - share) * old + share * self.statistics[name][FOLLOWING.index(end)]
                continue
            gradient = gradients[name, end]
            of_weight = training.l2 * old + training.l1 * torch.sign(old)
            new = old - rate * (gradient if end in PER_CHANNEL else gradient + of_weight)
            if end not in PER_CHANNEL and getattr(layer, "weight_norm", None) is not None:
                new = new * (layer.weight_norm / new.norm(dim=0, keepdim=True)).clamp_max(1.0)
            after[name, end] = new
        return loss.item(), gradients, after


def snapshot(network):
    """The real network's weights, as the twin names and turns them."""
    found = {}
    outputs = {layer.name for layer in network.spec.outputs}
    for name, wide in network.wide.items():
        rows = all_rows(wide).double()
        if not rows.numel():
            continue  # of a weightless output
        layer, _, source = name.partition("/")
        key = (
            (name, "")
            if name in outputs
            else (layer, source)
            if source
            else (name.removesuffix(" bias"), "bias")
        )
        found[key] = rows.T.clone() if name in outputs or network.layout.weights[name].split else rows
    for name, trunk in network.trunk.items():
        layer, _, source = name.partition("/")
        tensor = trunk.tensor.detach().double()
        end = next((end for end in (*PER_CHANNEL, *FOLLOWING) if name.endswith(f" {end}")), "")
        found[(layer, source) if source else (name.removesuffix(f" {end}"), end)] = (
            tensor.T.clone() if source else tensor.clone()
        )
    return found


def stands_of(output, random):
    """For how many units each of an output with a sample stands in a step, float64 [L]."""
    shards, points = output.weight.shards, output.sampler.points(random)
    found = torch.zeros(output.width, dtype=torch.float64)
    for shard in output.weight.parts:
        units_U, stands_U = output.sampler.drawn(shard, points)
        found[torch.tensor(shards.units(shard))[units_U]] = stands_U.double()
    return found


def sparse(width, low=1.0, high=1.0):
    """Facts of a sparse field."""
    return SimpleNamespace(kind="sparse", width=width, min_value=low, max_value=high)


def dense_field(width, low=-1.0, high=1.0):
    """Facts of a dense field."""
    return SimpleNamespace(kind="dense", width=width, min_value=low, max_value=high)


def random_batch(generator, num_examples, width, most, values=None):
    """A sparse batch without duplicates; the second example is empty. values: gives so many values."""
    rows = [
        sorted(torch.randperm(width, generator=generator)[: int(n)].tolist())
        for n in torch.randint(1, most, (num_examples,), generator=generator)
    ]
    rows[1] = []
    return SparseBatch.from_lists(
        rows, None if values is None else [values(len(row)).tolist() for row in rows]
    )


class Real:
    """The real network of a document, with lively biases, ready to step.

    attributes: those of the rows of every described weight.
    """

    def __init__(self, document, training, facts, counts=None, num_threads=1, seed=7, attributes=None):
        self.spec = NetworkSpec.of(document)
        self.training = TrainingSpec.of(
            {"epochs": 1, "optimizer": {"kind": "sgd", "learning_rate": 0.5}, "shards": 3, **training}
        )
        layout, exchange = bind(self.spec, self.training, facts), Exchange(self.training.shards, num_threads)
        vectors = [weight.describes for weight in layout.weights.values() if weight.describes]
        self.network = build(
            layout, exchange, counts=counts or {}, attributes=dict.fromkeys(vectors, attributes)
        )
        generator = torch.Generator().manual_seed(seed)
        biases = [
            part.weight for wide in self.network.wide.values() if wide.is_bias for part in wide.parts.values()
        ]
        for bias in [
            *biases,
            *(
                trunk.tensor
                for trunk in self.network.trunk.values()
                if trunk.tensor.dim() == 1 and trunk.trained
            ),
        ]:
            bias.add_(torch.randn(bias.shape, generator=generator), alpha=0.3)
        self.rule = Optimizer(self.training.optimizer, self.training.l1, self.training.l2)
        self.network.prepare_training(self.rule)
        self.rates, self.place = rates(self.training, 100), (2, 3)
        self.random = StepRandom(self.training.seed, *self.place)

    def step(self, batch, weights_E=None, number=1):
        """The loss; the network has made a step, its first one, idle rows included."""
        prepared = self.network.prepare(batch, self.place, weights_E)
        loss = train_step(self.network, self.rule, prepared, StepNumbers(number, self.rates))
        settle(self.network, self.rule, self.rates, number)
        return loss

    def bits(self):
        """Every weight's bytes."""
        return {key: weight.float().numpy().tobytes() for key, weight in snapshot(self.network).items()}


def assert_step_matches_twin(
    document, facts, batch, training=None, weights_E=None, counts=None, tolerance=1e-5
):
    """The real network's loss and weights after one step are the twin's, within float32 rounding of the
    largest gradient.
    """
    real = Real(document, training or {}, facts, counts)
    before = snapshot(real.network)
    stands = {
        name: stands_of(output, real.random)
        for name, output in real.network.outputs.items()
        if output.sampler is not None
    }
    twin = Twin(real.spec, real.network.layout.units, counts, stands)
    rate = real.training.optimizer.learning_rate
    loss, gradients, after = twin.step(before, batch, weights_E, real.random, real.training, rate)
    assert abs(real.step(batch, weights_E) - loss) <= 1e-5 * max(abs(loss), 0.1)
    found = snapshot(real.network)
    assert found.keys() == after.keys()
    largest = max(float(gradient.abs().max()) for gradient in gradients.values())
    for key, expected in after.items():
        allowed = tolerance * rate * largest + 1.2e-7 * float(before[key].abs().max())
        if key[1] in FOLLOWING:
            allowed += 1e-6 * float(expected.abs().max())
        worst = float((found[key] - expected).abs().max())
        assert worst <= allowed, f"{key}: off by {worst:.2e}, allowed {allowed:.2e}"
    assert largest > 1e-6
    return real, gradients
