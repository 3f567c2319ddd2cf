"""Checkpoints: what was saved comes back, and every kind of damage is named in one sentence."""

import json

import pytest
import torch

from tests.mistakes import mistake
from widenet.data.manifest import Field
from widenet.errors import CheckpointError
from widenet.model.build import build
from widenet.model.optimizers import Optimizer
from widenet.parallel.exchange import Exchange
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.checkpoint import Checkpoint, fingerprint, publish

OUT = {"name": "out", "kind": "output", "field": "items", "source": "mid"}


def network(units=4, shards=3, width=11, seed=0, optimizer="momentum", on_the_input=(), exchange=None):
    """A network with an optimizer's state, as in a training."""
    spec = NetworkSpec.of(
        {
            "layers": [
                {"name": "in", "kind": "input", "field": "items", "popularity_damping": 0.5},
                {"name": "mid", "units": units},
                OUT,
                *on_the_input,
            ]
        }
    )
    training = TrainingSpec.of({"shards": shards, "seed": seed, "optimizer": optimizer})
    fields = {"items": Field(name="items", kind="sparse", width=width, num_entries={"train": 5})}
    built = build(
        bind(spec, training, fields),
        exchange or Exchange(shards),
        counts={"items": torch.arange(width).numpy()},
    )
    built.prepare_training(Optimizer(training.optimizer))
    return built


def tensors(built):
    found = {
        f"{name} {shard} {key}": tensor
        for name, wide in built.wide.items()
        for shard, part in wide.parts.items()
        for key, tensor in part.tensors().items()
    }
    found |= {
        f"{name} {key}": tensor for name, trunk in built.trunk.items() for key, tensor in trunk.state.items()
    }
    return found | {name: trunk.tensor.detach() for name, trunk in built.trunk.items()} | built.damping


@pytest.fixture
def saved(tmp_path):
    return publish(tmp_path / "saved", network(), {"epoch": 1}, with_state=True).path


def test_what_was_published_comes_back_to_the_bit_with_its_state_and_facts(tmp_path):
    first = network(seed=1)
    for number, tensor in enumerate(tensors(first).values()):
        tensor.copy_(
            (torch.rand(tensor.shape, generator=torch.Generator().manual_seed(number)) * 100).to(tensor.dtype)
        )
    publish(tmp_path / "a" / "b", first, {"epoch": 3, "loss": 0.1}, with_state=True)
    second, read = network(seed=2), Checkpoint.open(tmp_path / "a" / "b")
    assert fingerprint(first) != fingerprint(second)
    read.load_into(second, with_state=True)
    assert read.facts == {"epoch": 3, "loss": 0.1}
    assert tensors(first).keys() == tensors(second).keys()
    assert any(key.endswith("moved") for key in tensors(first))
    assert all(torch.equal(tensor, tensors(second)[key]) for key, tensor in tensors(first).items())
    assert fingerprint(first) == fingerprint(second)


def test_a_model_without_state_serves_and_cannot_be_trained_on(tmp_path):
    path = publish(tmp_path / "model", network(seed=1), {}, with_state=False).path
    served = network(seed=2)
    Checkpoint.open(path).load_into(served, with_state=False)
    assert fingerprint(served) == fingerprint(network(seed=1))
    with mistake(CheckpointError, place=path / "wide-00.shard-0000-of-0003.safetensors"):
        Checkpoint.open(path).load_into(network(), with_state=True)


FILES = ["manifest.json", "trunk.safetensors", "wide-00.shard-0001-of-0003.safetensors"]


def refused(path, place, into=None):
    with mistake(CheckpointError, place=path / place):
        Checkpoint.open(path).load_into(into or network(), with_state=True)


def changed(path, **values):
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, **values}))


MISTAKES = {
    "no manifest": (lambda path: (path / "manifest.json").unlink(), ""),
    "a list": (lambda path: (path / "manifest.json").write_text("[]"), "manifest.json"),
    "an empty manifest": (lambda path: (path / "manifest.json").write_text("{}"), "manifest.json"),
    "no files": (lambda path: changed(path, files=3), "manifest.json"),
    "another version": (lambda path: changed(path, format_version=5), "manifest.json"),
    "another fact": (lambda path: changed(path, facts={"epoch": 2}), "manifest.json"),
    "a missing file": (lambda path: (path / FILES[2]).unlink(), FILES[2]),
    **{
        f"{length} bytes of {name}": (
            lambda path, name=name, length=length: (path / name).write_bytes(
                (path / name).read_bytes()[:length]
            ),
            name,
        )
        for name in FILES
        for length in (0, 100)
    },
}


@pytest.mark.parametrize("damage", MISTAKES)
def test_a_damaged_checkpoint_is_refused(damage, saved):
    act, place = MISTAKES[damage]
    act(saved)
    refused(saved, place)


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"units": 5}, "wide-00.shard-0000-of-0003.safetensors"),
        ({"width": 12}, "wide-00.shard-0002-of-0003.safetensors"),
        ({"shards": 4}, ""),
        ({"optimizer": "adam"}, "wide-00.shard-0000-of-0003.safetensors"),
    ],
)
def test_a_checkpoint_of_another_network_is_refused(other, place, saved):
    refused(saved, place, network(**other))


def test_the_fingerprint_depends_on_every_bit_of_every_weight_and_on_nothing_else():
    known = fingerprint(network())
    for key in tensors(network()):
        changed = network()
        flat = tensors(changed)[key].view(torch.int32).view(-1)
        if not len(flat):
            continue
        flat[-1] ^= 1
        expected = "velocity" in key or "moved" in key
        assert (fingerprint(changed) == known) == expected, key
    assert fingerprint(network(optimizer="sgd")) == known


def test_the_fingerprint_does_not_depend_on_how_weights_are_cut():
    one, three = network(shards=1), network(shards=3)
    for name, wide in one.wide.items():
        for shard in range(3):
            wide.parts[0].weight[shard::3] = three.wide[name].parts[shard].weight
    assert fingerprint(one) == fingerprint(three)
