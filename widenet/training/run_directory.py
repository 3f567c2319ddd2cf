"""A run's directory: documents, vocabularies, checkpoints, log and the finished model."""

import errno
import io
import json
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from widenet.data.attributes import Attributes
from widenet.data.dataset import Dataset
from widenet.data.known import RUN_FIELDS, run_attributes, run_vocabulary
from widenet.data.manifest import sha256_of
from widenet.data.vocabulary import Vocabulary
from widenet.errors import CheckpointError, FitError, WidenetError, unwritten
from widenet.model.network import Network
from widenet.parallel.group import by_leader, by_some
from widenet.plan.binding import bind
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores.durable import force_all_to_disk
from widenet.stores.fetch import readable
from widenet.stores.runs import RunMirror
from widenet.training import cut, replacing
from widenet.training.checkpoint import Checkpoint, fingerprint, writing
from widenet.training.existing_run import DATA, FITTED, busy, check_run
from widenet.training.field_records import (
    FieldRecord,
    copy_names,
    read_records,
    record_of,
    write_records,
)
from widenet.training.publication import leads_folder, publish, recover
from widenet.training.run_log import FITS
from widenet.training.run_path import (
    START,
    VECTORS,
    check_free,
    drop_unfinished,
    locked,
    objects,
    put,
    start_of,
    values,
    without_weights,
    write_whole,
)
from widenet.training.saved_facts import WeightsFacts, facts_of

RECORDED = "documents"
"""The fact of a checkpoint that holds the digests of `DOCUMENTS`."""

DOCUMENTS = ("network.json", "training.json", RUN_FIELDS)
"""The files whose digests every checkpoint holds; fields.json holds the digests of the vocabularies."""
_FOR_PREDICTIONS = ("network.json", RUN_FIELDS)


