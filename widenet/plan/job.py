"""A training as a plan sees it: documents, widths, and the machines it is to run on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from widenet.errors import OptionError
from widenet.plan.drift import drifts
from widenet.plan.layout import Layout, Weight
from widenet.plan.shards import Shards, held, most_held
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

DeviceKind = Literal["cpu", "cuda"]

ASSUMED_ENTRIES = 100.0
"""Stored entries of an example where no dataset says how many there are."""

BATCHES_AHEAD = 3
"""Batches that are read while one is at work."""


@dataclass(frozen=True)
class Job:
    """A training of a layout, divided among processes.

    entries: mean number of stored entries of an example, by field of features. num_examples: in a step.
    num_threads: that work on shards in one process. kept_bytes: of an output's logits, kept between passes;
    None: what `KEPT_BYTES` says.
    cuda_graph: steps are recorded as a CUDA graph, which has memory of its own. has_snapshots: there is room
    for a copy of weights and state where the training asks for one.
    """

    layout: Layout
    entries: Mapping[str, float]
    num_examples: int
    num_processes: int = 1
    device: DeviceKind = "cpu"
    num_threads: int = 1
    kept_bytes: int | None = None
    cuda_graph: bool = False
    has_snapshots: bool = True

    @classmethod
    def of(
        cls,
        layout: Layout,
        entries: Mapping[str, float] | None = None,
        num_examples: int | None = None,
        *,
        num_processes: int = 1,
        device: DeviceKind = "cpu",
        num_threads: int = 1,
        kept_bytes: int | None = None,
        cuda_graph: bool = False,
    ) -> "Job":
        """The job of a layout.

        num_examples: of the dataset; None: enough to fill a step. Raises OptionError for more processes than
        shards. Whether a CUDA graph can hold it, `graph.check_recordable` says.
        """
        found = {
            name: (entries or {}).get(name, ASSUMED_ENTRIES)
            for name, facts in layout.fields.items()
            if facts.kind != "dense"
        }
        batch_size = layout.training.batch_size
        batch = batch_size if num_examples is None else min(batch_size, num_examples)
        check_processes(layout.num_shards, num_processes)
        return cls(
            layout,
            found,
            batch,
            num_processes,
            device,
            num_threads,
            kept_bytes,
            cuda_graph,
        )

    @property
    def network(self) -> NetworkSpec:
        """The network document."""
        return self.layout.network

    @property
    def training(self) -> TrainingSpec:
        """The training document."""
        return self.layout.training

    def shards(self, weight: Weight) -> Shards:
        """How a wide weight is cut."""
        return self.layout.shards(weight.rows)

    def rows(self, weight: Weight, process: int) -> int:
        """Rows of a weight that a process holds."""
        if not weight.wide:
            return weight.rows
        shards = self.shards(weight)
        own = held(shards.count, process, self.num_processes)
        return shards.stop(own[-1]) - shards.start(own[0])

    def entries_of(self, source: str) -> float:
        """Mean number of entries of an example that a sparse input layer reads."""
        layer = self.network.layer(source)
        assert isinstance(layer, InputLayer)
        return (
            min(self.entries[layer.field], layer.newest)
            if source in self.layout.along
            else self.entries[layer.field]
        )

    def vectors(self, layer: str) -> int:
        """Vectors of a layer in a step: one an example, or one a position where it goes along a sequence."""
        along = self.layout.along.get(layer)
        found = self.network.layer(layer)
        if along is None or (isinstance(found, OutputLayer) and found.predict != "next"):
            return self.num_examples
        return max(1, round(self.num_examples * self.entries_of(along)))

    def is_over_sparse(self, layer: Layer) -> bool:
        """Whether a layer stands on a sparse input."""
        sources = (self.network.layer(source) for source in self.network.sources(layer))
        return any(isinstance(source, InputLayer) and source.field in self.entries for source in sources)

    def targets_of(self, layer: OutputLayer) -> float:
        """Mean number of targets of one of an output's vectors, of a sparse field."""
        return 1.0 if layer.predict == "next" else self.entries[layer.field]

    def drifts(self, layer: OutputLayer) -> bool:
        """Whether an output is trained without its logits."""
        return drifts(layer, self.layout)

    def units_at_work(self, layer: OutputLayer, process: int) -> int:
        """Units of an output that a step computes in a process: all of its own, or with a sample at most
        its draws and the targets.
        """
        weight = self.layout.of_output(layer.name)
        own = self.rows(weight, process)
        if layer.sample is None:
            return own
        chosen: float = layer.sample.units + self.vectors(layer.name) * self.targets_of(layer)
        return min(own, round(chosen * own / weight.rows))

    def num_held(self, process: int) -> int:
        """Number of shards that a process holds."""
        return len(held(self.training.shards, process, self.num_processes))

    @property
    def in_background(self) -> bool:
        """Whether checkpoints are written from a copy of weights and state while the training goes on."""
        return self.has_snapshots and self.training.checkpoints.within_epochs

    @property
    def most_held(self) -> int:
        """The largest number of shards that a process holds."""
        return most_held(self.training.shards, self.num_processes)


def check_processes(num_shards: int, num_processes: int) -> None:
    """Raise OptionError unless every process has a shard to hold."""
    if not 1 <= num_processes <= num_shards:
        raise OptionError(
            f"the number of processes must be from 1 to {num_shards}, the number of shards; got"
            f" {num_processes}. "
            f'Start fewer processes, or train with more "shards" in training.json.'
        )
