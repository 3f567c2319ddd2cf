"""Loads another run's weights into a new training; units are matched by the ids of their features."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, FitError
from widenet.kernels.neighbour_means import NeighbourLists
from widenet.model.network import Network
from widenet.model.storage import put_rows
from widenet.parallel.group import by_all
from widenet.plan.layout import Layout
from widenet.plan.shards import as_slice
from widenet.spec.layers import OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.checkpoint import TRUNK, Checkpoint, in_trunk, neighbourhood_file, wide_file
from widenet.training.field_records import record_of
from widenet.training.run_directory import RunDirectory, with_network_of
from widenet.training.run_path import check_finished
from widenet.training.saved_facts import TrainingFacts, WeightsFacts


class RowCopy:
    """Copies rows of an earlier tensor [R, ...] into a tensor of the network.

    Args:
        target: The tensor of the network, to whose type numbers are rounded.
        origin: Index of the earlier row for each row, int64; -1 for new rows.
    """

    def __init__(self, target: Tensor, origin: np.ndarray) -> None:
        known_U = np.flatnonzero(origin >= 0)
        self._target = target
        self._target_U = known_U[np.argsort(origin[known_U], kind="stable")]
        self._source_U = origin[self._target_U]

    def needs(self, units: range) -> bool:
        """Return whether any of these earlier rows is copied."""
        return len(self._among(units)) > 0

    def take(self, block: Tensor, units: range) -> None:
        """Copy the matching rows of a block that holds these earlier rows."""
        own_U = self._among(units)
        places_U = (self._source_U[own_U] - units.start) // units.step
        device, target_U = self._target.device, torch.from_numpy(self._target_U[own_U])
        rows = block.index_select(0, torch.from_numpy(places_U)).to(device, self._target.dtype)
        put_rows(self._target, target_U.to(device), rows)

    def _among(self, units: range) -> np.ndarray:
        """Return which of the earlier rows that are copied are among these."""
        first, last = np.searchsorted(self._source_U, (units.start, units.stop)).tolist()
        is_own = (self._source_U[first:last] - units.start) % units.step == 0
        own_U: np.ndarray = np.arange(first, last)[is_own]
        return own_U


@dataclass(frozen=True)
class Taken:
    """The weights with which a network begins, and the others.

    Attributes:
        path: The earlier run.
        names: Names of the weights that it has in the same sizes.
        left: Why the others of the network are not among them, by name.
        unused: Names of its weights that the network does not have.
    """

    path: Path
    names: Sequence[str]
    left: Mapping[str, str]
    unused: Sequence[str]

    @classmethod
    def of(cls, path: Path, before: Layout, layout: Layout) -> "Taken":
        """Compare the weights of an earlier run with those of a network; their features may differ.

        Raises:
            CheckpointError: None is equal but biases, or some follow the attributes of features.
        """
        described = next((own for own in layout.weights.values() if own.describes is not None), None)
        if described is not None:
            rule = f'does not go with described_by of layer "{described.layer}"'
            raise CheckpointError(rule, place=path, option="start_from")
        # Rows that vectors of attributes describe are finished sums, so nothing lacks these vectors.
        own = {name: weight for name, weight in before.weights.items() if weight.describes is None}
        old, new = dict(_sizes(replace(before, weights=own))), dict(_sizes(layout))
        left = {
            name: "not there" if name not in old else f"{_times(old[name])} there, {_times(sizes)} here"
            for name, sizes in new.items()
            if old.get(name) != sizes
        }
        if left and all(name in left for name, weight in layout.weights.items() if weight.columns):
            rule = f"has no weight of a name and sizes as here: {_reasons(left)}"
            raise CheckpointError(rule, place=path)
        names = [name for name in new if name not in left]
        return cls(path, names, left, [name for name in old if name not in new])

    @property
    def sentence(self) -> str:
        """Which weights begin with those of the run, and which do not."""
        if not self.left and not self.unused:
            return f"{self.path}: all {len(self.names)} weights begin with its."
        count, whole = len(self.names), len(self.names) + len(self.left)
        parts = [f"{self.path}: {count} of {whole} weights begin with its: {_quoted(self.names)}."]
        parts += [f"As initialized: {_reasons(self.left)}."] if self.left else []
        parts += [f"Not used: {_quoted(self.unused)}."] if self.unused else []
        return " ".join(parts)


def _sizes(layout: Layout) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield every weight of a layout with the sizes that must be equal."""
    for name, weight in layout.weights.items():
        has_field = weight.wide and not weight.split
        rows = f"units of {layout.rows_field(weight)}" if has_field else weight.rows
        columns = f"features of {layout.input_field(weight)}" if weight.by_columns else weight.columns
        yield name, (rows,) if weight.columns is None else (rows, columns)