@dataclass(frozen=True)
class RunDirectory:
    """The directory of one training.

    Attributes:
        path: Path of the directory.
        network: The network document.
        training: The training document.
        fields: Records of the dataset's fields, by name.
        digests: SHA-256 of `DOCUMENTS` when the run was opened.
        mirror: Publishes the directory in a store; None for a run that is on the disk alone.
    """

    path: Path
    network: NetworkSpec
    training: TrainingSpec
    fields: dict[str, FieldRecord]
    digests: dict[str, str] = field(default_factory=dict)
    mirror: RunMirror | None = field(default=None, repr=False, compare=False)
    _bound: Layout | None = field(default=None, repr=False, compare=False)
    _vocabularies: dict[str, Vocabulary] = field(default_factory=dict, repr=False, compare=False)
    _attributes: dict[str, Attributes] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    @contextmanager
    def begin(
        cls,
        path: Path,
        layout: Layout,
        dataset: Dataset,
        start_from: Path | None = None,
        overwrite: bool = False,
        vectors: Mapping[str, str] | None = None,
    ) -> "Iterator[RunDirectory]":
        """Make a directory with the documents and vocabularies, locked within the block.

        This replaces a run that ended before its first checkpoint, or with `overwrite` any run, which comes
        back if the block ends without a checkpoint. A dataset that was cut for the run moves into it; the run
        `start_from` has its first weights, `vectors` the digests of the files of vectors.

        Raises:
            CheckpointError: The path is taken, or cannot be written.
        """
        if not path.name:
            raise CheckpointError("must be a directory to make, not the current one", option="out")
        needed = [dataset.path, *([] if start_from is None else [start_from])]
        replacing.check(path, needed, overwrite)
        fields = {name: record_of(dataset, name) for name in layout.network.fields}
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        with ExitStack() as stack:
            try:
                beside.mkdir(parents=True)
                stack.enter_context(locked(beside))  # the lock survives the renaming
                (beside / "network.json").write_text(layout.network.to_json(), encoding="utf-8")
                (beside / "training.json").write_text(layout.training.to_json(), encoding="utf-8")
                write_records(beside / RUN_FIELDS, fields)
                if start_from is not None:
                    (beside / START).write_bytes(os.fsencode(start_from.resolve()))
                if vectors:
                    (beside / VECTORS).write_text(json.dumps(vectors), encoding="utf-8")
                copy_names(dataset, beside, fields)
                cut.take(dataset, path, beside)
                force_all_to_disk(beside)
                if overwrite:
                    replacing.set_aside(path, needed)
                put(beside, path, keeps_data=dataset.path.resolve() == (path / DATA).resolve())
            except OSError as error:
                if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                    check_free(path)
                    raise busy(path) from None
                raise CheckpointError(unwritten(path, error)) from None
            finally:
                shutil.rmtree(beside, ignore_errors=True)
            stack.callback(replacing.settle, path)
            with writing(path):
                drop_unfinished(path)
            yield cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open an existing run, or a copy of one in a store; raises CheckpointError, StoreError."""
        path = readable(path, "run")
        check_run(path)
        network, training = NetworkSpec.read(path / "network.json"), TrainingSpec.read(path / "training.json")
        fields = read_records(path / RUN_FIELDS)
        for name in network.fields:
            if name not in fields:
                raise CheckpointError(f'lacks field "{name}" of network.json', place=path / RUN_FIELDS)
        return cls(path, network, training, fields, {name: sha256_of(path / name) for name in DOCUMENTS})

    @cached_property
    def layout(self) -> Layout:
        """The run's network bound to the fields that it was trained on.

        Raises:
            FitError: The run's files were changed and no longer go together.
        """
        return self._bound or bind(self.network, self.training, self.fields)

    def bound(self, layout: Layout) -> "RunDirectory":
        """Return the same run with the layout of its training, so that nobody binds it again."""
        return replace(self, _bound=layout)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other trainings, and clean it up; the lock ends with the process."""
        with locked(self.path):
            with writing(self.path):
                recover(self.path)
                recover(self.path / "checkpoints")
                drop_unfinished(self.path)
            yield

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise FitError unless a dataset has this run's fields and vocabularies."""
        for name, record in self.fields.items():
            if name not in dataset.fields:
                rule = f'has no field "{name}", which {self.path} was trained on'
                raise FitError(rule, place=dataset.path)
            new = record_of(dataset, name)
            essential = ("kind", "width", "vocabulary_digest")
            if any(getattr(new, fact) != getattr(record, fact) for fact in essential):
                reason = (
                    f"{new.width:,} features for {record.width:,}"
                    if new.width != record.width
                    else "other features, or in another order"
                )
                rule = f'field "{name}" is not that of {self.path}: it has {reason}'
                raise FitError(rule, place=dataset.path)

    def vocabulary(self, field: str) -> Vocabulary:
        """Return the names of a field's features; raises FitError if the field has no vocabulary."""
        path = run_vocabulary(self.path, field)
        if not path.exists():
            raise FitError(f'field "{field}" has no vocabulary', place=self.path)
        if field not in self._vocabularies:
            self._vocabularies[field] = Vocabulary.open(path, self.fields[field].vocabulary_sha256)
        return self._vocabularies[field]

    def attributes(self, field: str) -> Attributes | None:
        """Return the attributes of a field's features; None if the run has none."""
        sha256, width = self.fields[field].attributes_sha256, self.fields[field].width
        if sha256 is not None and field not in self._attributes:
            self._attributes[field] = Attributes.open(run_attributes(self.path, field), width, sha256)
        return self._attributes.get(field)

    def save_checkpoint(
        self, network: Network, facts: Mapping[str, Any], position: tuple[int, int]
    ) -> Checkpoint:
        """Publish a checkpoint of (epoch, step), make it the newest, and drop those no longer kept."""
        path = self.checkpoint_path(position)
        checkpoint = publish(path, network, dict(facts), True, self.mirror)
        leads = leads_folder(network.exchange, self.mirror)
        by_some(network.exchange, leads, lambda: self.point_to(path.name), "checkpoint")
        return checkpoint

    def publish(self) -> None:
        """Publish the directory in its store, if it has one, from the leader; raises StoreError."""
        if self.mirror is not None and self.mirror.leads:
            self.mirror.publish()

    def checkpoint_path(self, position: tuple[int, int]) -> Path:
        """Return the path for the checkpoint of (epoch, step)."""
        return self.path / "checkpoints" / f"epoch-{position[0]:05d}-step-{position[1]:09d}"

    def point_to(self, name: str) -> None:
        """Make a checkpoint the newest; drop older ones beyond `keep_last`, and later ones."""
        folder = self.path / "checkpoints"
        write_whole(folder / "latest", f"{name}\n".encode())
        replacing.drop(self.path)
        checkpoints = sorted(path for path in folder.iterdir() if path.name.startswith("epoch-"))
        kept = [path for path in checkpoints if path.name <= name][-self.training.checkpoints.keep_last :]
        for path in (each for each in checkpoints if each not in kept):
            shutil.rmtree(path, ignore_errors=True)
        self.publish()

    def latest(self) -> Checkpoint | None:
        """Open the newest checkpoint; None if the run has none yet."""
        pointer, name = self.path / "checkpoints" / "latest", self._latest_name()
        if name is None:
            return None
        names = sorted(path.name for path in pointer.parent.glob("epoch-*") if path.is_dir())
        if name not in names:  # also refuses a path to elsewhere
            raise CheckpointError("must name a checkpoint beside it", place=pointer, value=name)
        return self._opened(pointer.parent / name)

    def _opened(self, path: Path, documents: Sequence[str] = DOCUMENTS) -> Checkpoint:
        """Open a checkpoint of this run; raises CheckpointError if documents have changed since."""
        checkpoint = Checkpoint.open(path)
        recorded = facts_of(checkpoint.facts).documents or {}
        for name in documents:
            if recorded.get(name) != self.digests[name]:
                raise CheckpointError(f"has changed since {path} was trained", place=self.path / name)
        return checkpoint

    def candidates(self) -> list[Callable[[], Checkpoint | None]]:
        """Return functions that open the checkpoints to try at a resume, in this order: latest first."""
        pointed = self._latest_name()
        others = sorted(
            (path for path in (self.path / "checkpoints").glob("epoch-*") if path.name != pointed),
            reverse=True,
        )
        return [self.latest, *(partial(self._opened, path) for path in others)]

    def listing(self) -> dict[str, str]:
        """Return the checkpoints that this process sees, to compare with other processes."""
        names = sorted(path.name for path in (self.path / "checkpoints").glob("epoch-*"))
        return {"newest checkpoint": self._latest_name() or "none", "checkpoints": ", ".join(names) or "none"}

    def _latest_name(self) -> str | None:
        """Return the name in the pointer to the newest checkpoint; None without a pointer."""
        pointer = self.path / "checkpoints" / "latest"
        return pointer.read_text(encoding="utf-8", errors="replace").strip() if pointer.is_file() else None

    def save_model(self, name: str, network: Network, facts: Mapping[str, Any]) -> Checkpoint:
        """Publish the weights alone, as "best", or with their fingerprint as "model".

        A store gets "best" with the next checkpoint.
        """
        own = {"fingerprint": fingerprint(network)} if name == "model" else {}
        recorded = {**facts, **own, RECORDED: self.digests}
        model = publish(self.path / name, network, recorded, False, self.mirror)
        if name == "model" and self.mirror is not None:
            by_leader(network.exchange, self.publish, "checkpoint")
        return model

    def best(self, state_epoch: int, best_epoch: int) -> Checkpoint:
        """Open the weights of the best evaluation.

        Weights from an epoch after `state_epoch` are accepted too: the resumed training will replace them.

        Args:
            state_epoch: Number of finished epochs of the training.
            best_epoch: Epoch of its best evaluation.

        Raises:
            CheckpointError: The weights are missing or of another epoch.
        """
        path = self.path / "best"
        if not path.is_dir():
            raise CheckpointError(f"is missing: the weights of epoch {best_epoch}", place=path)
        best = self._opened(path)
        epoch = WeightsFacts.of(best.facts).epoch
        if epoch != best_epoch and not (isinstance(epoch, int) and epoch > state_epoch):
            raise CheckpointError(f"must hold the weights of epoch {best_epoch}", place=path, value=epoch)
        return best

    def model(self) -> Checkpoint:
        """Open the finished model, or the newest checkpoint if the training has not ended.

        A finished model needs unchanged network.json and fields.json; a checkpoint also training.json.

        Raises:
            CheckpointError: The run has neither.
        """
        if (self.path / "model").exists():
            return self._opened(self.path / "model", _FOR_PREDICTIONS)
        latest = self.latest()
        if latest is None:
            raise without_weights(self.path)
        return latest

    @property
    def start(self) -> Path | None:
        """The run whose weights this one begins with; None if it begins with its initializers'."""
        return start_of(self.path)

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl."""
        path = self.path / "log.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def log_more(self, facts: Mapping[str, Any]) -> None:
        """Add entries to the last line of log.jsonl, in place: readers that follow the file see it grow."""
        path = self.path / "log.jsonl"
        with writing(path), path.open("r+b") as file:
            file.seek(-len(b"}\n"), io.SEEK_END)
            file.write(f", {json.dumps(facts)[1:]}\n".encode())

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of log.jsonl, one per epoch, without lines that a power cut has damaged."""
        return [record for record in values(self.path / "log.jsonl") if isinstance(record.get("epoch"), int)]

    def note_machine(self, facts: Mapping[str, Any]) -> None:
        """Write machine.json: where the training, or its latest part, runs; see `environment.machine`."""
        write_whole(self.path / "machine.json", f"{json.dumps(facts)}\n".encode())

    @property
    def machine(self) -> dict[str, Any]:
        """The contents of machine.json; empty if there is none."""
        return next(values(self.path / "machine.json"), {})

    def dataset(self) -> Dataset | None:
        """Open the dataset of the latest training; None if it is missing or no longer fits this run.

        A dataset in the run directory comes first: it moves with the run.
        """
        inside = self.path / DATA
        try:
            dataset = Dataset.open(inside if inside.is_dir() else str(self.machine["data"]))
            self.check_dataset(dataset)
        except (KeyError, WidenetError, OSError):
            return None
        return dataset

    def rewind_log(self, epochs: int) -> None:
        """Drop the lines of the log after the first `epochs`; these epochs will be trained again."""
        path = self.path / "log.jsonl"
        if path.exists():
            write_whole(path, without_fits(path.read_bytes().splitlines(keepends=True)[:epochs]))


