"""Processes that were given different work, or compute differently, name what differs and end, before
anything is written.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed

from tests.parallel.workers import exchange
from tests.trainings import Heard
from widenet.checkpoint import sha256_of_contents
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, DisagreementError, NumericsError
from widenet.kernels.compiled import can_compile
from widenet.parallel.agreement import by_value, check_agreement, differences, outvoted, ranks
from widenet.runs import Model, train
from widenet.training import environment, loop

WIDTH, EXAMPLES, SHARDS = 19, 12, 6
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 5, "activation": "tanh"},
        {"name": "deep", "units": 4, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {
    "epochs": 2,
    "batch_size": 4,
    "shards": SHARDS,
    "optimizer": "momentum",
    "checkpoints": {"min_seconds": 0, "keep_last": 9},
}


def rows(shift):
    return [
        sorted({(example * 5 + step * step + shift) % WIDTH for step in range(4)})
        for example in range(EXAMPLES)
    ]


def books(path, shift=0):
    dataset_from_lists(
        path, rows(shift), validation=[[example % WIDTH] for example in range(EXAMPLES)], width=WIDTH
    )
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return books(tmp_path_factory.mktemp("agreement") / "data")


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    out = tmp_path_factory.mktemp("agreement") / "run"
    train(NETWORK, TRAINING, data, out)
    return out


def test_what_differs_is_told_with_the_ranks_that_have_it():
    digests = ["3f" * 32, "77" * 32]
    facts = [{"digest": digests[rank == 1], "torch": "2.13.0", "more": "x" * rank} for rank in range(3)]
    assert differences(facts[:1]) == ""
    digest = "digest: ranks 0, 2 have 3f3f3f3f3f3f..., rank 1 has 777777777777..."
    assert differences(facts) == f"{digest}; more: rank 0 has , rank 1 has x, rank 2 has xx"
    assert (
        differences([{"a": "1"}, {}, {"b": "2"}])
        == "a: rank 0 has 1, ranks 1-2 have none; b: ranks 0-1 have none, rank 2 has 2"
    )
    many = [{str(number): str(rank) for number in range(9)} for rank in range(2)]
    assert differences(many).endswith("; 4: rank 0 has 0, rank 1 has 1; and 4 more")
    assert by_value(["a" * 99, "b"]) == f"rank 0 has {'a' * 57}..., rank 1 has b"


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "rank 3"),
        ([0, 1], "ranks 0-1"),
        ([0, 2], "ranks 0, 2"),
        ([0, 1, 2, 5, 7, 8], "ranks 0-2, 5, 7-8"),
    ],
)
def test_ranks_are_told_as_ranges(numbers, words):
    assert ranks(numbers) == words


@pytest.mark.parametrize(
    ("values", "odd"),
    [("aaa", []), ("ab", []), ("aba", [1]), ("abc", []), ("abab", []), ("babbb", [1]), ("abcbb", [0, 2])],
)
def test_a_majority_outvotes_the_others(values, odd):
    assert outvoted(values) == odd


def compared(facts):
    check_agreement(exchange(), facts[distributed.get_rank()], "Do this.")


def test_every_process_raises_the_same_sentence(groups):
    assert groups(2)(compared, [{"a": "1"}] * 2) == [None] * 2
    groups(2).start(compared, [{"a": "1"}, {"a": "2"}])
    message = "The processes of this group disagree: a: rank 0 has 1, rank 1 has 2. Do this."
    assert [(type(error), str(error)) for error in groups(2).outcomes()] == [(DisagreementError, message)] * 2


def outcome(work, *arguments):
    """What some work gave, or the sentence with which it was refused."""
    try:
        return work(*arguments)
    except DisagreementError as error:
        return str(error)


def trained(network, training, data, out, resume=False, start_from=None):
    heard = Heard()
    return (
        train(network, training, data, out, resume=resume, start_from=start_from, report=heard).fingerprint(),
        heard.said,
    )


def of_rank(choices):
    """The choice for this process: the odd one is that of rank 1."""
    return choices[distributed.get_rank() == 1]


def attacked(choices, out):
    """A training in which rank 1 was given something else; `choices` holds what the others are given, and
    what rank 1 is.
    """
    given = {"network": NETWORK, "training": TRAINING, "data": None, "out": out} | of_rank(choices)
    return outcome(lambda: trained(**given))


def without_numba(patch):
    patch.setitem(sys.modules, "numba", None)
    can_compile.cache_clear()


def on_another_instruction_set(patch):
    now = environment.instruction_sets()
    patch.setattr(
        environment, "instruction_sets", lambda: {**now, "mkl": "Intel(R) Advanced Vector Extensions 2"}
    )


def with_another_torch(patch):
    patch.setattr(torch, "__version__", "2.8.0")


def computing_otherwise(change, data, out):
    """As `attacked`, but rank 1 computes otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        if distributed.get_rank() == 1:
            change(patch)
        found = outcome(trained, NETWORK, TRAINING, data, out)
    can_compile.cache_clear()
    return found


