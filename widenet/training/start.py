"""Loads another run's weights into a new training; units are matched by the ids of their features."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.checkpoint import TRUNK, Checkpoint, in_trunk, wide_file
from widenet.errors import CheckpointError, FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.plan.by_examples import weights_by_examples
from widenet.plan.layout import Layout, Weight
from widenet.plan.shards import as_slice
from widenet.spec.layers import InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import check_finished
from widenet.training.saved_facts import TrainingFacts, WeightsFacts

_MOVED = "moved"
"""State that is not copied: the step that moved each row last. Steps are counted anew."""


def load_start(run: RunDirectory, network: Network, say: Callable[[str], None]) -> None:
    """Fill a network with the weights of the run that its own run starts from, if there is one.

    Units are matched by the ids of their features, in whatever shards they are; new units keep their initial
    weights. The optimizer's state is loaded too if both runs use the same kind of optimizer.

    Args:
        run: Run of the network.
        network: The network, initialized.
        say: Called with the number of matched features if not all match.

    Raises:
        CheckpointError: The other run has no finished model, or other layers.
        FitError: The fields of the runs do not go together.
    """
    if run.start is None:
        return
    check_finished(run.start)
    before = RunDirectory.open(run.start)
    model = before.model()
    before_facts = WeightsFacts.of(model.facts)
    if before_facts.in_8_bits:
        raise CheckpointError(
            f"{run.start} has weights in 8 bits, which are not trained further. Start from the run that it"
            " was made of."
        )
    _check_layers(before, network.layout)
    origins = {name: _origin(before, run, name, before_facts.imported is not None) for name in run.fields}
    _check_columns(before, network.layout, origins)
    last = _last_checkpoint(before, run, model)
    by_all(network.exchange, lambda: _Start(before, network, origins).load(model, last), "checkpoint")
    for name, origin in origins.items():
        num_known = int((origin >= 0).sum())
        if num_known < len(origin) or before.fields[name].width > num_known:
            counts = {
                "are new": len(origin) - num_known,
                "of its features are gone": before.fields[name].width - num_known,
            }
            rest = " and ".join(f"{number:,} {what}" for what, number in counts.items() if number)
            say(f'{run.start}: {num_known:,} features of field "{name}" begin with its weights; {rest}.')


def _check_layers(before: RunDirectory, layout: Layout) -> None:
    """Raise unless two runs have weights of the same names, sizes and kinds; their features may differ."""
    described = next((own for own in layout.weights.values() if own.describes is not None), None)
    if described is not None:
        raise CheckpointError(
            f'{before.path}: `start_from` does not go with "described_by" of layer "{described.layer}":'
            " attributes of the two datasets are not matched. Train without one of them."
        )
    old, new = dict(_sizes(before.layout)), dict(_sizes(layout))
    for name, weight in before.layout.weights.items():
        if weight.describes is not None:  # its rows are finished sums
            del old[name]
    for name in [*new, *old]:
        if old.get(name) != new.get(name):
            there, here = (
                "missing" if sizes is None else " x ".join(map(str, sizes))
                for sizes in (old.get(name), new.get(name))
            )
            remedy = "Name a run of the same layers."
            raise CheckpointError(
                f'{before.path}: weight "{name}" is {there}, here {here}: it is of another network. {remedy}'
            )


def _check_columns(before: RunDirectory, layout: Layout, origins: Mapping[str, np.ndarray]) -> None:
    """Raise if an output reads a sparse input whose features differ: columns of a weight are not matched."""
    old = before.layout.weights
    for name, weight in layout.weights.items():
        if not weight.by_columns:
            continue
        field = _input_field(layout.network, weight)
        same = np.arange(before.fields[field].width)
        if old[name].columns != weight.columns or not np.array_equal(origins[field], same):
            rule = (
                f'output "{weight.layer}" reads the sparse field "{field}" directly, so both runs must have'
                " the same features in the same order"
            )
            remedy = "Train without `start_from`, or put a hidden layer between them."
            raise CheckpointError(f"{before.path}: {rule}, with as many units; they differ. {remedy}")


def _sizes(layout: Layout) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield every weight of a layout with the sizes that must be equal."""
    for name, weight in layout.weights.items():
        has_field = weight.wide and not weight.split
        rows = f"units of {_field_of(layout.network, weight)}" if has_field else weight.rows
        columns = (
            f"features of {_input_field(layout.network, weight)}" if weight.by_columns else weight.columns
        )
        yield name, (rows,) if weight.columns is None else (rows, columns)


def _field_of(spec: NetworkSpec, weight: Weight) -> str:
    """Return the field whose features are the rows of a wide weight."""
    if weight.rows_are_features:
        return _input_field(spec, weight)
    owner = spec.layer(weight.layer)
    assert isinstance(owner, OutputLayer)
    return owner.field


def _input_field(spec: NetworkSpec, weight: Weight) -> str:
    """Return the field of the sparse input that a weight reads."""
    layer = None if weight.input is None else spec.layer(weight.input)
    assert isinstance(layer, InputLayer)
    return layer.field


def _origin(before: RunDirectory, run: RunDirectory, field: str, by_index: bool) -> np.ndarray:
    """Return the index of each feature in the earlier run, int64 [features]; -1 for new features.

    Args:
        before: The earlier run.
        run: The new run.
        field: A field of both.
        by_index: Whether to match features by their indices, as for an imported network without names.
    """
    if field not in before.fields:
        raise FitError(
            f'{before.path} has no field "{field}". Name a run that was trained on the same fields.'
        )
    old, new = before.fields[field], run.fields[field]
    digests = old.vocabulary_digest, new.vocabulary_digest
    if old.width == new.width and (by_index or None in digests or digests[0] == digests[1]):
        return np.arange(new.width)
    if None in digests:
        rule = (
            f'field "{field}" has {old.width:,} features in {before.path} and {new.width:,} here, and without'
            " a vocabulary in both"
        )
        raise FitError(
            f"{rule} features cannot be matched. Train on the same number of features, or with names."
        )
    origin = before.vocabulary(field).indices_of(run.vocabulary(field))
    if (origin < 0).all():
        raise FitError(
            f'field "{field}" has no feature that {before.path} knows. Name a run that was trained on the'
            " same features."
        )
    return origin


