"""The command Validate of DSSTNE's `encoder`, which checks gradients against finite differences."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.data.stream import Stream
from widenet.dsstne.data import import_data
from widenet.dsstne.train import network_of, outputs_of
from widenet.errors import NumericsError
from widenet.model.build import build
from widenet.model.network import Network
from widenet.model.rule import StepNumbers
from widenet.model.step_random import StepRandom
from widenet.parallel.local import LocalExchange
from widenet.parallel.threads import fixed_arithmetic
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.training.optimizers import Optimizer
from widenet.training.schedules import rates
from widenet.training.step import Step, train_step

DELTA, THRESHOLD = 0.001, 0.02
"""Step of the central differences, and the largest error of a gradient; both are DSSTNE's."""
_SHOWN = 3
_PLAIN = {"kind": "momentum", "momentum": 0.0, "learning_rate": 1.0}
"""With this optimizer a step equals the gradient, and every output computes its logits."""


def validate(config: Path, data: Path, seed: int, batch_size: int) -> list[str]:
    """Check the gradients of a network on the first batch of a file.

    The loss is that of training with dropout and denoising, without penalties on weights. Each number of each
    weight takes two forward passes.

    Returns:
        A line for each weight, with the number of checked numbers and the largest difference.

    Raises:
        NumericsError: A gradient differs by more than THRESHOLD.
        WidenetError: The training cannot start.
    """
    with TemporaryDirectory() as folder, fixed_arithmetic():
        values = NetworkSpec.read_values(config)
        import_data([data], Path(folder) / "data", targets=outputs_of(values, config))
        dataset = Dataset.open(Path(folder) / "data")
        network, _ = network_of(values, config, dataset.manifest)
        training = TrainingSpec.of(
            {"seed": seed, "batch_size": batch_size, "optimizer": _PLAIN, "shuffle": False, "epochs": 1},
            str(config),
        )
        layout = check_training(network, training, dataset)
        checks = _GradientChecks(layout, dataset)
        lines, failed = [], []
        for name, (quotients, gradients) in checks.all():
            differences = (quotients - gradients).abs()
            lines.append(
                f"{name}: {len(gradients):,} checked, largest difference {float(differences.max()):.6f}"
            )
            for place in (differences > THRESHOLD).nonzero()[:, 0].tolist():
                failed.append(
                    f"number {place} of {name}: {float(gradients[place]):.6f} for"
                    f" {float(quotients[place]):.6f}"
                )
        if failed:
            more = f" and {len(failed) - _SHOWN:,} more" if len(failed) > _SHOWN else ""
            raise NumericsError(
                f"{config}: gradients must be within {THRESHOLD} of the finite differences;"
                f" {'; '.join(failed[:_SHOWN])}{more}."
            )
        return lines


class _GradientChecks:
    """An untrained network, and its first batch."""

    def __init__(self, layout: Layout, dataset: Dataset) -> None:
        spec, training = layout.network, layout.training
        counts = {field: dataset.counts(field) for field in spec.counted_fields}
        self.network: Network = build(layout, LocalExchange(layout.num_shards), "cpu", counts)
        self.rule = Optimizer(training.optimizer)
        self.network.prepare_training(self.rule)
        for wide in self.network.wide.values():
            wide.norm_limit = None
        for trunk in self.network.trunk.values():
            trunk.norm_limit = None
        stream = Stream(dataset, spec.fields, training.batch_size, training.seed, training.shuffle)
        self.batch, self.random = stream.batch(0, 0), StepRandom(training.seed, 0, 0)
        self.numbers = StepNumbers(1, rates(training, stream.steps_per_epoch))

    def all(self) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Yield finite differences and gradients of every weight that is not empty, flat float64 tensors."""
        wide = {
            name: weight
            for name, weight in self.network.wide.items()
            if any(part.weight.numel() for part in weight.parts.values())
        }
        tensors = {
            name: [part.by_rows()[0] for part in weight.parts.values()] for name, weight in wide.items()
        }
        tensors |= {name: [weight.tensor] for name, weight in self.network.trunk.items() if weight.trained}
        quotients = {
            name: torch.cat([self._quotients(tensor) for tensor in parts]) for name, parts in tensors.items()
        }
        before = {name: _flat(parts) for name, parts in tensors.items()}
        self._loss(makes_step=True)
        for name, parts in tensors.items():
            yield (
                name,
                (
                    quotients[name],
                    (before[name] - _flat(parts)) / self.network.share_of_gradient(name),
                ),
            )

    def _quotients(self, tensor: Tensor) -> Tensor:
        numbers = tensor.detach().view(-1)
        quotients = torch.empty(len(numbers), dtype=torch.float64)
        for place, number in enumerate(numbers.tolist()):
            losses, values = [], []
            for moved in (number + DELTA, number - DELTA):
                numbers[place] = moved
                values.append(float(numbers[place]))
                losses.append(self._loss())
            numbers[place] = number
            quotients[place] = (losses[0] - losses[1]) / (values[0] - values[1])
        return quotients

    def _loss(self, makes_step: bool = False) -> float:
        with torch.no_grad():
            prepared = self.network.prepare(self.batch.fields, self.random, self.batch.weights)
        return train_step(
            self.network, self.rule, Step(prepared, self.random, self.numbers, updates=makes_step)
        )


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1).double() for part in parts])
