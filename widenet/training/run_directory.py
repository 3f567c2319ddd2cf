"""A run's directory: documents, records of its fields, checkpoints with their facts, log and model."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, FiniteFloat, PositiveInt, TypeAdapter

from widenet.data.attributes import Attributes
from widenet.data.dataset import Dataset
from widenet.data.described import described_file
from widenet.data.known import RUN_FIELDS, run_attributes, run_vocabulary
from widenet.data.manifest import WHOLE_NUMBERS, sha256_of
from widenet.data.vocabulary import Vocabulary
from widenet.errors import CheckpointError, FitError, WidenetError, damage_of
from widenet.model.network import Network
from widenet.parallel.group import by_leader, by_some
from widenet.plan.binding import bind
from widenet.plan.layout import Layout
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.stores.durable import remove
from widenet.stores.runs import RunMirror
from widenet.training import run_path
from widenet.training.checkpoint import Checkpoint, fingerprint, leads_folder, publish
from widenet.training.run_path import (
    DATA,
    DOCUMENTS,
    FITTED,
    START,
    check_run,
    locked,
    values,
    write_whole,
    writing,
)
from widenet.training.state import LoopState

RECORDED = "documents"
"""The fact of a checkpoint that holds the digests of `DOCUMENTS`."""

_FOR_PREDICTIONS = ("network.json", RUN_FIELDS)
_BLOCK = 65_536


class FieldRecord(BaseModel, frozen=True, strict=True, extra="forbid"):
    """Facts of a dataset's field."""

    kind: Literal["sparse", "dense", "sequence"]
    width: PositiveInt
    """Number of features, or numbers of an example."""
    min_value: FiniteFloat
    """Smallest stored value; 1 without values."""
    max_value: FiniteFloat
    """Largest stored value; 1 without values."""
    vocabulary_digest: str | None
    """SHA-256 over the ids of the features, in order; None without a vocabulary."""
    vocabulary_sha256: str | None = None
    """SHA-256 of the run's vocabulary file; None without one."""
    whole_numbers: bool = False
    """Whether the ids of the features were numbers in the data."""
    attributes_sha256: str | None = None
    """SHA-256 of the run's file of the features' attributes; None without one."""
    described: dict[str, PositiveInt] = {}
    """Number of attributes of each description of the features, by name."""
    described_sha256: str | None = None
    """SHA-256 of the dataset's file of descriptions; None without one."""


_RECORDS = TypeAdapter(dict[str, FieldRecord])


def record_of(dataset: Dataset, name: str) -> FieldRecord:
    """Return the record of a dataset's field."""
    stored = dataset.field(name)
    facts: dict[str, Any] = {key: getattr(stored, key) for key in ("kind", "width", "min_value", "max_value")}
    if stored.vocabulary is None:
        return FieldRecord(**facts, vocabulary_digest=None)
    attributes, descriptions = dataset.attributes(name), dataset.manifest.files.get(described_file(name))
    names, whole = dataset.vocabulary(name), dataset.manifest.source.get(WHOLE_NUMBERS, [])
    return FieldRecord(
        **facts,
        vocabulary_digest=digest_of(names),
        vocabulary_sha256=sha256_of(names.path),
        whole_numbers=isinstance(whole, list) and name in whole,
        attributes_sha256=None if attributes is None else sha256_of(attributes.path),
        described=dict(stored.described),
        described_sha256=None if descriptions is None else descriptions.sha256,
    )


