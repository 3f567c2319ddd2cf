"""Checkpoints: what was saved comes back, and every kind of damage is named in one sentence."""

import json

import pytest
import torch
from safetensors.torch import load_file

from tests.older import checkpoint_of_ranges, checkpoint_of_whole_state
from tests.parallel.split import DIVIDED
from widenet import checkpoint
from widenet.checkpoint import Checkpoint, fingerprint
from widenet.data.manifest import Field, sha256_of
from widenet.errors import CheckpointError
from widenet.model.build import build
from widenet.parallel.local import LocalExchange
from widenet.plan.binding import bind
from widenet.plan.layout import Width
from widenet.plan.shards import held
from widenet.publication import publish
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.optimizers import Optimizer

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
        exchange or LocalExchange(shards),
        counts={"items": torch.arange(width).numpy()},
    )
    built.prepare_training(Optimizer(training.optimizer))
    return built


def deep(settings):
    """A network with a hidden layer of some settings between two others."""
    layers = [
        {"name": "deep", "units": 7, "source": "mid", **settings},
        {"name": "last", "units": 4},
        {**OUT, "name": "next", "source": "last"},
    ]
    return network(on_the_input=layers)


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


def refusal(path, into=None, with_state=True):
    """The one sentence or two with which a checkpoint is refused."""
    with pytest.raises(CheckpointError) as caught:
        Checkpoint.open(path).load_into(into or network(), with_state)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(path))
    return str(caught.value)


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
    assert "does not hold state.velocity" in refusal(path)


def test_the_files_of_a_model_without_state_hold_weights_alone(tmp_path):
    path = publish(tmp_path / "model", network(), {}, with_state=False).path
    names = {file.name.partition(".")[0]: set(load_file(file)) for file in path.glob("*.safetensors")}
    assert names == {
        "wide-00": {"weight"},
        "wide-01": {"weight"},
        "wide-02": {"weight"},
        "trunk": {"weight.mid bias", "damping.in"},
    }