def _reasons(left: Mapping[str, str]) -> str:
    return ", ".join(f'"{name}" ({reason})' for name, reason in left.items())


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _times(sizes: Sequence[object]) -> str:
    return " x ".join(map(str, sizes))


def outputs_near(before: NetworkSpec, spec: NetworkSpec) -> list[OutputLayer]:
    """Return the outputs of a network with a term whose neighbours are those of an earlier network's."""
    old = {(output.name, output.field): _counted(output) for output in before.outputs}
    return [
        output
        for output in spec.outputs
        if output.neighbourhood is not None and old.get((output.name, output.field)) == _counted(output)
    ]


def _counted(output: OutputLayer) -> tuple[int, float, str] | None:
    """Return the settings of a term on which its neighbours and similarities depend."""
    term = output.neighbourhood
    return None if term is None else (term.neighbours, term.popularity, term.order)


def keep_neighbours(
    before: Layout, model: Checkpoint, network: Network, origin_of: Callable[[str, int, int], np.ndarray]
) -> None:
    """Replace what was counted for known units by the neighbours in an earlier run; new units keep it.

    Args:
        before: The layout of the earlier run.
        model: Its weights.
        network: The network, whose neighbours are counted.
        origin_of: Returns the index of each unit of a field in the earlier run, by its numbers of units there
            and here; -1 for new units.
    """
    names = [output.name for output in before.network.outputs]
    for output in outputs_near(before.network, network.spec):
        assert output.neighbourhood is not None
        shards, places = before.shards(before.units[output.name]), output.neighbourhood.neighbours
        own = network.outputs[output.name]
        origin = torch.from_numpy(origin_of(output.field, shards.width, own.width))
        now = torch.full((shards.width,), -1)
        now[origin[origin >= 0]] = torch.nonzero(origin >= 0)[:, 0]
        kept = []
        for shard in range(shards.count):
            lists = NeighbourLists.blank(shards.units(shard), places, torch.device("cpu"))
            model.fill(neighbourhood_file(names.index(output.name), shard, shards.count), lists.tensors())
            unit_Z, neighbour_Z, similarity_Z = lists.entries()
            unit_Z, neighbour_Z = now[unit_Z], now[neighbour_Z]
            is_known_Z = (unit_Z >= 0) & (neighbour_Z >= 0)
            kept.append((unit_Z[is_known_Z], neighbour_Z[is_known_Z], similarity_Z[is_known_Z]))
        for lists in own.lists.values():
            counted = lists.entries()
            is_new_Z = origin[counted[0]] < 0
            lists.fill(*map(torch.cat, zip(*kept, [each[is_new_Z] for each in counted], strict=True)))


_MOVED = "moved"
"""State that is not copied: the step that moved each row last. Steps are counted anew."""


def check_start(start: Path, layout: Layout, dataset: Dataset) -> None:
    """Check that a network can begin with weights of a run; raises as `load_start`."""
    _matched(start, layout, dataset)


def load_start(start: Path | None, network: Network, dataset: Dataset, say: Callable[[str], None]) -> None:
    """Fill a network with the weights of the run that its own run starts from, if there is one.

    A weight is taken if that run has one of the same name and sizes; other weights stay as initialized. Units
    are matched by the ids of their features, in whatever shards they are; new units keep their initial
    weights. The optimizer's state is loaded too if both runs use the same kind of optimizer.

    Args:
        start: The other run.
        network: The network, initialized.
        dataset: The dataset of its training.
        say: Called with what begins with weights of that run and what does not.

    Raises:
        CheckpointError: The other run has no finished model, or no such weights.
        FitError: The fields of the runs do not go together.
    """
    if start is None:
        return
    before, model, taken, origins = _matched(start, network.layout, dataset)
    last = _last_checkpoint(before, network.layout.training, model)
    loader = _Start(before, network, {*taken.names}, origins)
    by_all(network.exchange, lambda: loader.load(model, last), "checkpoint")
    say(taken.sentence)
    for name, origin in origins.items():
        num_known = int((origin >= 0).sum())
        if num_known < len(origin) or before.fields[name].width > num_known:
            counts = {
                "are new": len(origin) - num_known,
                "of its features are gone": before.fields[name].width - num_known,
            }
            rest = " and ".join(f"{number:,} {what}" for what, number in counts.items() if number)
            say(f'{start}: {num_known:,} features of field "{name}" begin with its weights; {rest}.')