def with_network_of(run: RunDirectory, weights: Checkpoint) -> RunDirectory:
    """Return a run with the network of its weights; terms are fitted to the final ones alone."""
    if "state" in weights.facts:
        return run
    spec = fitted_network(WeightsFacts.of(weights.facts))
    return run if spec is None else replace(run, network=spec, _bound=None)


def fitted_network(facts: WeightsFacts) -> NetworkSpec | None:
    """Return the network of final weights if its terms were fitted to them, else None."""
    return None if facts.network is None else NetworkSpec.of(facts.network, NetworkSpec.usual_name)


def saved_fit(run: RunDirectory, network: Network) -> dict[str, Any]:
    """Write the document of a network with fitted terms, for people; return the facts for its weights."""
    exchange, text = network.exchange, network.spec.to_json()
    leads = leads_folder(exchange, run.mirror)
    by_some(exchange, leads, lambda: write_whole(run.path / FITTED, text.encode()), "fitted network")
    return {"network": json.loads(text)}


def without_fits(lines: Sequence[bytes]) -> bytes:
    """Return lines of log.jsonl, the last one without fits: a training that resumes makes them again."""
    last: dict[str, Any] = next(objects(lines[-1:]), {})
    if FITS not in last:
        return b"".join(lines)
    kept = {name: value for name, value in last.items() if name != FITS}
    return b"".join([*lines[:-1], f"{json.dumps(kept)}\n".encode()])
