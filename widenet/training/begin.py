"""Begins or resumes a training: its run directory, the state of its loop, and the weights of another run."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from widenet.data.dataset import Dataset
from widenet.errors import CheckpointError, FitError, OptionError
from widenet.kernels.neighbour_means import NeighbourLists
from widenet.model.network import Network
from widenet.model.storage import put_rows
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, by_leader, by_some, check_agreement
from widenet.parallel.launch import launch_name
from widenet.plan.layout import Layout
from widenet.plan.tiles import as_slice
from widenet.spec.layers import OutputLayer
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores import cache
from widenet.stores.runs import RunMirror
from widenet.training.checkpoint import (
    NEIGHBOURHOOD,
    TRUNK,
    Checkpoint,
    in_trunk,
    leads_folder,
    shard_file,
)
from widenet.training.facts import COMPILED, NOT_COMPILED, changes, environment, facts_of_checkpoint
from widenet.training.run_directory import (
    RunDirectory,
    TrainingFacts,
    WeightsFacts,
    record_of,
    with_network_of,
)
from widenet.training.run_path import (
    DATA,
    beside,
    is_free,
    is_of_launch,
    launch_note,
    take,
    write_whole,
)
from widenet.training.run_path import check as check_path
from widenet.training.state import LoopState, Report


def begun(
    path: Path,
    layout: Layout,
    dataset: Dataset,
    start: Path | None,
    resume: bool,
    overwrite: bool,
    exchange: Exchange,
    stack: ExitStack,
    mirror: RunMirror | None = None,
) -> tuple[RunDirectory, Dataset]:
    """Make a run directory, or open one that was begun before; every process of the exchange must call this.

    Args:
        path: Path of the directory.
        layout: Layout of the training.
        dataset: Dataset of the training.
        start: Run whose weights a new training begins with; None: its initializers'.
        resume: Whether to open an existing run.
        overwrite: Whether a new run may replace an earlier one.
        exchange: Exchange between the processes.
        stack: Keeps the directory locked until it is closed.
        mirror: Publishes the run in a store; each machine then has a directory at the path.

    Returns:
        The run, and the dataset where it lies now.

    Raises:
        CheckpointError: The directory is taken, missing, or of another training.
        FitError: The run was begun on another dataset, or the weights to begin with do not fit.
    """

    def begin() -> None:
        reads_own = is_free(path) and dataset.path.resolve() == (path / DATA).resolve()
        if reads_own and not resume:  # what has no weights yet begins again in its place
            check_path(path, (), overwrite)
        if resume or reads_own:
            stack.enter_context(RunDirectory.open(path).locked())
            if dataset.path.parent == beside(path):
                take(path)  # made anew where the folder of the run was lost
            return
        if start is not None:
            match_start(start, layout, dataset)
        stack.enter_context(RunDirectory.begin(path, layout, dataset, start, overwrite))

    def check() -> tuple[RunDirectory, Dataset]:
        run, data = RunDirectory.open(path), dataset_of_run(dataset, path)
        _check_same(run, layout, data, start)
        return replace(run, mirror=mirror), data

    leads = leads_folder(exchange, mirror)
    by_some(exchange, leads, begin, "run directory")
    # A process that does not see the leader's files must not leave the others waiting.
    run, data = by_all(exchange, check, "run directory")
    if launch_name():
        names = "\n".join(dict.fromkeys(exchange.collect(launch_name(), "restart")))
        by_some(exchange, leads, lambda: write_whole(launch_note(path, mirror), names.encode()), "restart")
    return run, data


def dataset_of_run(dataset: Dataset, path: Path) -> Dataset:
    """Return a dataset where it lies now that the run at a path has begun."""
    return Dataset.open(path / DATA) if dataset.path.parent == beside(path) else dataset


def started_again(path: Path, mirror: RunMirror | None, exchange: Exchange) -> bool:
    """Return whether this group replaces an earlier one of the same launch by torchrun.

    torchrun counts restarts after a failure, only on the machine that lost a process, but not those after a
    machine has joined. In the latter case the run at the path is of this launch, unless the machine is new.
    """
    is_counted = int(os.environ.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0
    is_again = is_counted or is_of_launch(path, mirror, launch_name())
    return exchange.start_any([lambda: is_again], "restart")()[0]


def _check_same(run: RunDirectory, layout: Layout, dataset: Dataset, start: Path | None) -> None:
    """Raise CheckpointError or FitError unless a run can go on, and was begun with all of this."""
    can_resume = bool(run.checkpoints()) or not (run.path / "model").is_dir()
    rule = "holds a model, but no checkpoint that its training could go on from"
    CheckpointError.require(can_resume, rule, place=run.path)
    for before, now in ((run.network, layout.network), (run.training, layout.training)):
        keys = (key for key in type(now).model_fields if key != "track")  # it reaches no number
        changed = [key for key in keys if getattr(before, key) != getattr(now, key)]
        rule = f"was begun with another {now.usual_name}, which differs in {', '.join(changed)}"
        CheckpointError.require(not changed, rule, place=run.path)
    run.check_dataset(dataset)
    for field in map(layout.rows_field, layout.described.values()):
        known = run.fields[field].described_sha256
        is_same = known in (None, record_of(dataset, field).described_sha256)
        rule = f'describes the items of field "{field}" otherwise than when {run.path} was begun'
        FitError.require(is_same, rule, place=dataset.path)
    if start is not None and start.resolve() != run.start:
        # Each machine has its own copy of a run in a store, whose name holds the digest of the manifest.
        is_copy = cache.holds(start) and run.start is not None and start.name == run.start.name
        begun_with = "its initializers' weights" if run.start is None else f"those of {run.start}"
        rule = f"must be that with which {run.path} was begun: {begun_with}"
        CheckpointError.require(is_copy, rule, option="start_from", value=str(start))


def restored_state(run: RunDirectory, network: Network, dataset: Dataset, report: Report) -> LoopState:
    """Bring a network and a run's log to where its training stands.

    The newest checkpoint counts. If it is damaged or gone, the newest whole one counts, and the report says
    so.

    Returns:
        The state of the loop; that of a new training if there is no checkpoint.

    Raises:
        CheckpointError: No checkpoint can be read, although there is one.
        FitError, OptionError: The training would not have the bits of an undisturbed one.
    """
    state = LoopState()
    problem: CheckpointError | None = None
    paths = run.checkpoints()
    names = ", ".join(path.name for path in paths)
    check_agreement(network.exchange, {"checkpoints, newest first": names or "none"})
    for path in paths:
        try:
            facts = _read(run, network, dataset, path)
        except CheckpointError as error:
            problem = problem or error
            continue
        if problem is not None:
            report.say(f"{problem} Resuming from {path.name} instead.")
        state = facts.state
        changed = changes(facts.environment, network.device)
        if changed and not state.has_ended(run.training):
            rest = "from here on bits may differ from an undisturbed training's"
            what = f"other software or another processor ({'; '.join(changed)})"
            report.say(f"{run.path} resumes with {what}: {rest}.")
        break
    else:
        if problem is not None:
            raise problem
        load_start(run.start, network, dataset, report.say)
    if run.training.keep == "best" and (epoch := state.best_epoch) is not None:
        best = by_all(network.exchange, lambda: run.best(state.epoch, epoch), "checkpoint")
        best.check_files(network)
    by_leader(network.exchange, lambda: run.rewind_log(state.epoch), "log")
    return state


def _read(run: RunDirectory, network: Network, dataset: Dataset, path: Path) -> TrainingFacts:
    """Read a checkpoint into a network, and its facts; an error in one process is raised in all.

    Raises:
        CheckpointError: The checkpoint cannot be read.
        FitError, OptionError: Resuming would not give the bits of an undisturbed training.
    """
    checkpoint = by_all(network.exchange, lambda: run.checkpoint(path), "checkpoint")
    check_agreement(network.exchange, facts_of_checkpoint(checkpoint))
    facts, now = TrainingFacts.of(checkpoint.facts), environment(network.device)
    before, device = facts.environment, now["device"]
    rule = f"does not hold the examples that {run.path} was begun with"
    FitError.require(facts.examples == dataset.digest, rule, place=dataset.path)
    rule = f'must be "{before["device"]}", on which {run.path} was begun'
    OptionError.require(before["device"] == device, rule, option="device", value=device)
    is_same = (before[COMPILED] == NOT_COMPILED) == (now[COMPILED] == NOT_COMPILED)
    rule = f'was begun with compiled code "{before[COMPILED]}", which rounds in its own way'
    FitError.require(is_same, rule, place=run.path, value=now[COMPILED])
    checkpoint.load_into(network, with_state=True)
    return facts


def copy_rows(
    checkpoint: Checkpoint,
    files: Mapping[str, range],
    key: str,
    targets: Iterable[tuple[Tensor, np.ndarray]],
) -> None:
    """Copy rows of an earlier tensor [R, ...] into tensors of the network, rounded to their types.

    Args:
        checkpoint: Has the earlier tensor, which is read a block at a time.
        files: The files that it lies in, with their rows.
        key: Its name there.
        targets: Each tensor of the network with the index of the earlier row for each of its rows, int64; -1
            for new rows.
    """
    pending = []
    for target, origin in targets:
        known_U = np.flatnonzero(origin >= 0)
        target_U = known_U[np.argsort(origin[known_U], kind="stable")]
        pending.append((target, target_U, origin[target_U]))
    for file, units in files.items():
        is_needed = any(len(_among(source_U, units)) for _, _, source_U in pending)
        for first, block in checkpoint.blocks(file, key) if is_needed else ():
            own = units[first : first + len(block)]
            for target, target_U, source_U in pending:
                own_U = _among(source_U, own)
                places_U = torch.from_numpy((source_U[own_U] - own.start) // own.step)
                rows = block.index_select(0, places_U).to(target.device, target.dtype)
                put_rows(target, torch.from_numpy(target_U[own_U]).to(target.device), rows)


def _among(source_U: np.ndarray, units: range) -> np.ndarray:
    """Return which of some ascending rows are among these."""
    own_U = np.arange(*np.searchsorted(source_U, (units.start, units.stop)))
    is_own = (source_U[own_U] - units.start) % units.step == 0
    return np.asarray(own_U[is_own])


@dataclass(frozen=True)
class Matched:
    """An earlier run, and the weights that a new network begins with.

    Attributes:
        run: The earlier run, with the network of its weights.
        model: Its weights.
        names: Names of the weights that both have in the same sizes.
        left: Names of the other weights of the network.
        unused: Names of the other weights of the run.
        origins: Index of each feature in the earlier run, by field; -1 for new features.
    """

    run: RunDirectory
    model: Checkpoint
    names: Sequence[str]
    left: Sequence[str]
    unused: Sequence[str]
    origins: Mapping[str, np.ndarray]

    def origin_of(self, field: str, old_units: int, units: int) -> np.ndarray:
        """Return the index of each unit of a field in the earlier run, int64 [units].

        Units beyond the features have no names and keep their index.
        """
        origin = np.full(units, -1)
        named = self.origins[field][:units]
        origin[: len(named)] = named
        before = self.run.fields[field].width
        nameless = np.arange(max(len(named), before), min(units, old_units))
        origin[nameless] = nameless
        return origin

    def sentences(self) -> Iterator[str]:
        """Say which weights and features begin with those of the run, and which do not."""
        whole = len(self.names) + len(self.left)
        lists = {"as initialized": self.left, "not used": self.unused}
        rest = "".join(f"; {what}: {', '.join(names)}" for what, names in lists.items() if names)
        yield f"{self.run.path}: {len(self.names)} of {whole} weights begin with those of this run{rest}."
        for name, origin in self.origins.items():
            known, before = int((origin >= 0).sum()), self.run.fields[name].width
            if known < max(len(origin), before):
                yield (
                    f'{self.run.path}: {known:,} features of field "{name}" begin with its weights;'
                    f" {len(origin) - known:,} are new, and {before - known:,} of its features are gone."
                )


def _sizes(layout: Layout) -> dict[str, tuple[object, ...]]:
    """Return the sizes of every weight that must be equal, without outputs on sparse inputs.

    Rows that attributes describe are whole sums.
    """
    sizes: dict[str, tuple[object, ...]] = {}
    for name, weight in layout.weights.items():
        if weight.describes is None and not weight.by_columns:
            has_field = weight.wide and not weight.split
            sizes[name] = layout.rows_field(weight) if has_field else weight.rows, weight.columns
    return sizes


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


def keep_neighbours(matched: Matched, network: Network) -> None:
    """Replace what was counted for known units by the neighbours in an earlier run; new units keep it."""
    before = matched.run.layout
    names = [output.name for output in before.network.outputs]
    for output in outputs_near(before.network, network.spec):
        assert output.neighbourhood is not None
        shards, own = before.shards(before.units[output.name]), network.outputs[output.name]
        origin = torch.from_numpy(matched.origin_of(output.field, shards.width, own.width))
        now = torch.full((shards.width,), -1)
        now[origin[origin >= 0]] = torch.nonzero(origin >= 0)[:, 0]
        kept = []
        for shard in range(shards.count):
            units, places = shards.units(shard), output.neighbourhood.neighbours
            lists = NeighbourLists.blank(units, places, torch.device("cpu"))
            file = shard_file(NEIGHBOURHOOD, names.index(output.name), shard, shards.count)
            matched.model.fill(file, lists.tensors())
            unit_Z, neighbour_Z, similarity_Z = lists.entries()
            entries = torch.stack((now[unit_Z], now[neighbour_Z]))
            is_known_Z = (entries >= 0).all(dim=0)
            kept.append((*entries[:, is_known_Z], similarity_Z[is_known_Z]))
        for lists in own.lists.values():
            counted = lists.entries()
            is_new_Z = origin[counted[0]] < 0
            lists.fill(*map(torch.cat, zip(*kept, [each[is_new_Z] for each in counted], strict=True)))


_MOVED = "moved"
"""State that is not copied: the step that moved each row last. Steps are counted anew."""


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
    matched = match_start(start, network.layout, dataset)
    last = _last_checkpoint(matched, network.layout.training)
    by_all(network.exchange, lambda: _load(matched, network, last), "checkpoint")
    for sentence in matched.sentences():
        say(sentence)


def match_start(start: Path, layout: Layout, dataset: Dataset) -> Matched:
    """Find what a layout begins with of a run; raises as `load_start`."""
    before, require = RunDirectory.open(start), CheckpointError.require
    require((before.path / "model").is_dir(), "holds no finished model to start from", place=start)
    model = before.model()
    before, facts = with_network_of(before, model), WeightsFacts.of(model.facts)
    require(not facts.in_8_bits, "has weights in 8 bits, which are not trained further", place=start)
    for own in layout.weights.values():
        rule = f'does not go with described_by of layer "{own.layer}"'
        require(own.describes is None, rule, place=start, option="start_from")
    old, new = _sizes(before.layout), _sizes(layout)
    names = [name for name, sizes in new.items() if old.get(name) == sizes]
    by_index = facts.imported is not None
    weights = {name: layout.weights[name] for name in names}
    fields = [layout.rows_field(weight) for weight in weights.values() if weight.wide and not weight.split]
    fields += _damped(before.network, layout.network).values()
    fields += [output.field for output in outputs_near(before.network, layout.network)]
    origins = {name: _origin(before, dataset, name, by_index) for name in dict.fromkeys(fields)}
    left = [name for name in layout.weights if name not in names]
    has_matrix = any(layout.weights[name].columns for name in names)
    rule = f"has no weight of a name and sizes as here: {', '.join(left)}"
    require(has_matrix or not left, rule, place=before.path)
    return Matched(before, model, names, left, [name for name in old if name not in new], origins)


def _damped(before: NetworkSpec, spec: NetworkSpec) -> dict[str, str]:
    """Return the inputs whose damping begins with that of an earlier network, with their fields."""
    old = {(layer.name, layer.field) for layer in before.inputs if layer.popularity_damping}
    new = {layer.name: layer.field for layer in spec.inputs if layer.popularity_damping}
    return {name: field for name, field in new.items() if (name, field) in old}


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
    rule = (
        f'field "{field}" has {old.width:,} features in {before.path} and {new.width:,} here, and without'
        " a vocabulary in both features cannot be matched"
    )
    FitError.require(None not in digests, rule, place=before.path)
    origin = before.vocabulary(field).indices_of(dataset.vocabulary(field))
    FitError.require((origin >= 0).any(), f'knows no feature of field "{field}"', place=before.path)
    return origin


def _last_checkpoint(matched: Matched, training: TrainingSpec) -> Checkpoint | None:
    """Return the checkpoint whose optimizer state belongs to a finished model; None without one.

    There is none if the runs use different optimizers or shapes of their state, or if the model holds the
    weights of an earlier epoch.
    """
    before, kept = matched.run, WeightsFacts.of(matched.model.facts)
    is_last = before.training.keep == "last" or kept.best_epoch in (None, kept.epochs)
    old, new = before.training.optimizer, training.optimizer
    has_shapes = getattr(old, "per_row", False) == getattr(new, "per_row", False)
    if old.kind != new.kind or not has_shapes or not is_last:
        return None
    last = before.latest()
    return None if last is None or TrainingFacts.of(last.facts).state.epoch != kept.epochs else last


def _load(matched: Matched, network: Network, last: Checkpoint | None) -> None:
    """Fill this process's shards and the trunk, and the optimizer's state if a checkpoint has it."""
    old = matched.run.layout
    for name in matched.names:
        files, parts, weight = _files_of(old, name), _parts(network, name), network.layout.weights[name]
        origin = np.arange(weight.rows)
        if weight.wide and not weight.split:
            field = network.layout.rows_field(weight)
            origin = matched.origin_of(field, old.weights[name].rows, weight.rows)
        for key in parts[0][1]:
            checkpoint = matched.model if key == "weight" else last if old.weights[name].trained else None
            if checkpoint is not None and key != _MOVED:
                targets = [(tensors[key], origin[as_slice(units)]) for units, tensors in parts]
                copy_rows(checkpoint, files, key if name in old.sharded else in_trunk(name, key), targets)
    for name, field in _damped(old.network, network.spec).items():
        factors = network.damping[name]
        targets = [(factors, matched.origin_of(field, old.units[name], len(factors)))]
        copy_rows(matched.model, {TRUNK: range(old.units[name])}, f"damping.{name}", targets)
    keep_neighbours(matched, network)


def _parts(network: Network, name: str) -> list[tuple[range, dict[str, Tensor]]]:
    """Return this process's tensors of a weight by name, with their rows: those of each shard, or all."""
    if name in network.wide:
        wide = network.wide[name]
        return [(wide.shards.units(shard), part.tensors()) for shard, part in wide.parts.items()]
    trunk = network.trunk[name]
    return [(range(len(trunk.tensor)), trunk.tensors())]


def _files_of(layout: Layout, name: str) -> dict[str, range]:
    """Return the files of a weight with the units of their rows."""
    rows = layout.weights[name].rows
    if name not in layout.sharded:
        return {TRUNK: range(rows)}
    number, shards = layout.sharded.index(name), layout.shards(rows)
    names = [shard_file("wide", number, shard, shards.count) for shard in range(shards.count)]
    return {file: shards.units(shard) for shard, file in enumerate(names)}
