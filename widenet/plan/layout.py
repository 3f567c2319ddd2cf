"""A network bound to the fields of its data: widths, shapes, weights and shards; and a training of it.

A `Layout` is the network, a `Job` its training on some machines: the batch, and the processes that share it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from widenet.errors import OptionError
from widenet.plan.tiles import Shards, are_kept, held
from widenet.spec.layers import InputLayer, Layer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec

Key = tuple[str, str]
"""A layer and one of its sources."""

Shape = tuple[int, ...]
"""Shape of a layer's units: (units,) if flat, else channels and the sizes of its axes, slowest first."""

DeviceKind = Literal["cpu", "cuda"]
WeightsIn = Literal["device", "host", "disk"]

ASSUMED_ENTRIES = 100.0
"""Assumed stored entries of an example without a dataset."""

BATCHES_AHEAD = 3
"""Batches that are read ahead."""


class FieldFacts(Protocol):
    """Facts of a dataset's field that a network depends on."""

    @property
    def kind(self) -> str:
        """The kind: sparse, dense or sequence."""

    @property
    def width(self) -> int:
        """Number of features, or of numbers in an example."""

    @property
    def min_value(self) -> float:
        """The smallest stored value; 1 without values."""

    @property
    def max_value(self) -> float:
        """The largest stored value; 1 without values."""

    @property
    def described(self) -> Mapping[str, int]:
        """Number of attributes of each description of the features, by name; see `data.described`."""


@dataclass(frozen=True)
class Width:
    """Facts of a field when little more than its width is known."""

    width: int
    kind: str = "sparse"
    min_value: float = 1.0
    max_value: float = 1.0
    described: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Axis:
    """A window's movement along one axis.

    Attributes:
        places: Size of the axis.
        kernel: Size of the window.
        stride: Distance between positions.
        positions: Number of positions.
        before: Padding before the first place.
        after: Padding after the last place.
    """

    places: int
    kernel: int
    stride: int
    positions: int
    before: int
    after: int


@dataclass(frozen=True)
class Windows:
    """A window's movement over channels.

    Attributes:
        channels: Number of channels.
        axes: The movement along each axis.
        places: Sizes of the source's axes.
        kernel: Sizes of the window.
        positions: Number of positions along each axis.
        inputs: Numbers in a window, over all channels.
    """

    channels: int
    axes: tuple[Axis, ...]
    places: Shape
    kernel: Shape
    positions: Shape
    inputs: int


@dataclass(frozen=True)
class Link:
    """A weight seen from the layer that uses it."""

    weight: str
    transposed: bool = False


