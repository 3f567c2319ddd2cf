"""Processes that were given different work, or compute differently, name what differs and end, before
anything is written.
"""

import json
import re
import shutil
import socket

import pytest
import torch
from torch import distributed

from tests.trainings import DEEP, STEPS, Heard, books, document
from widenet.errors import CheckpointError, DisagreementError
from widenet.kernels import native
from widenet.runs import Model, train
from widenet.training import facts, loop
from widenet.training.checkpoint import Checkpoint

NETWORK = DEEP
TRAINING = document("momentum", epochs=2, evaluation=None, checkpoints={"min_seconds": 0, "keep_last": 9})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("agreement") / "data").path


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("agreement") / "run"
    train(NETWORK, TRAINING, data, out)
    return out


def outcome(work, *arguments):
    """What some work gave, or the place and the sentence with which it was refused."""
    try:
        return work(*arguments)
    except DisagreementError as error:
        return error.place, str(error)


def trained(network, training, data, out, resume=False, start_from=None):
    heard = Heard()
    model = train(network, training, data, out, resume=resume, start_from=start_from, report=heard)
    return model.fingerprint(), heard.said


def of_rank(choices):
    """The choice for this process: the odd one is that of rank 1."""
    return choices[distributed.get_rank() == 1]


def attacked(choices, out):
    """A training in which rank 1 was given something else; `choices` holds what the others are given, and
    what rank 1 is.
    """
    given = {"network": NETWORK, "training": TRAINING, "data": None, "out": out} | of_rank(choices)
    return outcome(lambda: trained(**given))


def without_the_library(patch):
    patch.setattr(native, "library", lambda: None)


def on_another_instruction_set(patch):
    now = facts.instruction_sets() | {"mkl": "Intel(R) Advanced Vector Extensions 2"}
    patch.setattr(facts, "instruction_sets", lambda: now)


def with_another_torch(patch):
    patch.setattr(torch, "__version__", "2.8.0")


def computing_otherwise(change, data, out):
    """As `attacked`, but rank 1 computes otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        if distributed.get_rank() == 1:
            change(patch)
        return outcome(trained, NETWORK, TRAINING, data, out)


def assert_refused(found, place):
    """All processes were refused for one place, and name it with the ranks and hosts."""
    assert len(set(found)) == 1
    assert found[0][0] == place
    for rank in range(len(found)):
        assert re.search(rf"\b{rank} \({socket.gethostname()}\)", found[0][1])


def test_processes_with_other_work_refuse_before_anything_is_written(data, run, groups, tmp_path):
    other, out = books(tmp_path / "other", seed=1).path, tmp_path / "run"
    fewer = {"layers": [*NETWORK["layers"][:2], NETWORK["layers"][3]]}
    attacks = [
        ({"data": other}, "dataset digest"),
        ({"training": {**TRAINING, "batch_size": 3}}, "training.json batch_size"),
        ({"training": {**TRAINING, "shards": 2}}, "training.json shards"),
        ({"training": {**TRAINING, "optimizer": "sgd"}}, "training.json optimizer.kind"),
        ({"network": fewer}, "network.json layers[deep].kind"),
        ({"resume": True}, "resume"),
        ({"start_from": run}, "weights to start from"),
    ]
    for odd, place in attacks:
        assert_refused(groups(2)(attacked, [{"data": data}, {"data": data, **odd}], out), place)
        assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_processes_that_compute_otherwise_refuse_before_anything_is_written(data, groups, tmp_path):
    attacks = {
        without_the_library: "compiled code",
        on_another_instruction_set: "instruction set (mkl)",
        with_another_torch: "torch",
    }
    for change, place in attacks.items():
        assert_refused(groups(2)(computing_otherwise, change, data, tmp_path / "run"), place)
        assert list(tmp_path.iterdir()) == []


def resumed(outs, data, resume=True):
    return outcome(trained, NETWORK, TRAINING, data, of_rank(outs), resume)


def test_processes_that_read_different_checkpoints_refuse_and_leave_them_as_they_are(
    data, run, groups, tmp_path
):
    older, newest = sorted(path.name for path in (run / "checkpoints").glob("epoch-*"))

    def copied(name):
        shutil.copytree(run, tmp_path / name)
        return tmp_path / name

    one, other = copied("one"), copied("stale")
    (other / "checkpoints" / "latest").write_text(f"{older}\n")
    assert_refused(groups(2)(resumed, [one, other], data), "checkpoints, newest first")
    other = copied("of another time")
    manifest = other / "checkpoints" / newest / "manifest.json"
    kept = json.loads(manifest.read_text())
    kept["facts"]["state"]["seconds"] += 1
    digest = Checkpoint(manifest.parent, kept["files"], kept["facts"]).digest
    manifest.write_text(json.dumps({**kept, "sha256": digest}))
    assert_refused(groups(2)(resumed, [one, other], data), "checkpoint digest")
    fingerprint = Model.load(run).fingerprint()
    assert groups(2)(resumed, [one, one], data) == [(fingerprint, []), (fingerprint, [])]


@pytest.mark.parametrize("resume", [False, True])
def test_a_process_that_does_not_see_the_run_of_the_others_stops_all(resume, data, run, groups, tmp_path):
    if resume:
        shutil.copytree(run, tmp_path / "here")
    groups(2).start(resumed, [tmp_path / "here", tmp_path / "elsewhere"], data, resume)
    found = groups(2).outcomes()
    assert [type(error) for error in found] == [CheckpointError] * 2
    assert str(found[0]) == str(found[1])


def measured(runs, datasets):
    """What a run that every process loads measures."""
    return outcome(lambda: Model.load(of_rank(runs)).evaluate(of_rank(datasets), "validation", ks=[5]))


def predicted(run, datasets):
    return outcome(lambda: [block.items for block in Model.load(run).predict(of_rank(datasets), k=2)])


def test_processes_that_load_different_models_or_data_refuse(data, run, groups, tmp_path):
    other, shifted = tmp_path / "other", books(tmp_path / "shifted", seed=1).path
    train(NETWORK, TRAINING, shifted, other)
    assert (
        groups(2)(measured, [run, run], [data, data])
        == [Model.load(run).evaluate(data, "validation", ks=[5])] * 2
    )
    assert_refused(groups(2)(measured, [run, other], [data, data]), "checkpoint digest")
    assert_refused(groups(2)(measured, [run, run], [data, shifted]), "dataset digest")
    assert_refused(groups(2)(predicted, run, [data, shifted]), "dataset digest")


def flipping(rank, step, data, out):
    """A training in which a process changes the last bit of a hidden weight after some steps.

    After the last step before a checkpoint it is the only bit that differs, whatever rounds.
    """
    made, whole = [], loop.train_step

    def stepped(network, *arguments):
        loss = whole(network, *arguments)
        made.append(loss)
        if len(made) == step and distributed.get_rank() == rank:
            network.trunk["deep/taste"].tensor.view(torch.int32)[1, 2] ^= 1
        return loss

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "train_step", stepped)
        return outcome(trained, NETWORK, TRAINING, data, out)


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (3, 0)])
def test_a_copy_of_the_hidden_weights_that_has_changed_by_a_bit_is_found_and_never_saved(
    size, rank, data, run, groups, tmp_path
):
    out = tmp_path / "run"
    assert_refused(
        groups(size)(flipping, rank, 2 * STEPS, data, out), f"epoch 2, step {STEPS}, weight.deep/taste"
    )
    saved = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert saved == ["epoch-00001-step-000000000", "latest"]
    assert {fingerprint for fingerprint, _ in groups(size)(resumed, [out, out], data)} == {
        Model.load(run).fingerprint()
    }
