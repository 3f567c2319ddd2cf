"""A training in a group of processes: how they meet, and what becomes of it when one fails or all restart."""

import os
import shutil
import signal
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import distributed
from torch.distributed import HashStore, PrefixStore

from tests.parallel.workers import Group
from tests.trainings import TIED, UNTIED, After, Heard, books, document, log
from widenet.errors import CheckpointError, GroupError, OptionError
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import (
    attempt_name,
    join,
    store_of_this_launch,
)
from widenet.parallel.launch import launch_name, line
from widenet.runs import Model, train

EXAMPLES, STEPS = 16, 4
DIVIDED = {
    "layers": [
        UNTIED["layers"][0],
        {"name": "picture", "kind": "input", "field": "picture", "shape": [3, 6, 6]},
        {"name": "edges", "kind": "convolution", "filters": 16, "kernel": 3, "split": True},
        {"name": "parts", "kind": "convolution", "filters": 11, "kernel": 3},
        {"name": "taste", "units": 5, "source": ["history", "parts"], "activation": "tanh", "split": True},
        UNTIED["layers"][2],
    ]
}


def plan(optimizer, **more):
    return document(optimizer, **{"batch_size": EXAMPLES // STEPS, "shards": 8, "keep": "best", **more})


SETTINGS = {
    "momentum": (UNTIED, plan({"kind": "momentum", "learning_rate": 0.3})),
    "adam, tied, gradient limit": (TIED, plan("adam", gradient_norm_limit=0.5, keep="last")),
    "adam, divided by examples, gradient limit": (DIVIDED, plan("adam", gradient_norm_limit=0.5)),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    pictures = np.random.default_rng(0).random((EXAMPLES, 3 * 6 * 6)).tolist()
    path = tmp_path_factory.mktemp("group") / "data"
    return books(path, num_examples=EXAMPLES, dense={"picture": pictures}).path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return {name: trained(name, data, tmp_path_factory.mktemp("undisturbed") / "run") for name in SETTINGS}


def trained(name, data, out, resume=False, stop=0):
    """The fingerprint and the logs of a training that ended, or None where it was interrupted; the last
    process alone is told to stop, after some steps.
    """
    told = not distributed.is_initialized() or distributed.get_rank() == distributed.get_world_size() - 1
    interrupted = After(stop) if stop and told else lambda: False
    try:
        model = train(*SETTINGS[name], data, out, resume=resume, interrupted=interrupted)
    except KeyboardInterrupt:
        return None
    return model.fingerprint(), log(out)


@pytest.mark.parametrize("name", [*SETTINGS][1:])
def test_a_training_may_change_its_number_of_processes_within_an_epoch(
    name, data, undisturbed, groups, tmp_path
):
    out = tmp_path / "run"
    assert groups(4)(trained, name, data, out, False, 2) == [None] * 4
    assert groups(3)(trained, name, data, out, True, 3) == [None] * 3
    assert trained(name, data, out, True, 4) is None
    assert (out / "checkpoints" / "latest").read_text() == "epoch-00002-step-000000001\n"
    assert groups(3)(trained, name, data, out, True) == [undisturbed[name]] * 3
    assert Model.load(out).fingerprint() == undisturbed[name][0]


def used(out, data):
    """What a loaded model answers; its number of shards is that of its run."""
    model = Model.load(out)
    return model.evaluate(data, "validation", ks=[5]), [
        (block.items, block.scores.tolist()) for block in model.predict(data, k=4)
    ]


def test_a_run_is_used_by_at_most_as_many_processes_as_it_has_shards(data, groups, tmp_path):
    out = tmp_path / "run"
    train(UNTIED, plan("momentum", shards=3), data, out)
    for size in (2, 3):
        assert groups(size)(used, out, data) == [used(out, data)] * size
    groups(4).start(used, out, data)
    assert [type(error) for error in groups(4).outcomes()] == [OptionError] * 4


def test_a_shard_that_only_one_process_finds_damaged_stops_all(data, groups, tmp_path):
    out = tmp_path / "run"
    groups(2)(trained, "momentum", data, out, False, 5)
    for path in sorted((out / "checkpoints").glob("epoch-*/wide-00.shard-0007-of-0008.safetensors")):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(bytes(content))
    groups(2).start(trained, "momentum", data, out, True)
    first, second = groups(2).outcomes()
    assert type(first) is type(second) is CheckpointError
    assert (first.place, str(first)) == (str(path), str(second))


def deserting(place, where, work, *arguments):
    """Work in which the last process is killed before it comes to a place."""
    whole = Exchange.begin

    def deserted(here, ask, what_for):
        if distributed.get_rank() == 1 and (here.place, what_for) == (place, where):
            line().submit(bool)()  # what was asked for before has been given
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(here, ask, what_for)

    Exchange.begin = deserted
    return work(*arguments)


def predicted(data, out):
    return list(Model.load(out).predict(data, 3))


PLACES = [
    ("epoch 2, step 3", 'output "next"', trained),
    ("users 0 to 15", 'output "next"', predicted),
]


@pytest.mark.parametrize(("place", "where", "work"), PLACES)
def test_the_others_say_in_which_step_and_layer_a_process_was_missed(place, where, work, data, tmp_path):
    run = tmp_path / "run"
    if work is predicted:
        trained("momentum", data, run)
    with Group(2, tmp_path) as group:
        group.start(deserting, place, where, work, *(["momentum"] if work is trained else []), data, run)
        other, deserter = group.outcomes()
    assert type(deserter) is EOFError
    assert "\n" not in str(other)
    assert (type(other), other.place) == (GroupError, f"process 0 of 2, {place}, {where}")


@pytest.mark.parametrize("launcher", ["WIDENET_LAUNCHER", "TORCHELASTIC_USE_AGENT_STORE"])
def test_a_process_whose_launcher_is_gone_does_not_wait_for_it(launcher, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        launcher: "True",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(GroupError, match="Connection refused"):
        join(torch.device("cpu"))


ATTEMPTED, LIMIT = 3, timedelta(seconds=60)


@pytest.fixture
def store():
    store = HashStore()
    store.set_timeout(LIMIT)
    return store


def attempt(store, order):
    """Let the processes of an attempt ask in some order; for each, the ranks whose addresses it reads."""

    def process(rank):
        part = PrefixStore(attempt_name(store, rank, ATTEMPTED, LIMIT), store)
        assert not part.check([f"address {rank}"])
        part.set(f"address {rank}", str(rank))
        part.wait([f"address {other}" for other in range(ATTEMPTED)])
        return sorted(int(part.get(f"address {other}")) for other in range(ATTEMPTED))

    with ThreadPoolExecutor(ATTEMPTED) as pool:
        return list(pool.map(process, order))


def test_every_attempt_has_a_part_for_itself_and_waits_for_nobody_who_was_killed(store):
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        assert attempt(store, order) == [[0, 1, 2]] * ATTEMPTED
    store.set("widenet/asks/1", "somebody who was killed while it asked")
    assert attempt(store, (0, 2, 1)) == [[0, 1, 2]] * ATTEMPTED


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Gives a function that sets the identity of the launcher."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return lambda name: monkeypatch.setattr("widenet.parallel.group.launcher_identity", lambda: name)


def shared_stores():
    """The stores of the processes of one launch, by rank; the first process asks last."""
    with ThreadPoolExecutor(ATTEMPTED) as pool:
        futures = [pool.submit(store_of_this_launch, rank, ATTEMPTED, LIMIT) for rank in (2, 1, 0)]
        return [future.result() for future in reversed(futures)]


def test_the_processes_of_a_launch_share_a_store_and_leave_no_file(launched, tmp_path):
    launched("1-1")
    for _ in range(2):
        first, *others = shared_stores()
        first.set("word", "heard")
        assert [store.get("word") for store in others] == [b"heard"] * 2
        assert list(tmp_path.iterdir()) == []


def trained_again(name, data, out, launch="this launch"):
    """As `trained`, where torchrun counts a restart in the second process alone, as it does with a group
    on two machines.
    """
    heard = Heard()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RESTART_COUNT", str(distributed.get_rank()))
        patch.setenv("TORCHELASTIC_RUN_ID", launch)
        model = train(*SETTINGS[name], data, out, report=heard)
    return (model.fingerprint(), log(out)), heard.said


def a_run(out, data, steps=0, launch="this launch", **more):
    """A run that was cut short after some steps, or by the first one; then it was never saved."""
    network, training = SETTINGS["momentum"]
    interrupted = After(steps) if steps else lambda: 1 / 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RUN_ID", launch)
        with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
            train(network, {**training, **more}, data, out, interrupted=interrupted)


def a_run_of_which_the_best_alone_was_saved(out, data):
    a_run(out, data, steps=STEPS + 1)
    shutil.rmtree(out / "checkpoints")


def a_run_half_made(out, _):
    (out.with_name(".run.unfinished") / "vocabulary").mkdir(parents=True)


ANEW, ON = "starts over", "resumes"
LEFT = {
    "nothing": (lambda *_: None, ANEW),
    "a run half made": (a_run_half_made, ANEW),
    "another run without work": (lambda out, data: a_run(out, data, seed=7), ANEW),
    "the best weights": (a_run_of_which_the_best_alone_was_saved, ANEW),
    "a checkpoint": (lambda out, data: a_run(out, data, steps=STEPS + 1), ON),
}


@pytest.mark.parametrize("left", LEFT)
def test_a_group_that_torchrun_has_started_again_goes_on_or_begins_anew(
    left, data, undisturbed, groups, tmp_path
):
    leave, said = LEFT[left]
    leave(tmp_path / "run", data)
    leader, other = groups(2)(trained_again, "momentum", data, tmp_path / "run")
    assert leader[0] == other[0] == undisturbed["momentum"]
    assert (said in leader[1][0], other[1]) == (True, [])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("left", [{"launch": ""}, {"launch": "an earlier launch"}, {"seed": 7}], ids=str)
def test_a_run_of_another_launch_or_of_other_documents_is_not_gone_on_with(left, data, groups, tmp_path):
    a_run(tmp_path / "run", data, steps=STEPS + 1, **left)
    groups(2).start(trained_again, "momentum", data, tmp_path / "run")
    assert [type(error) for error in groups(2).outcomes()] == [CheckpointError] * 2


def name_without_an_id():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RUN_ID", "none")
        return launch_name()


def test_launches_without_an_id_differ_by_their_agents(data, undisturbed, groups, tmp_path):
    """torchrun calls them all "none"."""
    out, note = tmp_path / "run", tmp_path / "run" / ".torchrun"
    a_run(out, data, steps=STEPS + 1, launch="none")
    note.write_text("none of another agent")
    groups(2).start(trained_again, "momentum", data, out, "none")
    assert [type(error) for error in groups(2).outcomes()] == [CheckpointError] * 2
    note.write_text(f"a name\n{groups(2)(name_without_an_id)[1]}")
    leader, other = groups(2)(trained_again, "momentum", data, out, "none")
    assert leader[0] == other[0] == undisturbed["momentum"]