@dataclass(frozen=True)
class Weight:
    """A weight [rows, columns] or bias [rows].

    Attributes:
        layer: The layer that owns it.
        rows: Number of rows.
        columns: Number of columns; None for a bias.
        wide: Whether its rows are cut into shards: those of sparse inputs and outputs, and of split layers;
            otherwise every process holds all of it.
        split: Whether it is a split hidden or recurrent layer's, from a source that is no sparse input.
        by_tiles: Whether every step uses all its rows, so that all have a gradient; otherwise, if it is wide,
            only rows that a batch touches or an output's sample holds.
        trained: Whether it has a gradient; otherwise it is frozen, or follows the batches, as running
            statistics do.
        places: Size of a convolution's kernel; a row is a filter, and its columns go channel by channel.
        input: The sparse input whose features are its rows, or its columns if `by_columns`; None without one.
        by_columns: Whether it belongs to an output on a sparse input; a batch then touches columns.
        norm_limit: Largest Euclidean length of a unit's incoming weights, kept after each step.
        described_by: The descriptions of the rows' features, in the order of the vectors of their attributes,
            which the rows contain.
        describes: The weight whose rows contain these vectors of attributes; they start with zeros. None for
            any other weight.
    """

    layer: str
    rows: int
    columns: int | None
    wide: bool
    split: bool = False
    by_tiles: bool = False
    trained: bool = True
    places: int = 1
    input: str | None = None
    by_columns: bool = False
    norm_limit: float | None = None
    described_by: tuple[str, ...] = ()
    describes: str | None = None

    @property
    def rows_are_features(self) -> bool:
        """Whether a row belongs to a feature of a sparse input; otherwise it is a unit's."""
        return self.input is not None and not self.by_columns

    @property
    def incoming(self) -> int:
        """Length of the vectors that enter the layer: 0 by columns, the number of rows without weights."""
        return 0 if self.by_columns else self.row_length or self.rows

    @property
    def row_length(self) -> int:
        """Numbers in a row: the columns, or 1 for a bias."""
        return 1 if self.columns is None else self.columns

    @property
    def has_vectors(self) -> bool:
        """Whether its rows are vectors of features or units, which are read whole: it may lie elsewhere.

        Biases, weights by columns and those of split layers have none.
        """
        return self.wide and bool(self.columns) and not (self.by_columns or self.split)

    @property
    def numbers(self) -> int:
        """Numbers in all rows."""
        return self.rows * self.row_length

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, float32."""
        return 4 * self.row_length


@dataclass(frozen=True)
class Layout:
    """All facts about layers and weights that follow from the two documents and the fields of the data.

    `plan.binding.bind` makes it once. The plan, the network, the run directory and checkpoints use it.

    Attributes:
        network: The network document.
        training: The training document.
        fields: Facts of the data's fields, by name.
        units: Units of every layer, by name.
        shapes: Shape of every layer, by name.
        windows: How kernels move, by (layer, source): of convolutions, and of pooling layers with a kernel.
        links: The weight that every (layer, source) uses; the key of an output is (layer, ""). A recurrent
            layer is its own source, too.
        along: For every layer along a sequence, the input of the sequence.
        weights: By name, hidden layers' first: "LAYER/SOURCE" of a hidden or recurrent layer, "LAYER/PART" of
            an attention layer, "LAYER" of an output, "LAYER bias" of any, and of a batch normalization
            "LAYER normalization scale", "... shift", "... mean" and "... variance"; last the vectors of
            attributes, "WEIGHT description".
        by_examples: Layers over pictures of which each shard computes some examples in a step, in order.
    """

    network: NetworkSpec
    training: TrainingSpec
    fields: Mapping[str, FieldFacts]
    units: Mapping[str, int]
    shapes: Mapping[str, Shape]
    windows: Mapping[Key, Windows]
    links: Mapping[Key, Link]
    along: Mapping[str, str]
    weights: Mapping[str, Weight]
    by_examples: tuple[str, ...] = ()

    @property
    def num_shards(self) -> int:
        """Number of shards into which every wide weight is cut."""
        return self.training.shards

    def shards(self, rows: int) -> Shards:
        """Return the shards of a wide weight with this number of rows."""
        return Shards(rows, self.num_shards)

    @property
    def features(self) -> set[str]:
        """Names of the inputs of features: of sparse fields and sequences."""
        return {layer.name for layer in self.network.inputs if self.fields[layer.field].kind != "dense"}

    @property
    def sharded(self) -> list[str]:
        """Names of the weights that are cut into shards, in the order of their files; split layers' last."""
        wide = {name: weight.split for name, weight in self.weights.items() if weight.wide}
        return sorted(wide, key=wide.__getitem__)

    def of_output(self, output: str) -> Weight:
        """Return the weight that an output uses, its own or a shared one."""
        return self.weights[self.links[output, ""].weight]

    def outputs_of(self, weight: str) -> list[OutputLayer]:
        """Return the outputs that use a weight."""
        return [output for output in self.network.outputs if self.links[output.name, ""].weight == weight]

    def newest(self, layer: str) -> int:
        """Return the largest number of positions that a layer's input reads of a sequence; 1 without one."""
        along = self.network.layer(self.along[layer]) if layer in self.along else None
        return along.newest if isinstance(along, InputLayer) else 1

    def rows_field(self, weight: Weight) -> str:
        """Return the field whose features are the rows of a wide weight that is not split."""
        return self.field_of(weight.layer if weight.by_columns else weight.input or weight.layer)

    def field_of(self, name: str | None) -> str:
        """Return the field of an input or an output."""
        ends: list[InputLayer | OutputLayer] = [*self.network.inputs, *self.network.outputs]
        return next(layer.field for layer in ends if layer.name == name)

    def users(self, weight: str) -> int:
        """Return how many layers and sources use a weight."""
        return sum(link.weight == weight for link in self.links.values())

    @property
    def described(self) -> dict[str, Weight]:
        """The weights whose rows contain vectors of attributes, by name."""
        return {name: weight for name, weight in self.weights.items() if weight.described_by}

    def waits(self, output: str) -> bool:
        """Return whether an output's weight is updated only when the whole step's gradient is known.

        Or its rows are shortened, which passes over units leave to the update.
        """
        weight, users = self.of_output(output), self.users(self.links[output, ""].weight)
        return weight.trained and (users > 1 or bool(weight.described_by) or weight.norm_limit is not None)