def _last_checkpoint(before: RunDirectory, run: RunDirectory, model: Checkpoint) -> Checkpoint | None:
    """Return the checkpoint whose optimizer state belongs to a finished model; None without one.

    There is none if the runs use different optimizers, or the model holds the weights of an earlier epoch.
    """
    if before.training.optimizer.kind != run.training.optimizer.kind:
        return None
    last, kept = before.latest(), WeightsFacts.of(model.facts)
    if last is None or (before.training.keep == "best" and kept.best_epoch not in (None, kept.epochs)):
        return None
    return last if TrainingFacts.of(last.facts).state.epoch == kept.epochs else None


class _Copy:
    """Copies rows of an earlier tensor [R, ...] into a tensor of the network.

    Args:
        target: The tensor of the network.
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
        rows, device = block.index_select(0, torch.from_numpy(places_U)), self._target.device
        self._target.index_copy_(0, torch.from_numpy(self._target_U[own_U]).to(device), rows.to(device))

    def _among(self, units: range) -> np.ndarray:
        """Return which of the earlier rows that are copied are among these."""
        first, last = np.searchsorted(self._source_U, (units.start, units.stop)).tolist()
        is_own = (self._source_U[first:last] - units.start) % units.step == 0
        own_U: np.ndarray = np.arange(first, last)[is_own]
        return own_U


@dataclass(frozen=True)
class _Start:
    """Loads an earlier run into a network of the same layers.

    Attributes:
        before: The earlier run.
        network: The network.
        origins: Index of each feature in the earlier run, by field; see `_origin`.
    """

    before: RunDirectory
    network: Network
    origins: Mapping[str, np.ndarray]

    def load(self, model: Checkpoint, last: Checkpoint | None) -> None:
        """Fill the shards of this process and the trunk, a block of an earlier tensor at a time."""
        old, new = self.before.layout, self.network.layout
        for name, wide in self.network.wide.items():
            origin = self._origin_of(name)
            targets = {shard: part.tensors() for shard, part in wide.parts.items()}
            cuts = {shard: origin[as_slice(wide.shards.units(shard))] for shard in targets}
            states = [
                key
                for key in next(iter(targets.values()))
                if key.startswith("state.") and not key.endswith(_MOVED)
            ]
            for checkpoint, keys in [(model, ["weight"]), *([] if last is None else [(last, states)])]:
                copies = {
                    key: [_Copy(targets[shard][key], cut) for shard, cut in cuts.items()] for key in keys
                }
                self._copy_weight(name, checkpoint, copies)
        self._load_trunk(model, last)
        for name, factors in self.network.damping.items():
            layer = new.network.layer(name)
            assert isinstance(layer, InputLayer)
            rows = old.units[name]
            copies = {f"damping.{name}": [_Copy(factors, self._origin(layer.field, rows, len(factors)))]}
            _copy(model, TRUNK, copies, range(rows))

    def _copy_weight(self, name: str, checkpoint: Checkpoint, copies: Mapping[str, list[_Copy]]) -> None:
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
        files = {
            wide_file(number, shard, shards.count): checkpoint.units(shards, shard)
            for shard in range(shards.count)
        }
        return {} if old.weights[name].split and not files.keys() <= checkpoint.files.keys() else files

    def _origin_of(self, name: str) -> np.ndarray:
        """Return the index of each row of a sharded weight in the earlier run, int64 [rows]."""
        weight, old = self.network.layout.weights[name], self.before.layout.weights[name]
        if weight.split:
            return np.arange(weight.rows)
        return self._origin(_field_of(self.network.layout.network, weight), old.rows, weight.rows)

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
        trunk, in_pieces = self.network.trunk, weights_by_examples(self.before.layout)
        for checkpoint, has_states in [(model, False), *([] if last is None else [(last, True)])]:
            whole: dict[str, Tensor] = {}
            for name, weight in trunk.items():
                tensors = {"weight": weight.tensor.detach()}
                if has_states:
                    tensors = {f"state.{key}": state for key, state in weight.state.items()}
                if self._shard_files(name, checkpoint):
                    rows = np.arange(len(weight.tensor))
                    copies = {key: [_Copy(tensor, rows)] for key, tensor in tensors.items()}
                    self._copy_weight(name, checkpoint, copies)
                elif has_states and name in in_pieces:
                    for key, tensor in tensors.items():
                        checkpoint.fill_numbers(in_trunk(name, key), 0, tensor.view(-1))
                else:
                    whole |= {in_trunk(name, key): tensor for key, tensor in tensors.items()}
            checkpoint.fill(TRUNK, whole)
            if has_states:
                pieces = self.network.pieces.by_shard.values()
                checkpoint.fill_state(part for parts in pieces for part in parts)


def _copy(checkpoint: Checkpoint, file: str, copies: Mapping[str, list[_Copy]], units: range) -> None:
    """Copy rows from the tensors of a file, which hold the rows of `units` under the names of `copies`."""
    if not any(copy.needs(units) for of_tensor in copies.values() for copy in of_tensor):
        return
    for key, first, block in checkpoint.blocks(file, copies):
        for copy in copies[key]:
            copy.take(block, units[first : first + len(block)])
