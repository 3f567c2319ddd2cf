"""Checkpoints: directories of tensors and facts, verified when read, and the fingerprint of weights."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor

from widenet.data.manifest import sha256_of
from widenet.errors import CheckpointError, damage_of
from widenet.model.network import Network
from widenet.parallel.group import by_all
from widenet.training.tensor_file import blocks, read_into

FORMAT_VERSION = 2

MANIFEST = "manifest.json"
TRUNK = "trunk.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A published checkpoint; its manifest is checked, and its tensors are read when needed.

    Attributes:
        path: Its directory.
        files: Entries of the manifest, by file name.
        facts: Facts stored beside the tensors; see `training.saved_facts`.
        verified: Names of the files whose checksums were found right.
    """

    path: Path
    files: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    verified: set[str] = field(default_factory=set, init=False, repr=False, compare=False)

    @property
    def digest(self) -> str:
        """SHA-256 over the files' checksums and the facts; equal for equal checkpoints."""
        return sha256_of_contents(self.files, self.facts)

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
        if version != FORMAT_VERSION:
            rule = f"must be of format version {FORMAT_VERSION}"
            raise CheckpointError(rule, place=path / MANIFEST, value=version)
        if manifest.get("sha256") != sha256_of_contents(files, facts):
            rule = "is damaged: its checksum is not that of its contents"
            raise CheckpointError(rule, place=path / MANIFEST)
        return cls(path, files, facts)

    def load_into(self, network: Network, with_state: bool) -> None:
        """Fill a network of the same documents, with the optimizer's state if asked.

        Raises:
            CheckpointError: A file is missing, damaged, or of another network; all processes raise this.
        """
        by_all(network.exchange, lambda: self._load_own(network, with_state), "checkpoint")

    def check_files(self, network: Network) -> None:
        """Verify the files that this process would load, without loading them; an error is raised in all."""
        by_all(network.exchange, lambda: [*map(self._checked, self.names_for(network))], "checkpoint")

    def names_for(self, network: Network) -> list[str]:
        """Return the files that this process loads."""
        return [name for name, _ in _files_of(network)]

    def _load_own(self, network: Network, with_state: bool) -> None:
        shards = {int(count) for count in re.findall(r"-of-(\d+)\.", " ".join(self.files))}
        if shards - {network.layout.num_shards}:
            rule = f"must be cut into {network.layout.num_shards} shards, as the network is"
            raise CheckpointError(rule, place=self.path, value=max(shards))
        for name, tensors in _files_of(network):
            self.fill(name, tensors if with_state else weights_among(tensors))

    def fill(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Fill tensors with those of a file, by name."""
        path = self._checked(name)
        with _reading(path):
            wrong = read_into(path, tensors)
        if wrong is not None:
            rule = f"does not hold {wrong} {list(tensors[wrong].shape)}: it is of another network"
            raise CheckpointError(rule, place=path)

    def blocks(self, name: str, keys: Iterable[str]) -> Iterator[tuple[str, int, Tensor]]:
        """Yield tensors of a file in blocks of rows: name, first row, rows."""
        path = self._checked(name)
        with _reading(path):
            for key in keys:
                for start, block in blocks(path, key):
                    yield key, start, block

    def _checked(self, name: str) -> Path:
        """Return the path of a file after verifying its checksum, once in the life of this object."""
        path = self.path / name
        if name in self.verified:
            return path
        if name not in self.files:
            raise CheckpointError(f"does not hold {name}: it is of another network", place=self.path)
        if not path.is_file():
            raise CheckpointError("is missing", place=path)
        with _reading(path):
            digest = sha256_of(path)
        if digest != self.files[name]["sha256"]:
            raise CheckpointError("is damaged: its checksum is not that of the manifest", place=path)
        self.verified.add(name)
        return path


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn errors while reading a file into a CheckpointError."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"is damaged: {damage_of(error)}", place=path) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the operating system's errors while writing a path into a CheckpointError."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot be written: {error.strerror or error}", place=path) from None


def fingerprint(network: Network) -> str:
    """Return the SHA-256 of the weights alone, in hexadecimal: equal for equal weights, however computed."""
    digest = hashlib.sha256()
    for name in sorted(network.wide):
        digest.update(f"{name}\n".encode())
        for _, rows in network.rows(name):
            digest.update(_bytes(rows))
    for name in sorted(network.trunk):
        digest.update(f"{name}\n".encode())
        digest.update(_bytes(network.trunk[name].tensor.detach()))
    own = {file: [*map(digest_of, tensors.values())] for file, tensors in neighbourhood_files(network)}
    if any(output.lists for output in network.outputs.values()):
        everyone = network.exchange.collect(own, "neighbourhoods")
        for name, output in network.outputs.items():
            if (term := output.spec.neighbourhood) is not None:
                order = f" {term.order}" if term.in_order else ""
                digest.update(f"{name}\n{term.weight!r} {term.floor!r}{order}\n".encode())
        for file, digests in sorted({file: files[file] for files in everyone for file in files}.items()):
            digest.update(f"{file}\n{digests}\n".encode())
    for name in sorted(network.damping):
        digest.update(f"{name}\n".encode())
        digest.update(_bytes(network.damping[name]))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def wide_file(number: int, shard: int, count: int) -> str:
    """Return the name of the file for a shard of a wide weight."""
    return f"wide-{number:02d}.shard-{shard:04d}-of-{count:04d}.safetensors"


def in_trunk(weight: str, key: str) -> str:
    """Return the name in the trunk's file of a weight's tensor, such as "weight" or "state.velocity"."""
    kind, _, state = key.partition(".")
    return f"{kind}.{weight}.{state}" if state else f"{kind}.{weight}"


def _files_of(network: Network) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files of a checkpoint with their tensors: one per shard of a wide weight, and the trunk."""
    for number, weight in enumerate(network.wide.values()):
        for shard, part in weight.parts.items():
            yield wide_file(number, shard, weight.shards.count), part.tensors()
    yield from neighbourhood_files(network)
    yield TRUNK, replicas_of(network)


def neighbourhood_files(network: Network) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files of outputs with a neighbourhood, one per shard; training does not change them."""
    for number, output in enumerate(network.outputs.values()):
        for shard, lists in output.lists.items():
            yield neighbourhood_file(number, shard, output.weight.shards.count), lists.tensors()


def neighbourhood_file(number: int, shard: int, count: int) -> str:
    """Return the name of the file for a shard of the neighbourhood of an output, by its number."""
    return f"neighbourhood-{number:02d}.shard-{shard:04d}-of-{count:04d}.safetensors"


def replicas_of(network: Network) -> dict[str, Tensor]:
    """Return the tensors of which every process holds a copy, by their names in a checkpoint."""
    tensors = {}
    for name, trunk in network.trunk.items():
        tensors[in_trunk(name, "weight")] = trunk.tensor
        tensors.update({in_trunk(name, f"state.{key}"): tensor for key, tensor in trunk.state.items()})
    tensors.update({f"damping.{name}": tensor for name, tensor in network.damping.items()})
    return tensors


def digest_of(tensor: Tensor) -> str:
    """Return the SHA-256 of a tensor's bytes, in hexadecimal."""
    return hashlib.sha256(_bytes(tensor)).hexdigest()


def own_files(network: Network, with_state: bool) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """Yield the files that this process writes: those of its shards, and the trunk in the leader."""
    for name, tensors in _files_of(network):
        if network.exchange.leads or name != TRUNK:
            yield name, tensors if with_state else weights_among(tensors)


def weights_among(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights among the tensors of a file."""
    return {key: tensor for key, tensor in tensors.items() if not key.startswith(("state.", "moved"))}


def sha256_of_contents(files: dict[str, Any], facts: dict[str, Any]) -> str:
    """Return the checksum of a manifest's contents."""
    contents = [FORMAT_VERSION, files, facts]
    return hashlib.sha256(json.dumps(contents, sort_keys=True).encode()).hexdigest()
