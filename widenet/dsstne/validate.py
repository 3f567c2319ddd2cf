"""DSSTNE's command `encoder` with Validate: a network's gradients, held against quotients of differences."""

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
from widenet.model.draws import Draws
from widenet.model.network import Network
from widenet.model.rule import StepNumbers
from widenet.parallel.local import LocalExchange
from widenet.parallel.threads import one_thread_an_operation
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.training.optimizers import Optimizer
from widenet.training.schedules import rates
from widenet.training.step import Step, train_step

DELTA, THRESHOLD = 0.001, 0.02
"""How far each weight is moved to both sides, and how far its gradient may be from the quotient; both are
DSSTNE's.
"""
_SHOWN = 3
_PLAIN = {"kind": "momentum", "momentum": 0.0, "learning_rate": 1.0}
"""One step of it is the gradient, and no output trains without its logits."""


def validate(config: Path, data: Path, seed: int, batch_size: int) -> list[str]:
    """A line for every weight of the network: how many numbers were checked, and the largest difference.

    The batch is the first of the file; the loss is that of training, with its dropout and denoising and
    without penalties on weights. Every number of every weight takes two forward passes. Raises NumericsError
    for gradients that differ by more than THRESHOLD, and what a training raises.
    """
    with TemporaryDirectory() as folder, one_thread_an_operation():
        values = NetworkSpec.read_values(config)
        import_data([data], Path(folder) / "data", targets=outputs_of(values, config))
        dataset = Dataset.open(Path(folder) / "data")
        network, _ = network_of(values, config, dataset.manifest)
        training = TrainingSpec.of(
            {"seed": seed, "batch_size": batch_size, "optimizer": _PLAIN, "shuffle": False, "epochs": 1},
            str(config),
        )
        layout = check_training(network, training, dataset)
        checks = _Checks(layout, dataset)
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
                f"{config}: gradients must be within {THRESHOLD} of the quotient of differences;"
                f" {'; '.join(failed[:_SHOWN])}{more}."
            )
        return lines


class _Checks:
    """A network as it begins, and its first batch."""

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
        self.batch, self.draws = stream.batch(0, 0, self.network.device), Draws(training.seed, 0, 0)
        self.numbers = StepNumbers(1, rates(training, stream.steps_per_epoch))

    def all(self) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
        """Of every weight that has numbers the quotients and the gradients, float64 and flat; shards one
        after the other.
        """
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
        found = torch.empty(len(numbers), dtype=torch.float64)
        for place, number in enumerate(numbers.tolist()):
            losses, places = [], []
            for moved in (number + DELTA, number - DELTA):
                numbers[place] = moved
                places.append(float(numbers[place]))
                losses.append(self._loss())
            numbers[place] = number
            found[place] = (losses[0] - losses[1]) / (places[0] - places[1])
        return found

    def _loss(self, makes_step: bool = False) -> float:
        with torch.no_grad():
            prepared = self.network.prepare(self.batch.fields, self.draws)
        judge = None if makes_step else _stays
        return train_step(
            self.network, self.rule, Step(prepared, self.batch.weights, self.draws, self.numbers, judge=judge)
        )


def _stays(loss: float, numbers: StepNumbers) -> None:
    """Leave every step out."""
    del loss, numbers


def _flat(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1).double() for part in parts])