def _matched(
    start: Path, layout: Layout, dataset: Dataset
) -> tuple[RunDirectory, Checkpoint, Taken, dict[str, np.ndarray]]:
    """Return a run, its model, what a layout takes of it, and the origins of features, by field."""
    check_finished(start)
    before = RunDirectory.open(start)
    model = before.model()
    before = with_network_of(before, model)
    facts = WeightsFacts.of(model.facts)
    if facts.in_8_bits:
        raise CheckpointError("has weights in 8 bits, which are not trained further", place=start)
    taken = Taken.of(before.path, before.layout, layout)
    fields = _fields_of(taken, before.network, layout)
    origins = {name: _origin(before, dataset, name, facts.imported is not None) for name in fields}
    _check_columns(before, layout, taken, origins)
    return before, model, taken, origins


def _fields_of(taken: Taken, before: NetworkSpec, layout: Layout) -> list[str]:
    """Return the fields whose features are rows or columns of weights that are taken, damped, or near."""
    weights = [layout.weights[name] for name in taken.names]
    of_rows = [layout.rows_field(weight) for weight in weights if weight.wide and not weight.split]
    of_columns = [layout.input_field(weight) for weight in weights if weight.by_columns]
    damped = _damped(before, layout.network).values()
    near = [output.field for output in outputs_near(before, layout.network)]
    return [*dict.fromkeys([*of_rows, *of_columns, *damped, *near])]


def _damped(before: NetworkSpec, spec: NetworkSpec) -> dict[str, str]:
    """Return the inputs whose damping begins with that of an earlier network, with their fields."""
    old = {(layer.name, layer.field) for layer in before.inputs if layer.popularity_damping}
    new = {layer.name: layer.field for layer in spec.inputs if layer.popularity_damping}
    return {name: field for name, field in new.items() if (name, field) in old}


def _check_columns(
    before: RunDirectory, layout: Layout, taken: Taken, origins: Mapping[str, np.ndarray]
) -> None:
    """Raise if an output reads a sparse input whose features differ: columns of a weight are not matched."""
    old = before.layout.weights
    for name in taken.names:
        weight = layout.weights[name]
        if not weight.by_columns:
            continue
        field = layout.input_field(weight)
        same = np.arange(before.fields[field].width)
        if old[name].columns != weight.columns or not np.array_equal(origins[field], same):
            rule = (
                f'output "{weight.layer}" reads the sparse field "{field}" directly, so both runs must have'
                " the same features in the same order"
            )
            raise CheckpointError(f"{rule}, with as many units", place=before.path)


def _origin(before: RunDirectory, dataset: Dataset, field: str, by_index: bool) -> np.ndarray:
    """Return the index of each feature in the earlier run, int64 [features]; -1 for new features.

    Args:
        before: The earlier run.
        dataset: The dataset of the new run.
        field: A field of both.
        by_index: Whether to match features by their indices, as for an imported network without names.
    """
    old, new = before.fields[field], record_of(dataset, field)
    digests = old.vocabulary_digest, new.vocabulary_digest
    if old.width == new.width and (by_index or None in digests or digests[0] == digests[1]):
        return np.arange(new.width)
    if None in digests:
        rule = (
            f'field "{field}" has {old.width:,} features in {before.path} and {new.width:,} here, and without'
            " a vocabulary in both"
        )
        raise FitError(f"{rule} features cannot be matched", place=before.path)
    origin = before.vocabulary(field).indices_of(dataset.vocabulary(field))
    if (origin < 0).all():
        raise FitError(f'knows no feature of field "{field}"', place=before.path)
    return origin