@pytest.mark.parametrize(
    "name", ["manifest.json", "trunk.safetensors", "wide-00.shard-0001-of-0003.safetensors"]
)
def test_any_flipped_bit_is_seen(name, saved):
    whole = (saved / name).read_bytes()
    for place in {*range(0, len(whole), max(1, len(whole) // 50)), len(whole) - 1}:
        (saved / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert "is damaged" in refusal(saved)
    (saved / name).write_bytes(whole)
    Checkpoint.open(saved).load_into(network(), with_state=True)


@pytest.mark.parametrize(
    "name", ["manifest.json", "trunk.safetensors", "wide-00.shard-0001-of-0003.safetensors"]
)
@pytest.mark.parametrize("length", [0, 1, 100])
def test_a_truncated_file_is_seen(name, length, saved):
    (saved / name).write_bytes((saved / name).read_bytes()[:length])
    assert "is damaged" in refusal(saved)


def test_a_missing_file_is_named(saved):
    (saved / "wide-01.shard-0002-of-0003.safetensors").unlink()
    assert "wide-01.shard-0002-of-0003.safetensors is missing" in refusal(saved)


@pytest.mark.parametrize("width", [11, 2])
@pytest.mark.parametrize(
    "on_the_input", [[], [{"name": "linear", "kind": "output", "field": "items", "source": "in"}]]
)
@pytest.mark.parametrize("with_state", [False, True])
def test_a_checkpoint_whose_shards_are_ranges_of_units_fills_the_same_rows(
    width, on_the_input, with_state, tmp_path
):
    settings = {"width": width, "optimizer": "rmsprop", "on_the_input": on_the_input}
    expected, found = network(seed=1, **settings), network(seed=2, **settings)
    for number, tensor in enumerate(tensors(expected).values()):
        tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + 1000 * number)
    if on_the_input:  # every shard says when the same columns were moved
        for part in expected.wide["linear"].parts.values():
            part.moved.copy_(torch.arange(width))
    path = publish(tmp_path / "saved", expected, {}, with_state=True).path
    Checkpoint.open(checkpoint_of_ranges(path)).load_into(found, with_state=with_state)
    assert fingerprint(found) == fingerprint(expected)
    pairs = zip(tensors(found).values(), tensors(expected).values(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs) == with_state
    ((_, rows),) = expected.rows("mid/in")
    in_file = load_file(path / "wide-00.shard-0001-of-0003.safetensors")["weight"]
    assert torch.equal(in_file, rows[width // 3 : 2 * width // 3])


@pytest.mark.parametrize("with_state", [True, False])
def test_a_layer_that_a_checkpoint_holds_whole_fills_the_shards_of_a_split_one(with_state, tmp_path):
    whole, split = (deep({"split": is_split}) for is_split in (False, True))
    for number, tensor in enumerate(tensors(whole).values()):
        tensor.copy_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(number)))
    saved = Checkpoint.open(publish(tmp_path / "saved", whole, {}, with_state=True).path)
    saved.check_files(split)
    saved.load_into(split, with_state)
    weight = whole.trunk["deep/mid"]
    for shard, part in split.wide["deep/mid"].parts.items():
        assert torch.equal(part.weight, weight.tensor[shard::3])
        assert torch.equal(part.state["velocity"], weight.state["velocity"][shard::3] * with_state)
    found, expected = tensors(split), tensors(whole)
    same = [name for name in found if "deep/mid" not in name and (with_state or "velocity" not in name)]
    assert len(same) > 8
    assert all(torch.equal(found[name], expected[name]) for name in same)


def test_a_whole_layer_of_other_sizes_is_refused(tmp_path):
    path = publish(tmp_path / "saved", deep({"split": False}), {}, with_state=True).path
    told = refusal(path, deep({"split": True, "units": 10}))
    assert "does not hold weight.deep/mid with all 4 rows of a shard: it is of another network" in told


FILTERS = ("edges/picture", "edges bias", "parts/best", "parts bias")


class Own(LocalExchange):
    """An exchange that holds the shards of one process of several, for building and filling only."""

    def __init__(self, process, num_processes):
        super().__init__(8)
        self.shards = held(8, process, num_processes)


def divided(exchange=None, trained=True, filters=12):
    """A network with layers divided by examples, with an optimizer's state if it is to be trained."""
    layers, training = DIVIDED
    layers = [
        layer | ({"filters": filters} if layer["name"] in ("edges", "parts") else {}) for layer in layers
    ]
    spec, training = NetworkSpec.of({"layers": layers}), TrainingSpec.of({**training, "optimizer": "adam"})
    fields = {"items": Width(31), "picture": Width(3 * 12 * 12, kind="dense")}
    built = build(bind(spec, training, fields), exchange or LocalExchange(8), counts={})
    if trained:
        built.prepare_training(Optimizer(training.optimizer))
    return built


def state_of(built):
    """The whole state of the filters, by weight and name, as far as a network holds it."""
    found = {}
    for part in (part for of_shard in built.pieces.by_shard.values() for part in of_shard):
        for key, tensor in part.state.items():
            nothing = torch.full([part.weight.tensor.numel()], -1.0)
            whole = found.setdefault((part.stretch.weight, key), nothing)
            whole[part.stretch.start : part.stretch.stop] = tensor
    return found


@pytest.fixture
def of_pieces(tmp_path):
    """A published network with layers divided by examples, and its state."""
    built = divided()
    parts = [part for of_shard in built.pieces.by_shard.values() for part in of_shard]
    for number, tensor in enumerate(tensor for part in parts for tensor in part.state.values()):
        tensor.copy_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(number)))
    return publish(tmp_path / "saved", built, {}, with_state=True).path, state_of(built)


@pytest.mark.parametrize("is_whole", [False, True])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_each_process_reads_the_state_of_its_pieces_that_a_checkpoint_holds_in_pieces_or_whole(
    size, is_whole, of_pieces
):
    path, expected = of_pieces
    if is_whole:
        checkpoint_of_whole_state(path)
        trunk = load_file(path / "trunk.safetensors")
        for (name, key), numbers in expected.items():
            assert torch.equal(trunk[f"state.{name}.{key}"].flatten(), numbers)
    assert {name for name, _ in expected} == {*FILTERS}
    assert len([*path.glob("pieces.*")]) == (0 if is_whole else 7)
    taken = {key: torch.full_like(numbers, -1.0) for key, numbers in expected.items()}
    for process in range(size):
        built = divided(Own(process, size))
        assert not any(built.trunk[name].state for name in FILTERS)
        saved = Checkpoint.open(path)
        saved.check_files(built)
        saved.load_into(built, with_state=True)
        for key, numbers in state_of(built).items():
            own = numbers >= 0
            assert (taken[key][own] == -1).all()
            taken[key][own] = numbers[own]
    assert all(torch.equal(taken[key], numbers) for key, numbers in expected.items())


def test_no_file_is_verified_twice_and_numbers_end_with_the_last_piece_they_need(of_pieces, monkeypatch):
    hashed, opened = [], Checkpoint.open(of_pieces[0])
    monkeypatch.setattr(checkpoint, "sha256_of", lambda path: hashed.append(path.name) or sha256_of(path))
    (name, key), numbers = next(iter(of_pieces[1].items()))
    opened.fill_numbers(f"state.{name}.{key}", 0, first := torch.empty(1))
    assert first == numbers[0]
    assert hashed == ["trunk.safetensors", "pieces.shard-0000-of-0008.safetensors"]
    opened.load_into(divided(), with_state=True)
    assert sorted(hashed) == sorted(opened.files)


def test_weights_alone_are_read_without_state_in_pieces(of_pieces, tmp_path):
    path, _ = of_pieces
    served = divided(trained=False)
    for weight in served.trunk.values():
        weight.tensor.zero_()
    Checkpoint.open(path).load_into(served, with_state=False)
    assert state_of(served) == {}
    assert fingerprint(served) == fingerprint(divided())
    model = publish(tmp_path / "model", divided(), {}, with_state=False).path
    assert [*model.glob("pieces.*")] == []
    trained = divided()
    Checkpoint.open(model).check_files(trained)
    Checkpoint.open(model).load_into(trained, with_state=False)


@pytest.mark.parametrize("is_whole", [False, True])
def test_state_of_other_pieces_is_refused(is_whole, of_pieces):
    path, _ = of_pieces
    if is_whole:
        checkpoint_of_whole_state(path)
    assert "it is of another network" in refusal(path, divided(filters=13))


def test_a_flipped_bit_in_a_piece_is_seen(of_pieces):
    file = of_pieces[0] / "pieces.shard-0002-of-0008.safetensors"
    whole = file.read_bytes()
    file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert f"{file.name} is damaged" in refusal(file.parent, divided())
    file.unlink()
    assert f"{file.name} is missing" in refusal(file.parent, divided())


def test_a_file_of_ranges_of_another_network_is_refused(saved):
    path = checkpoint_of_ranges(saved)
    assert "does not hold weight [3, 5]: it is of another network" in refusal(path, network(units=5))


def test_a_directory_without_a_manifest_is_no_checkpoint(saved):
    (saved / "manifest.json").unlink()
    assert "is not a checkpoint: it has no manifest.json" in refusal(saved)
    assert "is not a checkpoint" in refusal(saved / "nowhere")


def test_a_changed_fact_is_seen(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "facts": {"epoch": 2}}))
    assert "is damaged: its checksum is not that of its contents" in refusal(saved)


def test_a_newer_format_asks_for_a_newer_widenet(saved):
    manifest = json.loads((saved / "manifest.json").read_text())
    (saved / "manifest.json").write_text(json.dumps({**manifest, "format_version": 4}))
    assert "format version must be at most 3; got 4. Use a newer widenet." in refusal(saved)


@pytest.mark.parametrize(
    "text", ["[]", "{}", '"manifest"', '{"format_version": "one", "files": 3, "facts": null}']
)
def test_json_that_is_no_manifest_is_called_damaged(text, saved):
    (saved / "manifest.json").write_text(text)
    assert "is damaged" in refusal(saved)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"units": 5}, "does not hold weight [4, 5]: it is of another network"),
        ({"width": 12}, "does not hold weight [4, 4]: it is of another network"),
        (
            {"shards": 4},
            "is cut into 3 shards, the network into 4: another number of shards makes another run. Use"
            " the training.json that",
        ),
        ({"optimizer": "adam"}, "does not hold state.mean"),
    ],
)
def test_a_checkpoint_of_another_network_is_refused(other, message, saved):
    assert message in refusal(saved, network(**other))


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
