"""Checkpoints: directories of tensors and facts, published whole and verified when read.

Each process writes its files into a temporary directory, which the leader renames. The machines of a
training into a store have such a directory each, and the first process of each renames it. Tensors are read
and written in blocks, so that no large one is ever copied. The fingerprint of weights is here too.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from widenet.data.manifest import sha256_of
from widenet.errors import CheckpointError, damage_of
from widenet.model.network import Network
from widenet.model.storage import blocks
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_all, by_some
from widenet.plan.tiles import block_rows
from widenet.stores.durable import force_to_disk, put_in_place, remove
from widenet.stores.runs import RunMirror
from widenet.training.run_path import writing

FORMAT_VERSION = 3
"""Raised with every change of the files, or of the facts beside them."""

MANIFEST = "manifest.json"
TRUNK = "trunk.safetensors"
NEIGHBOURHOOD = "neighbourhood"
_LARGEST_NUMBER = 8
"""Bytes of the largest kind of number."""
_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
}


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint; its manifest is checked, and its tensors are read when needed.

    Attributes:
        path: Its directory.
        files: Entries of the manifest, by file name.
        facts: Facts stored beside the tensors; see `training.run_directory`.
        verified: Names of the files whose checksums were found right.
    """

    path: Path
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    verified: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 over the files' checksums and the facts; equal for equal checkpoints."""
        contents = [FORMAT_VERSION, self.files, self.facts]
        return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()

    @classmethod
    def open(cls, path: Path) -> "Checkpoint":
        """Open the checkpoint in a directory.

        Raises:
            CheckpointError: The manifest is missing, damaged, or of another version.
        """
        try:
            manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
            version, files, facts = manifest["format_version"], manifest["files"], dict(manifest["facts"])
        except FileNotFoundError:
            raise CheckpointError(f"is not a checkpoint: it has no {MANIFEST}", place=path) from None
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise CheckpointError(f"is damaged: {damage_of(error)}", place=path / MANIFEST) from None
        checkpoint, require, place = cls(path, files, facts), CheckpointError.require, path / MANIFEST
        rule = f"must be of format version {FORMAT_VERSION}"
        require(version == FORMAT_VERSION, rule, place=place, value=version)
        is_whole = manifest.get("sha256") == checkpoint.digest
        require(is_whole, "is damaged: its checksum is not that of its contents", place=place)
        return checkpoint

    def load_into(self, network: Network, with_state: bool) -> None:
        """Fill a network of the same documents, with the optimizer's state if asked.

        Raises:
            CheckpointError: A file is missing, damaged, or of another network; all processes raise this.
        """

        def load() -> None:
            for name, tensors in files_of(network, with_state):
                self.fill(name, tensors)

        by_all(network.exchange, load, "checkpoint")

    def check_files(self, network: Network) -> None:
        """Verify the weights that this process would load, without loading; an error is raised in all."""
        files = files_of(network, with_state=False)
        by_all(network.exchange, lambda: [self._checked(name) for name, _ in files], "checkpoint")

    def fill(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors with those of a file, by name."""
        path = self._checked(name)
        with _reading(path), safe_open(path, framework="pt") as file:
            names = set(file.keys())
            for key, tensor in tensors.items():
                shape, start = list(tensor.shape), 0
                rule = f"does not hold {key} {shape}: it is of another network"
                CheckpointError.require(key in names, rule, place=path)
                stored = file.get_slice(key)
                is_same = stored.get_shape() == shape and stored.get_dtype() == _NAMES[tensor.dtype]
                CheckpointError.require(is_same, rule, place=path)
                rows = blocks(tensor.detach(), block_rows(tensor[:1].nbytes), writes=True)
                for block in rows if tensor.numel() else ():
                    block.copy_(stored[start : start + len(block)])
                    start += len(block)

    def blocks(self, name: str, key: str) -> Iterator[tuple[int, Tensor]]:
        """Yield the rows of a file's tensor in blocks, each with the number of its first row."""
        path = self._checked(name)
        with _reading(path), safe_open(path, framework="pt") as file:
            stored = file.get_slice(key)
            num_rows, *rest = stored.get_shape()
            rows = block_rows(_LARGEST_NUMBER * math.prod(rest))
            for start in range(0, num_rows, rows):
                yield start, stored[start : start + rows]

    def _checked(self, name: str) -> Path:
        """Return the path of a file after verifying its checksum, once in the life of this object."""
        path = self.path / name
        if name in self.verified:
            return path
        rule = f"does not hold {name}: it is of another network"
        CheckpointError.require(name in self.files, rule, place=self.path)
        with _reading(path):
            is_whole = sha256_of(path) == self.files[name]["sha256"]
        CheckpointError.require(is_whole, "is damaged: its checksum is not that of the manifest", place=path)
        self.verified.add(name)
        return path


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors while reading a file into a CheckpointError."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"is damaged: {damage_of(error)}", place=path) from None


def fingerprint(network: Network) -> str:
    """Return the SHA-256 of the weights alone, in hexadecimal: equal for equal weights, however computed."""
    digest = hashlib.sha256()

    def add(name: str, tensors: Iterable[Tensor]) -> None:
        digest.update(f"{name}\n".encode())
        for tensor in tensors:
            digest.update(_bytes(tensor))

    for name in sorted(network.wide):
        add(name, (rows for _, rows in network.rows(name)))
    for name in sorted(network.trunk):
        add(name, [network.trunk[name].tensor.detach()])
    own = {
        file: [*map(digest_of, tensors.values())]
        for file, tensors in files_of(network, with_state=False)
        if file.startswith(NEIGHBOURHOOD)
    }
    if any(output.lists for output in network.outputs.values()):
        everyone = network.exchange.collect(own, "neighbourhoods")
        for name, output in network.outputs.items():
            if (term := output.spec.neighbourhood) is not None:
                order = f" {term.order}" if term.in_order else ""
                digest.update(f"{name}\n{term.weight!r} {term.floor!r}{order}\n".encode())
        for file, digests in sorted({file: files[file] for files in everyone for file in files}.items()):
            digest.update(f"{file}\n{digests}\n".encode())
    for name in sorted(network.damping):
        add(name, [network.damping[name]])
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def shard_file(kind: str, number: int, shard: int, count: int) -> str:
    """Return the name of the file for a shard of a wide weight, "wide", or of an output's neighbourhood."""
    return f"{kind}-{number:02d}.shard-{shard:04d}-of-{count:04d}.safetensors"


def in_trunk(weight: str, key: str) -> str:
    """Return the name in the trunk's file of a weight's tensor, such as "weight" or "state.velocity"."""
    kind, _, state = key.partition(".")
    return f"{kind}.{weight}.{state}" if state else f"{kind}.{weight}"


def files_of(network: Network, with_state: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files that this process reads, with their tensors: those of its shards, then the trunk."""
    for files in network.exchange.each(lambda shard: [*files_of_shard(network, shard, with_state)]):
        yield from files
    yield TRUNK, _chosen(replicas_of(network), with_state)


def files_of_shard(network: Network, shard: int, with_state: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files of a shard: rows of wide weights, and neighbourhoods."""
    count = network.layout.num_shards
    for number, weight in enumerate(network.wide.values()):
        yield (
            shard_file("wide", number, shard, count),
            _chosen(weight.parts[shard].tensors(), with_state),
        )
    for number, output in enumerate(network.outputs.values()):
        if shard in output.lists:
            yield shard_file(NEIGHBOURHOOD, number, shard, count), output.lists[shard].tensors()


def _chosen(tensors: dict[str, Tensor], with_state: bool) -> dict[str, Tensor]:
    """Return the tensors of a file, all or the weights alone."""
    return {
        key: tensor
        for key, tensor in tensors.items()
        if with_state or not key.startswith(("state.", "moved"))
    }


def replicas_of(network: Network) -> dict[str, Tensor]:
    """Return the tensors of which every process holds a copy, by their names in a checkpoint."""
    trunk = {
        in_trunk(name, key): tensor
        for name, weight in network.trunk.items()
        for key, tensor in weight.tensors().items()
    }
    return trunk | {f"damping.{name}": tensor for name, tensor in network.damping.items()}


def digest_of(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes, in hexadecimal."""
    return hashlib.sha256(_bytes(tensor)).hexdigest()


def own_files(network: Network, with_state: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files that this process writes: those of its shards, and the trunk in the leader."""
    return (file for file in files_of(network, with_state) if network.exchange.leads or file[0] != TRUNK)


def leads_folder(exchange: Exchange, mirror: RunMirror | None) -> bool:
    """Return whether this process makes and renames the folders of a run.

    It is the leader; of a run in a store, the first process of each machine.
    """
    return exchange.leads if mirror is None else mirror.leads_here


Work: TypeAlias = Callable[[], object]


def publishing(
    checkpoint: Checkpoint,
    files: Iterable[tuple[str, Mapping[str, Tensor]]],
    exchange: Exchange,
    mirror: RunMirror | None,
    submit: Callable[[Work], Work],
    then: Work = lambda: None,
) -> Generator[None, None, None]:
    """Write a checkpoint in stages, replacing an earlier one at its path; all processes iterate together.

    Files are written into a folder beside the path and forced to disk; then the leader renames it. Until
    then only the leader removes the folder, also if a stage fails or the generator is closed.

    Args:
        checkpoint: The path and the facts; the entries of its files are added.
        files: The files of this process, as `own_files` yields them.
        exchange: Exchange between the processes.
        mirror: The run in a store to which it belongs.
        submit: Given the work of a stage, which needs no other process, before each yield; returns a function
            that waits for it and raises its error.
        then: Called in processes that lead once the checkpoint is in place.

    Raises:
        CheckpointError, StoreError: Writing or sending failed; the earlier checkpoint stays.
    """
    leads, path = leads_folder(exchange, mirror), checkpoint.path
    token = exchange.collect(secrets.token_hex(4), "checkpoint")[0]
    beside = path.with_name(f".{path.name}.{token}.partial")
    own: dict[str, dict[str, Any]] = {}

    def make_folder() -> None:
        with writing(path):
            beside.mkdir(parents=True)

    def write_files() -> None:
        with writing(path):
            for name, tensors in files:
                digest = write(beside / name, tensors)
                force_to_disk(beside / name)
                own[name] = {"bytes": (beside / name).stat().st_size, "sha256": digest}
            if mirror is not None:
                mirror.send(beside, own)

    def put() -> None:
        with writing(path):
            manifest = {
                "format_version": FORMAT_VERSION,
                "files": dict(sorted(checkpoint.files.items())),
                "facts": checkpoint.facts,
                "sha256": checkpoint.digest,
            }
            (beside / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            force_to_disk(beside / MANIFEST)
            put_in_place(beside, path)
        then()

    try:
        by_some(exchange, leads, make_folder, "checkpoint")
        written = submit(write_files)
        yield
        by_all(exchange, written, "checkpoint")
        for entries in exchange.collect(own, "checkpoint"):
            checkpoint.files.update(entries)
        if mirror is not None:
            mirror.note_sent(checkpoint.files)
        placed = submit(put if leads else lambda: None)
        yield
        by_all(exchange, placed, "checkpoint")
    finally:
        if leads:
            remove(beside)


def publish(
    path: Path, network: Network, facts: dict[str, Any], with_state: bool, mirror: RunMirror | None = None
) -> Checkpoint:
    """Write a network as a checkpoint, replacing an earlier one at `path`; see `publishing`.

    Args:
        path: Directory of the checkpoint.
        network: The network; all processes that hold it must call this.
        facts: Plain JSON values to keep beside the tensors.
        with_state: Whether to write the optimizer's state too.
        mirror: The run in a store to which it belongs.
    """
    checkpoint, files = Checkpoint(path, {}, facts), own_files(network, with_state)
    for _ in publishing(checkpoint, files, network.exchange, mirror, submit=lambda work: work):
        pass
    return checkpoint


def write(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write tensors to a new safetensors file and return its SHA-256.

    The format (huggingface.co/docs/safetensors): the length of the header as uint64, the header in JSON
    padded to 8 bytes, the data.

    Args:
        path: The file, which must not exist yet.
        tensors: Of the types in `_NAMES`, on any device.

    Raises:
        OSError: The file exists or cannot be written.
        CapacityError: Tensors lie on a disk that does not take all of their rows.
    """
    header: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, tensor in tensors.items():
        stop = offset + tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [offset, stop],
        }
        offset = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("xb") as file:
        for piece in (len(text).to_bytes(8, "little"), text):
            file.write(piece)
            digest.update(piece)
        for tensor in tensors.values():
            for block in blocks(tensor.detach(), block_rows(tensor[:1].nbytes)) if tensor.numel() else ():
                data = block.reshape(-1).view(torch.uint8).cpu().numpy().data
                file.write(data)
                digest.update(data)
    return digest.hexdigest()
