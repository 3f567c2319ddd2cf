"""The weights that a training begins with, where they are those of another run: units keep theirs by the
ids of their features.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from widenet.checkpoint import TRUNK, Checkpoint, wide_file
from widenet.errors import CheckpointError, FitError
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.plan.layout import Layout, Weight
from widenet.spec.layers import InputLayer, OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.training.run_directory import RunDirectory
from widenet.training.run_path import check_finished
from widenet.training.saved_facts import TrainingFacts, WeightsFacts

_MOVED = "moved"
"""Numbers of steps, which begin anew."""


def load_start(run: RunDirectory, network: Network, say: Callable[[str], None]) -> None:
    """Fill a network with what its run begins with, where that is another run: its weights, and what it kept
    of the same optimizer.

    Units keep theirs by the ids of their features, whatever shards they are in; new ones keep what they were
    initialized with.
    say: is told how many features are known, where not all are. Raises CheckpointError, FitError.
    """
    if run.start is None:
        return
    check_finished(run.start)
    before = RunDirectory.open(run.start)
    model = before.model()
    before_facts = WeightsFacts.of(model.facts)
    _check_layers(before, network.layout)
    known = {name: _known(before, run, name, before_facts.imported is not None) for name in run.fields}
    _check_columns(before, network.layout, known)
    last = _last_checkpoint(before, run, model)
    by_all(network.exchange, lambda: _Start(before, network, known).load(model, last), "checkpoint")
    for name, origin in known.items():
        num_known = int((origin >= 0).sum())
        if num_known < len(origin) or before.fields[name].width > num_known:
            counts = {
                "are new": len(origin) - num_known,
                "of its features are gone": before.fields[name].width - num_known,
            }
            rest = " and ".join(f"{number:,} {what}" for what, number in counts.items() if number)
            say(
                f'{run.start}: {num_known:,} features of field "{name}" begin with what they had there;'
                f" {rest}."
            )


def _check_layers(before: RunDirectory, layout: Layout) -> None:
    """Raise where two runs have weights of different names, sizes or kinds, but for their features."""
    old, new = (dict(_sizes(each)) for each in (before.layout, layout))
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


def _check_columns(before: RunDirectory, layout: Layout, known: Mapping[str, np.ndarray]) -> None:
    """Raise where an output stands on a sparse input whose features are not the same in both runs: its
    columns stay where they are.
    """
    old = before.layout.weights
    for name, weight in layout.weights.items():
        if not weight.by_columns:
            continue
        field = _input_field(layout.network, weight)
        same = np.arange(before.fields[field].width)
        if old[name].columns != weight.columns or not np.array_equal(known[field], same):
            rule = (
                f'output "{weight.layer}" stands on field "{field}", whose features must be the same in the'
                " same order"
            )
            remedy = "Train without `start_from`, or put a hidden layer between them."
            raise CheckpointError(f"{before.path}: {rule}, with as much room; they differ. {remedy}")


def _sizes(layout: Layout) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Every weight of a layout, and what must be equal of it."""
    for name, weight in layout.weights.items():
        rows = f"units of {_field_of(layout.network, weight)}" if weight.wide else weight.rows
        columns = (
            f"features of {_input_field(layout.network, weight)}" if weight.by_columns else weight.columns
        )
        yield name, (rows,) if weight.columns is None else (rows, columns)


def _field_of(spec: NetworkSpec, weight: Weight) -> str:
    """The field whose features the rows of a wide weight are."""
    if weight.rows_are_features:
        return _input_field(spec, weight)
    owner = spec.layer(weight.layer)
    assert isinstance(owner, OutputLayer)
    return owner.field


def _input_field(spec: NetworkSpec, weight: Weight) -> str:
    """The field of the sparse input that a weight meets."""
    met = None if weight.input is None else spec.layer(weight.input)
    assert isinstance(met, InputLayer)
    return met.field


