"""A training in a group of processes: handed from one number of them to another, and what becomes of it
when one fails.
"""

import errno
import json
import os
import signal
import socket
from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import distributed

from tests.parallel.workers import Group, commanded, exchange
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError, GroupError, OptionError
from widenet.parallel.group import by_all, by_leader, is_leader, join, num_processes
from widenet.parallel.heartbeat import line
from widenet.parallel.processes import ProcessExchange
from widenet.runs import Model, Silence, train
from widenet.training import publication

WIDTH, EXAMPLES, STEPS = 19, 16, 4
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.3, "popularity_damping": 0.5},
        {"name": "taste", "units": 5, "activation": "tanh", "dropout": 0.3},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TIED = {
    "layers": [
        *NETWORK["layers"][:2],
        {**NETWORK["layers"][2], "cosine": {}, "weights": {"layer": "taste", "transposed": True}},
    ]
}
DIVIDED = {
    "layers": [
        *NETWORK["layers"][:1],
        {"name": "picture", "kind": "input", "field": "picture", "shape": [3, 6, 6]},
        {"name": "edges", "kind": "convolution", "filters": 16, "kernel": 3, "split": True},
        {"name": "parts", "kind": "convolution", "filters": 11, "kernel": 3},
        {"name": "taste", "units": 5, "source": ["history", "parts"], "activation": "tanh", "split": True},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {
    "epochs": 3,
    "batch_size": EXAMPLES // STEPS,
    "evaluation": {"metric": "ndcg@5"},
    "keep": "best",
    "checkpoints": {"min_seconds": 0},
}
SETTINGS = {
    "momentum": (NETWORK, {**TRAINING, "optimizer": {"kind": "momentum", "learning_rate": 0.3}}),
    "adam, tied, gradient limit": (
        TIED,
        {**TRAINING, "optimizer": "adam", "gradient_norm_limit": 0.5, "keep": "last"},
    ),
    "adam, divided by examples, gradient limit": (
        DIVIDED,
        {**TRAINING, "optimizer": "adam", "gradient_norm_limit": 0.5},
    ),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    rows = [
        [(example * 5 + step * step) % WIDTH for step in range(2 + example % 4)]
        for example in range(EXAMPLES)
    ]
    path = tmp_path_factory.mktemp("group") / "data"
    dataset_from_lists(
        path,
        [sorted(set(row)) for row in rows],
        validation=[[example % WIDTH] for example in range(EXAMPLES)],
        width=WIDTH,
        dense={"picture": np.random.default_rng(0).random((EXAMPLES, 3 * 6 * 6)).tolist()},
    )
    return path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return {name: trained(name, data, tmp_path_factory.mktemp("undisturbed") / "run") for name in SETTINGS}


class Counted:
    """Interrupts one process after some steps; the others know nothing of it."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left == 0


def trained(name, data, out, resume=False, stop=0):
    """The fingerprint and the logs of a training that ended, or None where it was interrupted; the last
    process is told to stop.
    """
    told = not distributed.is_initialized() or distributed.get_rank() == distributed.get_world_size() - 1
    interrupted = Counted(stop if told else 0)
    try:
        model = train(*SETTINGS[name], data, out, resume=resume, interrupted=interrupted)
    except KeyboardInterrupt:
        return None
    return model.fingerprint(), log(out)


def log(out):
    lines = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "second" not in name} for line in lines]


@pytest.mark.parametrize("name", SETTINGS)
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


def loaded(out):
    return Model.load(out).fingerprint()


def test_an_interrupted_run_is_read_by_any_number_of_processes(data, groups, tmp_path):
    out = tmp_path / "run"
    groups(2)(trained, "momentum", data, out, False, 6)
    alone = Model.load(out).fingerprint()
    assert groups(2)(loaded, out) == [alone] * 2
    assert groups(3)(loaded, out) == [alone] * 3


def used(out, data):
    """What a loaded model answers; its number of shards is that of its run."""
    model = Model.load(out)
    return model.evaluate(data, "validation", ks=[5]), [
        (block.items, block.scores.tolist()) for block in model.predict(data, k=4)
    ]


def test_a_run_is_used_by_at_most_as_many_processes_as_it_has_shards(data, groups, tmp_path):
    out = tmp_path / "run"
    train(NETWORK, {**SETTINGS["momentum"][1], "shards": 3}, data, out)
    for size in (2, 3):
        assert groups(size)(used, out, data) == [used(out, data)] * size
    groups(4).start(used, out, data)
    assert [type(error) for error in groups(4).outcomes()] == [OptionError] * 4


def trained_on_a_full_disk(name, data, out, full, good):
    """As `trained`, in a group of which one process cannot write a file after some good ones."""
    save, left = publication.write, [good]

    def failing(path, tensors):
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return save(path, tensors)

    publication.write = failing if distributed.get_rank() == full else save
    try:
        return trained(name, data, out)
    finally:
        publication.write = save


@pytest.mark.parametrize("full", [0, 1])
def test_a_disk_that_is_full_for_one_process_stops_all_and_leaves_the_last_checkpoint(
    full, data, undisturbed, groups, tmp_path
):
    out, name = tmp_path / "run", "adam, tied, gradient limit"
    own_files = 4 * 2 + (full == 0)
    groups(2).start(trained_on_a_full_disk, name, data, out, full, own_files + 3)
    first, second = groups(2).outcomes()
    assert type(first) is type(second) is CheckpointError
    assert str(first) == str(second)
    checkpoints = sorted(path.name for path in (out / "checkpoints").iterdir())
    assert checkpoints == ["epoch-00001-step-000000000", "latest"]
    assert groups(4)(trained, name, data, out, True) == [undisturbed[name]] * 4


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


def worked(together, fails):
    here, rank, done = exchange(), distributed.get_rank(), []

    def work():
        if rank in fails:
            raise OptionError(f"process {rank} fails.")
        done.append(rank)

    try:
        together(here, work, "work")
    except OptionError as error:
        return str(error)
    return done


def test_what_one_process_raises_all_raise(groups):
    group = groups(4)
    assert group(worked, by_leader, []) == [[0], [], [], []]
    assert group(worked, by_leader, [1]) == [[0], [], [], []]
    assert group(worked, by_leader, [0]) == ["process 0 fails."] * 4
    assert group(worked, by_all, []) == [[0], [1], [2], [3]]
    assert group(worked, by_all, [3, 2]) == ["process 2 fails."] * 4


@pytest.mark.parametrize(
    "words",
    ["evaluate RUN --data DATA --part validation --json", "recommend RUN --items 3", "fingerprint RUN"],
)
def test_a_command_within_a_group_says_once_what_it_says_alone(words, data, groups, tmp_path):
    trained("momentum", data, tmp_path / "run")
    line = words.replace("RUN", str(tmp_path / "run")).replace("DATA", str(data)).split()
    status, said, complained = commanded(line)
    assert len(said) > 60
    assert groups(2)(commanded, line) == [(status, said, complained), (status, "", "")]


class Crash(Silence):
    """Ends the process that reports, in the middle of a training."""

    def advance(self, *_):
        os._exit(1)


def crashing(data, out):
    train(*SETTINGS["momentum"], data, out, report=Crash(), interrupted=lambda: False)


def test_where_a_process_is_lost_the_others_say_so_and_end(data, tmp_path):
    with Group(2, tmp_path) as group:
        group.start(crashing, data, tmp_path / "run")
        leader, other = group.outcomes()
    assert type(leader) is EOFError
    assert (type(other), other.place) == (GroupError, "process 1 of 2, epoch 1, step 2, interruption")
    assert "\n" not in str(other)


class AwayError(Exception):
    """A process does not come to where the others wait for it."""


def deserting(place, where, killed, work, *arguments):
    """Work to which the last process does not come as far as a place: it is killed, or it lives and does
    something else.
    """
    whole = ProcessExchange.begin

    def deserted(here, ask, what_for):
        if distributed.get_rank() == 1 and (here.place, what_for) == (place, where):
            line().submit(bool).result()  # what was asked for before has been given
            if killed:
                os.kill(os.getpid(), signal.SIGKILL)
            raise AwayError
        return whole(here, ask, what_for)

    ProcessExchange.begin = deserted
    return work(*arguments)


def predicted(data, out):
    return list(Model.load(out).predict(data, 3))


PLACES = [
    ("epoch 2, step 3", 'layer "taste"', trained),
    ("epoch 3, step 1", 'output "next"', trained),
    ("evaluation", 'layer "taste"', trained),
    ("users 0 to 15", 'output "next"', predicted),
]


@pytest.mark.parametrize(
    ("place", "where", "work", "killed", "timeout"),
    [*((*place, True, 60) for place in PLACES), (*PLACES[0], False, 10)],
)
def test_the_others_say_in_which_step_and_layer_a_process_was_missed(
    place, where, work, killed, timeout, data, tmp_path
):
    run = tmp_path / "run"
    if work is predicted:
        trained("momentum", data, run)
    with Group(2, tmp_path, timedelta(seconds=timeout)) as group:
        group.start(
            deserting, place, where, killed, work, *(["momentum"] if work is trained else []), data, run
        )
        other, deserter = group.outcomes()
    assert type(deserter) is (EOFError if killed else AwayError)
    assert (type(other), other.place) == (GroupError, f"process 0 of 2, {place}, {where}")


def waiting():
    return exchange().start_any([lambda: False], "interruption").result()


def test_a_process_does_not_wait_for_ever(tmp_path):
    with Group(2, tmp_path, timeout=timedelta(seconds=1)) as group:
        group.start(waiting, ranks=[1])
        (error,) = group.outcomes(ranks=[1])
    assert (type(error), error.place) == (GroupError, "process 1 of 2, start, interruption")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (1, True)),
        ({"RANK": "1"}, (1, True)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (2, False)),
        ({"RANK": "0", "WORLD_SIZE": "2"}, (2, True)),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}, (2, False)),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, (1, True)),
    ],
    ids=["alone", "rank alone", "torchrun, second", "torchrun, first", "srun", "a batch script without srun"],
)
def test_a_group_is_known_by_what_its_launcher_says(environment, expected, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", *(name for name in os.environ if name.startswith("SLURM_"))):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (num_processes(), is_leader()) == expected


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