def assert_refused(found, *parts):
    assert len(set(found)) == 1
    assert found[0].startswith("The processes of this group disagree: ")
    assert "\n" not in found[0]
    for part in parts:
        assert part in found[0]


def test_processes_with_other_work_refuse_before_anything_is_written(data, run, groups, tmp_path):
    other, out = books(tmp_path / "other", shift=1), tmp_path / "run"
    fewer = {"layers": [*NETWORK["layers"][:2], NETWORK["layers"][3]]}
    attacks = [
        ({}, {"data": other}, "dataset digest: rank 0 has "),
        (
            {},
            {"training": {**TRAINING, "batch_size": 3}},
            "training.json batch_size: rank 0 has 4, rank 1 has 3. ",
        ),
        ({}, {"training": {**TRAINING, "shards": 3}}, "training.json shards: rank 0 has 6, rank 1 has 3. "),
        (
            {},
            {"training": {**TRAINING, "optimizer": "sgd"}},
            'training.json optimizer.kind: rank 0 has "momentum", rank 1 has "sgd"; ',
        ),
        ({}, {"network": fewer}, 'network.json layers[2].name: rank 0 has "deep", rank 1 has "next"; '),
        ({}, {"resume": True}, "resume: rank 0 has False, rank 1 has True. "),
        ({}, {"start_from": run}, "weights to start from: rank 0 has none, rank 1 has "),
    ]
    for usual, odd, part in attacks:
        found = groups(2)(attacked, [{"data": data, **usual}, {"data": data, **odd}], out)
        assert_refused(found, part)
        assert [path.name for path in tmp_path.iterdir()] == ["other"]
    found = groups(3)(attacked, [{"data": data}, {"data": other}], out)
    assert_refused(found, "dataset digest: ranks 0, 2 have ", ", rank 1 has ")


def test_processes_that_compute_otherwise_refuse_before_anything_is_written(data, groups, tmp_path):
    attacks = [
        (
            without_numba,
            "compiled code: rank 0 has by Numba, rank 1 has none: torch alone; Numba: rank 0 has ",
            ", rank 1 has none. ",
        ),
        (
            on_another_instruction_set,
            "instruction set (mkl): rank 0 has ",
            ", rank 1 has Intel(R) Advanced Vector Extensions 2. ",
        ),
        (with_another_torch, f"torch: rank 0 has {torch.__version__}, rank 1 has 2.8.0. "),
    ]
    for change, *parts in attacks:
        assert_refused(groups(2)(computing_otherwise, change, data, tmp_path / "run"), *parts)
        assert list(tmp_path.iterdir()) == []