def _known(before: RunDirectory, run: RunDirectory, field: str, by_index: bool) -> np.ndarray:
    """Which feature of an earlier run each feature of a field was, int64 [features]; -1 for new ones.

    by_index: features of an equal number are the same whatever they are called, as in a network whose file
    named none.
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
            f'field "{field}" has {old.width:,} features in {before.path}, here {new.width:,}, and without a'
            " vocabulary in both"
        )
        raise FitError(
            f"{rule} nobody knows which are the same. Train on features of the same number, or with names."
        )
    found = before.vocabulary(field).indices_of(run.vocabulary(field))
    if (found < 0).all():
        raise FitError(
            f'field "{field}" has no feature that {before.path} knows. Name a run that was trained on such'
            " features."
        )
    return found


def _last_checkpoint(before: RunDirectory, run: RunDirectory, model: Checkpoint) -> Checkpoint | None:
    """The checkpoint with the optimizer's state that belongs to a finished model, if the run has it and
    its kind is this run's.
    """
    if before.training.optimizer.kind != run.training.optimizer.kind:
        return None
    last, kept = before.latest(), WeightsFacts.of(model.facts)
    if last is None or (before.training.keep == "best" and kept.best_epoch not in (None, kept.epochs)):
        return None
    return last if TrainingFacts.of(last.facts).state.epoch == kept.epochs else None


class _Copy:
    """Rows that go from an earlier tensor [R, ...] into one of the network. origin: the row that each row
    was, int64; -1 for new ones.
    """

    def __init__(self, target: Tensor, origin: np.ndarray) -> None:
        known_U = np.flatnonzero(origin >= 0)
        self._target = target
        self._target_U = known_U[np.argsort(origin[known_U], kind="stable")]
        self._source_U = origin[self._target_U]

    def needs(self, start: int, stop: int) -> bool:
        """Whether some rows of the source are asked for."""
        first, last = np.searchsorted(self._source_U, (start, stop))
        return bool(first < last)

    def take(self, block: Tensor, start: int) -> None:
        """Copy what is asked for of a block of the source that begins at a row."""
        first, last = np.searchsorted(self._source_U, (start, start + len(block)))
        rows = block.index_select(0, torch.from_numpy(self._source_U[first:last] - start))
        device = self._target.device
        self._target.index_copy_(0, torch.from_numpy(self._target_U[first:last]).to(device), rows.to(device))


@dataclass(frozen=True)
class _Start:
    """An earlier run, a network of the same layers, and which feature of each field each was."""

    before: RunDirectory
    network: Network
    known: Mapping[str, np.ndarray]

    def load(self, model: Checkpoint, last: Checkpoint | None) -> None:
        """Fill the shards at hand and the trunk; memory holds a block of an earlier tensor at a time."""
        old, new = self.before.layout, self.network.layout
        for number, (name, wide) in enumerate(self.network.wide.items()):
            field = _field_of(new.network, new.weights[name])
            origin = self._origin(field, old.weights[name].rows, wide.shards.width)
            shards = old.shards(old.weights[name].rows)
            targets = {shard: part.tensors() for shard, part in wide.parts.items()}
            cuts = {shard: origin[wide.shards.start(shard) : wide.shards.stop(shard)] for shard in targets}
            states = [
                key
                for key in next(iter(targets.values()))
                if key.startswith("state.") and not key.endswith(_MOVED)
            ]
            for checkpoint, keys in [(model, ["weight"]), *([] if last is None else [(last, states)])]:
                copies = {
                    key: [_Copy(targets[shard][key], cut) for shard, cut in cuts.items()] for key in keys
                }
                for shard in range(shards.count):
                    _copy(
                        checkpoint,
                        wide_file(number, shard, shards.count),
                        copies,
                        shards.start(shard),
                        shards.stop(shard),
                    )
        self._load_trunk(model, last)
        for name, factors in self.network.damping.items():
            layer = new.network.layer(name)
            assert isinstance(layer, InputLayer)
            rows = old.units[name]
            copies = {f"damping.{name}": [_Copy(factors, self._origin(layer.field, rows, len(factors)))]}
            _copy(model, TRUNK, copies, 0, rows)

    def _origin(self, field: str, old_units: int, units: int) -> np.ndarray:
        """Which unit each unit was, int64 [units]; those beyond the features have no names, and stay where
        they are.
        """
        found = np.full(units, -1)
        named = self.known[field][:units]
        found[: len(named)] = named
        nameless = np.arange(max(len(named), self.before.fields[field].width), min(units, old_units))
        found[nameless] = nameless
        return found

    def _load_trunk(self, model: Checkpoint, last: Checkpoint | None) -> None:
        trunk = self.network.trunk
        model.fill(TRUNK, {f"weight.{name}": weight.tensor for name, weight in trunk.items()})
        if last is not None:
            last.fill(
                TRUNK,
                {
                    f"state.{name}.{key}": state
                    for name, weight in trunk.items()
                    for key, state in weight.state.items()
                },
            )


def _copy(
    checkpoint: Checkpoint, file: str, copies: Mapping[str, list[_Copy]], start: int, stop: int
) -> None:
    """Copy what is asked for of the tensors of a file, by their names there; they hold the rows [start,
    stop).
    """
    if not any(copy.needs(start, stop) for each in copies.values() for copy in each):
        return
    for key, first, block in checkpoint.blocks(file, copies):
        for copy in copies[key]:
            copy.take(block, start + first)
