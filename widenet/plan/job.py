"""A training on some machines: the layout, the batch, and the processes that share it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from widenet.errors import OptionError
from widenet.plan.layout import Layout, Weight
from widenet.plan.tiles import Shards, are_kept, held
from widenet.spec.layers import InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DeviceKind = Literal["cpu", "cuda"]
WeightsIn = Literal["device", "host", "disk"]

ASSUMED_ENTRIES = 100.0
"""Assumed stored entries of an example without a dataset."""

BATCHES_AHEAD = 3
"""Batches that are read ahead."""


@dataclass(frozen=True)
class Job:
    """A training of a layout, divided among processes; raises OptionError if a process has no shard.

    Attributes:
        layout: The layout.
        counted_entries: Mean number of stored entries of an example, by sparse field; others have
            `ASSUMED_ENTRIES`.
        all_examples: Examples of the dataset; None: enough to fill a step.
        num_processes: Number of processes.
        device: Kind of their devices.
        num_threads: Threads of a process that work on shards.
        kept_bytes: Limit on an output's logits that are kept between passes; None: `KEPT_BYTES`.
        has_snapshots: Whether memory has room for a copy of weights and state, if the training needs one.
        weights_in: Where wide weights and their state lie.
    """

    layout: Layout
    counted_entries: Mapping[str, float] | None = None
    all_examples: int | None = None
    num_processes: int = 1
    device: DeviceKind = "cpu"
    num_threads: int = 1
    kept_bytes: int | None = None
    has_snapshots: bool = True
    weights_in: WeightsIn = "device"

    def __post_init__(self) -> None:
        check_processes(self.layout.num_shards, self.num_processes)

    @property
    def entries(self) -> dict[str, float]:
        """Mean number of stored entries of an example, by sparse field."""
        counted, fields = self.counted_entries or {}, self.layout.fields.items()
        return {name: counted.get(name, ASSUMED_ENTRIES) for name, facts in fields if facts.kind != "dense"}

    @property
    def num_examples(self) -> int:
        """Examples of a step."""
        batch_size = self.training.batch_size
        return batch_size if self.all_examples is None else min(batch_size, self.all_examples)

    @property
    def network(self) -> NetworkSpec:
        """The network document."""
        return self.layout.network

    @property
    def training(self) -> TrainingSpec:
        """The training document."""
        return self.layout.training

    def shards(self, weight: Weight) -> Shards:
        """Return the shards of a wide weight."""
        return self.layout.shards(weight.rows)

    def rows(self, weight: Weight, process: int) -> int:
        """Return the number of a weight's rows that a process holds."""
        shards = self.shards(weight)
        return sum(map(shards.size, self.held(process))) if weight.wide else weight.rows

    def stored_rows(self, weight: Weight, process: int) -> int:
        """Return for how many of a weight's rows a process has memory; on CUDA shards begin aligned."""
        if self.device == "cpu" or not weight.wide or weight.by_columns:
            return self.rows(weight, process)
        return self.num_held(process) * self.shards(weight).room

    def entries_of(self, source: str) -> float:
        """Return the mean number of an example's entries that a sparse input layer reads."""
        layer = self.network.layer(source)
        assert isinstance(layer, InputLayer)
        entries = self.entries[layer.field]
        return min(entries, layer.newest) if source in self.layout.along else entries

    def vectors(self, layer: str) -> int:
        """Return the number of a layer's vectors in a step: one per example, or position of a sequence."""
        along = self.layout.along.get(layer)
        spec = self.network.layer(layer)
        if along is None or (isinstance(spec, OutputLayer) and spec.predict != "next"):
            return self.num_examples
        return max(1, round(self.num_examples * self.entries_of(along)))

    def own_vectors(self, layer: str) -> int:
        """Return how many of a layer's vectors a process computes at most: its examples, or all vectors."""
        if layer in self.layout.by_examples:
            return -(-self.num_examples * self.num_held(0) // self.training.shards)
        return self.vectors(layer)

    def units_at_work(self, layer: OutputLayer, process: int) -> int:
        """Return the number of an output's units that a process computes in a step.

        These are all its units, or with a sample at most the drawn units and the targets.
        """
        weight = self.layout.of_output(layer.name)
        own = self.rows(weight, process)
        if layer.sample is None:
            return own
        targets = 1.0 if layer.predict == "next" else self.entries[layer.field]
        chosen: float = layer.sample.units + self.vectors(layer.name) * targets
        return min(own, round(chosen * own / weight.rows))

    def held(self, process: int) -> range:
        """Return the shards that a process holds."""
        return held(self.training.shards, process, self.num_processes)

    def num_held(self, process: int) -> int:
        """Return the number of shards that a process holds; none has more than the first."""
        return len(self.held(process))

    def goes_twice(self, layer: OutputLayer) -> bool:
        """Return whether a step goes over an output's units more than once, and needs their logits again.

        So it does if the output is updated at the end of the step: its weight waits, or all do.
        """
        is_limited = self.training.gradient_norm_limit is not None
        waits = layer.sample is None and (is_limited or self.layout.waits(layer.name))
        return waits or layer.is_row_wise or layer.delta_norm is not None

    def keeps(self, layer: OutputLayer, process: int) -> bool:
        """Return whether a process keeps an output's logits between passes."""
        units = self.units_at_work(layer, process)
        return are_kept(self.vectors(layer.name), units, self.device, self.kept_bytes)

    @property
    def in_background(self) -> bool:
        """Whether checkpoints are written from a copy of weights and state while the training continues."""
        return self.has_snapshots and self.weights_in == "device" and self.training.checkpoints.within_epochs


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of steps in an epoch."""
    return max(1, -(-num_examples // batch_size))


def check_processes(num_shards: int, num_processes: int) -> None:
    """Raise OptionError unless every process has a shard to hold."""
    if not 1 <= num_processes <= num_shards:
        raise OptionError(
            f"must be from 1 to {num_shards}, the number of shards", option="processes", value=num_processes
        )