def _last_checkpoint(before: RunDirectory, training: TrainingSpec, model: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint whose optimizer state belongs to a finished model; None without one.

    There is none if the runs use different optimizers, or if the model holds the weights of an earlier epoch.
    """
    if before.training.optimizer.kind != training.optimizer.kind:
        return None
    last, kept = before.latest(), WeightsFacts.of(model.facts)
    if last is None or (before.training.keep == "best" and kept.best_epoch not in (None, kept.epochs)):
        return None
    return last if TrainingFacts.of(last.facts).state.epoch == kept.epochs else None


@dataclass(frozen=True)
class _Start:
    """Loads weights of an earlier run into a network.

    Attributes:
        before: The earlier run.
        network: The network.
        taken: Names of the weights that both have in the same sizes.
        origins: Index of each feature in the earlier run, by field; see `_origin`.
    """

    before: RunDirectory
    network: Network
    taken: Set[str]
    origins: Mapping[str, np.ndarray]

    def load(self, model: Checkpoint, last: Checkpoint | None) -> None:
        """Fill the shards of this process and the trunk, a block of an earlier tensor at a time."""
        old, new = self.before.layout, self.network.layout
        for name, wide in self.network.wide.items():
            if name not in self.taken:
                continue
            origin = self._origin_of(name)
            targets = {shard: part.tensors() for shard, part in wide.parts.items()}
            cuts = {shard: origin[as_slice(wide.shards.units(shard))] for shard in targets}
            states = [
                key
                for key in next(iter(targets.values()))
                if key.startswith("state.") and not key.endswith(_MOVED) and old.weights[name].trained
            ]
            for checkpoint, keys in [(model, ["weight"]), *([] if last is None else [(last, states)])]:
                copies = {
                    key: [RowCopy(targets[shard][key], cut) for shard, cut in cuts.items()] for key in keys
                }
                self._copy_weight(name, checkpoint, copies)
        self._load_trunk(model, last)
        for name, field in _damped(old.network, new.network).items():
            rows, factors = old.units[name], self.network.damping[name]
            copies = {f"damping.{name}": [RowCopy(factors, self._origin(field, rows, len(factors)))]}
            _copy(model, TRUNK, copies, range(rows))
        keep_neighbours(old, model, self.network, self._origin)

    def _copy_weight(self, name: str, checkpoint: Checkpoint, copies: Mapping[str, list[RowCopy]]) -> None:
        """Copy rows of a weight's tensors, from the files of its shards or from that of the trunk."""
        rows = self.before.layout.weights[name].rows
        for file, units in self._shard_files(name, checkpoint).items():
            _copy(checkpoint, file, copies, units)
        if not self._shard_files(name, checkpoint):
            of_trunk = {in_trunk(name, key): of_tensor for key, of_tensor in copies.items()}
            _copy(checkpoint, TRUNK, of_trunk, range(rows))

    def _shard_files(self, name: str, checkpoint: Checkpoint) -> dict[str, range]:
        """Return the files of a weight's shards with the units of their rows; none if it is in the trunk."""
        old = self.before.layout
        if name not in old.sharded:
            return {}
        number, shards = old.sharded.index(name), old.shards(old.weights[name].rows)
        files = {wide_file(number, shard, shards.count): shards.units(shard) for shard in range(shards.count)}
        return {} if old.weights[name].split and not files.keys() <= checkpoint.files.keys() else files

    def _origin_of(self, name: str) -> np.ndarray:
        """Return the index of each row of a sharded weight in the earlier run, int64 [rows]."""
        weight, old = self.network.layout.weights[name], self.before.layout.weights[name]
        if weight.split:
            return np.arange(weight.rows)
        return self._origin(self.network.layout.rows_field(weight), old.rows, weight.rows)

    def _origin(self, field: str, old_units: int, units: int) -> np.ndarray:
        """Return the index of each unit in the earlier run, int64 [units].

        Units beyond the features have no names and keep their index.
        """
        origin = np.full(units, -1)
        named = self.origins[field][:units]
        origin[: len(named)] = named
        nameless = np.arange(max(len(named), self.before.fields[field].width), min(units, old_units))
        origin[nameless] = nameless
        return origin

    def _load_trunk(self, model: Checkpoint, last: Checkpoint | None) -> None:
        old = self.before.layout
        trunk = {name: weight for name, weight in self.network.trunk.items() if name in self.taken}
        for checkpoint, has_states in [(model, False), *([] if last is None else [(last, True)])]:
            whole: dict[str, Tensor] = {}
            for name, weight in trunk.items():
                tensors = {"weight": weight.tensor.detach()}
                if has_states:
                    is_trained = old.weights[name].trained
                    tensors = {f"state.{key}": state for key, state in weight.state.items() if is_trained}
                if self._shard_files(name, checkpoint):
                    rows = np.arange(len(weight.tensor))
                    copies = {key: [RowCopy(tensor, rows)] for key, tensor in tensors.items()}
                    self._copy_weight(name, checkpoint, copies)
                else:
                    whole |= {in_trunk(name, key): tensor for key, tensor in tensors.items()}
            checkpoint.fill(TRUNK, whole)


def _copy(checkpoint: Checkpoint, file: str, copies: Mapping[str, list[RowCopy]], units: range) -> None:
    """Copy rows from the tensors of a file, which hold the rows of `units` under the names of `copies`."""
    if not any(copy.needs(units) for of_tensor in copies.values() for copy in of_tensor):
        return
    for key, first, block in checkpoint.blocks(file, copies):
        for copy in copies[key]:
            copy.take(block, units[first : first + len(block)])