def place_of(spec: NetworkSpec, layer: Layer) -> Callable[[str], str]:
    """Return the function that tells the place of a layer's setting: document, JSON path and layer."""
    start = f"{spec.where}: layers[{spec.layers.index(layer)}]"
    return lambda key: f'{start}.{key} ("{layer.name}")'


def times(sizes: Shape) -> str:
    """Sizes for a person: "3 x 5"."""
    return " x ".join(map(str, sizes))


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

    def rows(self, weight: Weight, process: int) -> int:
        """Return the number of a weight's rows that a process holds."""
        shards = self.layout.shards(weight.rows)
        return sum(map(shards.size, self.held(process))) if weight.wide else weight.rows

    def stored_rows(self, weight: Weight, process: int) -> int:
        """Return for how many of a weight's rows a process has memory; on CUDA shards begin aligned."""
        if self.device == "cpu" or not weight.wide or weight.by_columns:
            return self.rows(weight, process)
        return self.num_held(process) * self.layout.shards(weight.rows).room

    def entries_of(self, source: str) -> float:
        """Return the mean number of an example's entries that a sparse input layer reads."""
        entries = self.entries[self.layout.field_of(source)]
        return min(entries, self.layout.newest(source)) if source in self.layout.along else entries

    def vectors(self, layer: str) -> int:
        """Return the number of a layer's vectors that a process computes in a step, at most.

        They are one per example, or position of a sequence; of layers divided by examples, those of its own.
        """
        along, spec = self.layout.along.get(layer), self.network.layer(layer)
        if layer in self.layout.by_examples:
            return -(-self.num_examples * self.num_held(0) // self.training.shards)
        if along is None or (isinstance(spec, OutputLayer) and spec.predict != "next"):
            return self.num_examples
        return max(1, round(self.num_examples * self.entries_of(along)))

    def units_at_work(self, layer: OutputLayer, process: int) -> int:
        """Return the number of an output's units that a process computes in a step.

        These are all its units, or with a sample at most the drawn units and the targets.
        """
        weight = self.layout.of_output(layer.name)
        own = self.rows(weight, process)
        if layer.sample is None:
            return own
        chosen: float = layer.sample.units + self.vectors(layer.name) * self.targets_of(layer)
        return min(own, round(chosen * own / weight.rows))

    def targets_of(self, layer: OutputLayer) -> float:
        """Return the mean number of sparse targets of a vector that enters an output."""
        return 1.0 if layer.predict == "next" else self.entries.get(layer.field, 0.0)

    def held(self, process: int) -> range:
        """Return the shards that a process holds."""
        return held(self.training.shards, process, self.num_processes)

    def num_held(self, process: int) -> int:
        """Return the number of shards that a process holds; none has more than the first."""
        return len(self.held(process))

    def takes_all(self, layer: OutputLayer) -> bool:
        """Return whether a step takes all units of an output at once, whose logits are gathered.

        On a CPU the native library knows more of them.
        """
        is_closed = layer.is_closed and not (layer.weightless or self.layout.of_output(layer.name).by_columns)
        is_closed &= self.layout.fields[layer.field].kind != "dense" or self.device == "cpu"
        return layer.sample is None and (
            layer.delta_norm is not None or (layer.is_row_wise and not is_closed)
        )

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
        return are_kept(self.vectors(layer.name), units, self.device, self.is_half, self.kept_bytes)

    @property
    def is_half(self) -> bool:
        """Whether products take operands rounded to bfloat16."""
        return self.training.precision == "bfloat16"

    @property
    def in_background(self) -> bool:
        """Whether checkpoints are written from a copy of weights and state while the training continues."""
        is_within_epochs = self.training.checkpoints.every_steps is not None
        return self.has_snapshots and self.weights_in == "device" and is_within_epochs


def steps_per_epoch(num_examples: int, batch_size: int) -> int:
    """Return the number of steps in an epoch."""
    return max(1, -(-num_examples // batch_size))


def check_processes(num_shards: int, num_processes: int) -> None:
    """Raise OptionError unless every process has a shard to hold."""
    is_right, rule = 1 <= num_processes <= num_shards, f"must be from 1 to {num_shards}, the number of shards"
    OptionError.require(is_right, rule, option="processes", value=num_processes)