def digest_of(vocabulary: Vocabulary) -> str:
    """Return the SHA-256 over the ids of a vocabulary, in order."""
    digest = hashlib.sha256()
    for start in range(0, len(vocabulary), _BLOCK):
        ids = vocabulary.ids(range(start, min(start + _BLOCK, len(vocabulary))))
        digest.update(json.dumps(ids).encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class TrainingFacts:
    """Facts of a checkpoint from which a training resumes.

    Attributes:
        state: Where the training stands.
        examples: Digest of the examples it trains on.
        steps_per_epoch: Number of steps of an epoch.
        environment: Everything that decides how its numbers round.
        documents: SHA-256 of the run's documents.
    """

    state: LoopState
    examples: str
    steps_per_epoch: int
    environment: Mapping[str, str]
    documents: Mapping[str, str]

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "TrainingFacts":
        """Read the facts of a checkpoint."""
        return cls(**{**facts, "state": LoopState(**facts["state"])})


@dataclass(frozen=True)
class WeightsFacts:
    """Facts of weights alone: of a finished model, an imported one, or the best evaluation so far.

    Attributes:
        epochs: Number of epochs of a finished model.
        best_epoch: Epoch of the best value of its metric.
        examples: Digest of the examples it was trained on.
        imported: Name of the file it was imported from, if its features have no names.
        epoch: Epoch of the best evaluation so far.
        metrics: Metrics of this evaluation; or of final weights whose neighbourhood terms were fitted.
        fingerprint: SHA-256 of the weights alone.
        in_8_bits: Whether wide matrices are whole numbers in 8 bits, with a scale for each row.
        network: The network document with the neighbourhood terms that were fitted when training ended.
        made_of: Path of the run that it was made of, if it was made of one.
    """

    epochs: int | None = None
    best_epoch: int | None = None
    examples: str | None = None
    imported: str | None = None
    epoch: int | None = None
    metrics: Mapping[str, float] | None = None
    fingerprint: str | None = None
    in_8_bits: bool = False
    network: Mapping[str, Any] | None = None
    made_of: str | None = None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "WeightsFacts":
        """Read the facts of weights."""
        return cls(**{known.name: facts[known.name] for known in fields(cls) if known.name in facts})

    @property
    def form(self) -> str | None:
        """What was changed after the training, in words; None if nothing was."""
        return "in 8 bits" if self.in_8_bits else None


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
        is_whole: bool = False,
    ) -> "Iterator[RunDirectory]":
        """Make a directory with the documents and vocabularies, locked within the block.

        A dataset that was cut for the run moves into it; the run `start_from` has its first weights. See
        `run_path.begun` for the rest.
        """
        needed = [dataset.path, *([] if start_from is None else [start_from])]

        def fill(new: Path) -> None:
            fields = {name: record_of(dataset, name) for name in layout.network.fields}
            (new / "network.json").write_text(layout.network.to_json(), encoding="utf-8")
            (new / "training.json").write_text(layout.training.to_json(), encoding="utf-8")
            (new / RUN_FIELDS).write_bytes(_RECORDS.dump_json(fields, indent=2))
            if start_from is not None:
                (new / START).write_bytes(os.fsencode(start_from.resolve()))
            (new / "vocabulary").mkdir()
            for name, record in fields.items():
                if record.vocabulary_digest is not None:
                    shutil.copyfile(dataset.vocabulary(name).path, run_vocabulary(new, name))
                if (attributes := dataset.attributes(name)) is not None:
                    (new / "attributes").mkdir(exist_ok=True)
                    shutil.copyfile(attributes.path, run_attributes(new, name))

        with run_path.begun(path, fill, needed, overwrite, is_whole):
            yield cls.open(path)

    @classmethod
    def open(cls, path: Path) -> "RunDirectory":
        """Open an existing run, or a copy of one in a store; raises CheckpointError, StoreError."""
        path = check_run(path)
        network, training = NetworkSpec.read(path / "network.json"), TrainingSpec.read(path / "training.json")
        try:
            fields = _RECORDS.validate_json((path / RUN_FIELDS).read_bytes())
        except (OSError, ValueError) as error:
            raise CheckpointError(f"is damaged: {damage_of(error)}", place=path / RUN_FIELDS) from None
        for name in network.fields:
            rule = f'lacks field "{name}" of network.json'
            CheckpointError.require(name in fields, rule, place=path / RUN_FIELDS)
        return cls(path, network, training, fields, {name: sha256_of(path / name) for name in DOCUMENTS})

    @cached_property
    def layout(self) -> Layout:
        """The run's network bound to the fields that it was trained on.

        Raises:
            FitError: The run's files were changed and no longer go together.
        """
        return bind(self.network, self.training, self.fields)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the directory against other trainings, and clean it up; the lock ends with the process."""
        with locked(self.path):
            with writing(self.path):
                run_path.recover(self.path)
                run_path.recover(self.path / "checkpoints")
            yield

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise FitError unless a dataset has this run's fields and vocabularies."""
        for name, record in self.fields.items():
            new = record_of(dataset, name) if name in dataset.fields else None
            essential = ("kind", "width", "vocabulary_digest")
            is_same = all(getattr(new, fact, None) == getattr(record, fact) for fact in essential)
            rule = f'field "{name}" must have the {record.width:,} features of {self.path} in their order'
            FitError.require(is_same, rule, place=dataset.path)

    def vocabulary(self, field: str) -> Vocabulary:
        """Return the names of a field's features; raises FitError if the field has no vocabulary."""
        path = run_vocabulary(self.path, field)
        FitError.require(path.exists(), f'field "{field}" has no vocabulary', place=self.path)
        if field not in self._vocabularies:
            self._vocabularies[field] = Vocabulary.open(path, self.fields[field].vocabulary_sha256)
        return self._vocabularies[field]

    def attributes(self, field: str) -> Attributes | None:
        """Return the attributes of a field's features; None if the run has none."""
        sha256, width = self.fields[field].attributes_sha256, self.fields[field].width
        if sha256 is not None and field not in self._attributes:
            self._attributes[field] = Attributes.open(run_attributes(self.path, field), width, sha256)
        return self._attributes.get(field)

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
        remove(run_path.replaced(self.path))
        checkpoints = sorted(path for path in folder.iterdir() if path.name.startswith("epoch-"))
        kept = [path for path in checkpoints if path.name <= name][-self.training.checkpoints.keep_last :]
        for path in (each for each in checkpoints if each not in kept):
            remove(path)
        self.publish()

    def checkpoints(self) -> list[Path]:
        """Return the paths of the checkpoints, newest first: the one that `latest` names, then the others."""
        folder = self.path / "checkpoints"
        paths = sorted(folder.glob("epoch-*"), reverse=True)
        if (pointer := folder / "latest").is_file():
            name = pointer.read_text(encoding="utf-8", errors="replace").strip()
            newest = folder / Path(name).name
            paths = [newest, *(path for path in paths if path != newest)]
        return paths

    def latest(self) -> Checkpoint | None:
        """Open the newest checkpoint; None if the run has none yet."""
        paths = self.checkpoints()
        return self.checkpoint(paths[0]) if paths else None

    def checkpoint(self, path: Path, documents: Sequence[str] = DOCUMENTS) -> Checkpoint:
        """Open a checkpoint of this run; raises CheckpointError if documents have changed since."""
        checkpoint = Checkpoint.open(path)
        recorded = checkpoint.facts.get(RECORDED) or {}
        for name in documents:
            is_same, rule = recorded.get(name) == self.digests[name], f"has changed since {path} was trained"
            CheckpointError.require(is_same, rule, place=self.path / name)
        return checkpoint

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
        best = self.checkpoint(path)
        epoch = WeightsFacts.of(best.facts).epoch
        is_right = epoch == best_epoch or (isinstance(epoch, int) and epoch > state_epoch)
        rule = f"must hold the weights of epoch {best_epoch}"
        CheckpointError.require(is_right, rule, place=path, value=epoch)
        return best

    def model(self) -> Checkpoint:
        """Open the finished model, or the newest checkpoint if the training has not ended.

        A finished model needs unchanged network.json and fields.json; a checkpoint also training.json.

        Raises:
            CheckpointError: The run has neither.
        """
        if (self.path / "model").exists():
            return self.checkpoint(self.path / "model", _FOR_PREDICTIONS)
        latest = self.latest()
        if latest is None:
            raise CheckpointError("holds no weights yet", place=self.path)
        return latest

    @property
    def start(self) -> Path | None:
        """The run whose weights this one begins with; None if it begins with its initializers'."""
        path = self.path / START
        if not path.is_file():
            return None
        name = path.read_bytes()
        CheckpointError.require(name and b"\0" not in name, "must hold the path of a run", place=path)
        return Path(os.fsdecode(name))

    def log(self, record: Mapping[str, Any]) -> None:
        """Append a line to log.jsonl."""
        path = self.path / "log.jsonl"
        with writing(path), path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def records(self) -> list[dict[str, Any]]:
        """Return the lines of log.jsonl, one per epoch, without lines that a power cut has damaged."""
        return [record for record in values(self.path / "log.jsonl") if isinstance(record.get("epoch"), int)]

    def note_machine(self, facts: Mapping[str, Any]) -> None:
        """Write machine.json: where the training, or its latest part, runs; see `facts.machine`."""
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
            write_whole(path, b"".join(path.read_bytes().splitlines(keepends=True)[:epochs]))


def with_network_of(run: RunDirectory, weights: Checkpoint) -> RunDirectory:
    """Return a run with the network of its weights; terms are fitted to the final ones alone."""
    spec = fitted_network(WeightsFacts.of(weights.facts))
    return run if spec is None else replace(run, network=spec)


def fitted_network(facts: WeightsFacts) -> NetworkSpec | None:
    """Return the network of final weights if its terms were fitted to them, else None."""
    return None if facts.network is None else NetworkSpec.of(facts.network, NetworkSpec.usual_name)


def saved_fit(run: RunDirectory, network: Network) -> dict[str, Any]:
    """Write the document of a network with fitted terms, for people; return the facts for its weights."""
    exchange, text = network.exchange, network.spec.to_json()
    leads = leads_folder(exchange, run.mirror)
    by_some(exchange, leads, lambda: write_whole(run.path / FITTED, text.encode()), "fitted network")
    return {"network": json.loads(text)}