def test_a_command_refuses_an_instruction_set_that_one_process_may_not_use(data, tmp_path):
    """Real processes with real limits: MKL obeys its own on most processors, torch on all of x86-64."""
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    line = [
        sys.executable,
        "-m",
        "widenet",
        "train",
        "network.json",
        "training.json",
        "--data",
        str(data),
        "--out",
        "run",
    ]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes = []
    for rank, limits in enumerate(
        ({}, {"MKL_ENABLE_INSTRUCTIONS": "AVX2", "ATEN_CPU_CAPABILITY": "default"})
    ):
        group = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        environment = {**os.environ, **group, **limits, "PYTHONPATH": str(Path(__file__).parents[2])}
        processes.append(
            subprocess.Popen(line, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
        )
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [2, 2]
    assert said[1] == ""
    refusal = said[0].splitlines()[-1]
    assert refusal.startswith("widenet: The processes of this group disagree: instruction set (")
    assert "instruction set (torch): rank 0 has " in refusal
    assert sorted(path.name for path in tmp_path.iterdir()) == ["network.json", "training.json"]


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
    assert_refused(
        groups(2)(resumed, [one, other], data),
        f"newest checkpoint: rank 0 has {newest}, rank 1 has {older}. ",
    )
    other = copied("fewer")
    shutil.rmtree(other / "checkpoints" / older)
    assert_refused(
        groups(2)(resumed, [one, other], data),
        f"checkpoints: rank 0 has {older}, {newest}, rank 1 has {newest}. ",
    )
    other = copied("of another time")
    manifest = other / "checkpoints" / newest / "manifest.json"
    kept = json.loads(manifest.read_text())
    kept["facts"]["state"]["seconds"] += 1
    digest = sha256_of_contents(kept["files"], kept["facts"])
    manifest.write_text(json.dumps({**kept, "sha256": digest}))
    assert_refused(groups(2)(resumed, [one, other], data), "checkpoint digest: rank 0 has ")
    fingerprint = Model.load(run).fingerprint()
    assert groups(2)(resumed, [one, one], data) == [(fingerprint, []), (fingerprint, [])]


@pytest.mark.parametrize("resume", [False, True])
def test_a_process_that_does_not_see_the_run_of_the_others_stops_all(resume, data, run, groups, tmp_path):
    if resume:
        shutil.copytree(run, tmp_path / "here")
    groups(2).start(resumed, [tmp_path / "here", tmp_path / "elsewhere"], data, resume)
    found = groups(2).outcomes()
    message = f"{tmp_path / 'elsewhere'} does not exist. Name the directory of a run."
    assert [(type(error), str(error)) for error in found] == [(CheckpointError, message)] * 2


def measured(runs, datasets):
    """What a run that every process loads measures."""
    return outcome(lambda: Model.load(of_rank(runs)).evaluate(of_rank(datasets), "validation", ks=[5]))


def predicted(run, datasets):
    return outcome(lambda: [block.items for block in Model.load(run).predict(of_rank(datasets), k=2)])


def test_processes_that_load_different_models_or_data_refuse(data, run, groups, tmp_path):
    other, shifted = tmp_path / "other", books(tmp_path / "shifted", shift=1)
    train(NETWORK, TRAINING, shifted, other)
    assert (
        groups(2)(measured, [run, run], [data, data])
        == [Model.load(run).evaluate(data, "validation", ks=[5])] * 2
    )
    assert_refused(groups(2)(measured, [run, other], [data, data]), "checkpoint digest: rank 0 has ")
    assert_refused(groups(2)(measured, [run, run], [data, shifted]), "dataset digest: rank 0 has ")
    assert_refused(groups(2)(predicted, run, [data, shifted]), "dataset digest: rank 0 has ")


def overflowing(data, out):
    layers = [
        {**layer, "activation": "linear"} if layer["name"] in ("taste", "deep") else layer
        for layer in NETWORK["layers"]
    ]
    layers[2] = {**layers[2], "initializer": {"kind": "constant", "value": 3e38}}
    with pytest.raises(NumericsError) as caught:
        train({"layers": layers}, TRAINING, data, out)
    return str(caught.value)


def test_an_overflow_names_the_same_layer_in_every_process(data, groups, tmp_path):
    alone = overflowing(data, tmp_path / "alone")
    assert 'arose in layer "deep".' in alone
    assert groups(2)(overflowing, data, tmp_path / "together") == [alone] * 2


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


@pytest.mark.parametrize(("size", "rank"), [(2, 1), (3, 1), (3, 0)])
def test_a_copy_of_the_hidden_weights_that_has_changed_by_a_bit_is_found_and_never_saved(
    size, rank, data, run, groups, tmp_path
):
    out, host = tmp_path / "run", socket.gethostname()
    found = groups(size)(flipping, rank, 6, data, out)
    assert len(set(found)) == 1
    assert found[0].startswith("epoch 2, step 3: the processes must hold equal copies of the hidden layers; ")
    seen = re.search(r'first seen in weight "deep/taste" \((.*?)\)\. No checkpoint was written\. ', found[0])[
        1
    ]
    if size == 3:
        assert f"; rank {rank} ({host}) computed other numbers than most, " in found[0]
        assert f"rank {rank} has " in seen
        assert f"without {host}" in found[0]
    else:
        assert "; the processes computed different numbers, " in found[0]
        assert re.fullmatch(r"rank 0 has [0-9a-f]{12}\.\.\., rank 1 has [0-9a-f]{12}\.\.\.", seen)
    assert sorted(path.name for path in (out / "checkpoints").iterdir()) == [
        "epoch-00001-step-000000000",
        "latest",
    ]
    assert {fingerprint for fingerprint, _ in groups(size)(resumed, [out, out], data)} == {
        Model.load(run).fingerprint()
    }
