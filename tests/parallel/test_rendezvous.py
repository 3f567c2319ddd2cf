"""Processes of one launch and attempt share a store, apart from all others, and find an interface.

A later attempt goes on with the training that an earlier one of the same launch began.
"""

import os
import shutil
import socket
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from torch import distributed
from torch.distributed import DistStoreError, HashStore, PrefixStore

from tests.parallel.test_group import EXAMPLES, NETWORK, SETTINGS, STEPS, WIDTH, Counted, log, trained
from tests.trainings import Heard
from widenet.data.lists import dataset_from_lists
from widenet.errors import CheckpointError
from widenet.parallel.group import attempt_name, choose_interface, store_of_this_launch
from widenet.parallel.launch import identity
from widenet.runs import train

SIZE, LIMIT = 3, timedelta(seconds=60)


@pytest.fixture
def store():
    store = HashStore()
    store.set_timeout(LIMIT)
    return store


def attempt(store, order):
    """Let the processes of an attempt ask in some order; for each, the ranks whose addresses it reads."""

    def process(rank):
        part = PrefixStore(attempt_name(store, rank, SIZE, LIMIT), store)
        assert not part.check([f"address {rank}"])
        part.set(f"address {rank}", str(rank))
        part.wait([f"address {other}" for other in range(SIZE)])
        return sorted(int(part.get(f"address {other}")) for other in range(SIZE))

    with ThreadPoolExecutor(SIZE) as pool:
        return list(pool.map(process, order))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)], ids=str)
def test_every_attempt_has_a_part_for_itself(order, store):
    for _ in range(3):
        assert attempt(store, order) == [[0, 1, 2]] * SIZE


def test_a_process_that_was_killed_while_it_asked_is_not_waited_for(store):
    store.set("widenet/asks/1", "somebody who was killed")
    assert attempt(store, (0, 2, 1)) == [[0, 1, 2]] * SIZE


def test_the_first_process_waits_for_the_others_until_the_timeout(store):
    store.set("widenet/asks/1", "somebody of an earlier attempt")
    with pytest.raises(DistStoreError, match="process 1 did not come"):
        attempt_name(store, 0, 2, timedelta(0))


@pytest.fixture
def launched(tmp_path, monkeypatch):
    """Gives a function that sets the identity of the launcher."""
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    return lambda name: monkeypatch.setattr("widenet.parallel.group.launcher_identity", lambda: name)


def shared_stores():
    """The stores of the processes of one launch, by rank; the first process asks last."""
    with ThreadPoolExecutor(SIZE) as pool:
        futures = [pool.submit(store_of_this_launch, rank, SIZE, LIMIT) for rank in (2, 1, 0)]
        return [future.result() for future in reversed(futures)]


def test_the_processes_of_a_launch_share_a_store_and_leave_no_file(launched, tmp_path):
    launched("1-1")
    for _ in range(2):
        first, *others = shared_stores()
        first.set("word", "heard")
        assert [store.get("word") for store in others] == [b"heard"] * 2
        assert list(tmp_path.iterdir()) == []


def own_address():
    """The address from which this machine reaches others; connecting a datagram socket sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection:
        try:
            connection.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no route to other machines")
        return connection.getsockname()[0]


@pytest.fixture
def unchosen(monkeypatch):
    """The environment names no interface, and names none after the test."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")  # undone at the end, which deleting an absent one is not
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")


@pytest.mark.usefixtures("unchosen")
def test_gloo_is_told_the_interface_of_the_address():
    choose_interface(own_address())
    assert os.environ["GLOO_SOCKET_IFNAME"] in [name for _, name in socket.if_nameindex()]


@pytest.mark.usefixtures("unchosen")
@pytest.mark.parametrize("address", ["127.0.0.1", "192.0.2.77"])
def test_gloo_is_told_nothing_where_the_machine_decides(address):
    choose_interface(address)
    assert "GLOO_SOCKET_IFNAME" not in os.environ


def test_gloo_is_told_nothing_where_the_user_decides(monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "chosen")
    choose_interface(own_address())
    assert os.environ["GLOO_SOCKET_IFNAME"] == "chosen"


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
    )
    return path


@pytest.fixture(scope="module")
def undisturbed(data, tmp_path_factory):
    return trained("momentum", data, tmp_path_factory.mktemp("undisturbed") / "run")


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
    plan, interrupted = {**SETTINGS["momentum"][1], **more}, Counted(steps) if steps else lambda: 1 / 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHELASTIC_RUN_ID", launch)
        with pytest.raises((KeyboardInterrupt, ZeroDivisionError)):
            train(NETWORK, plan, data, out, interrupted=interrupted)


def a_run_of_which_the_best_alone_was_saved(out, data):
    a_run(out, data, steps=STEPS + 1)
    shutil.rmtree(out / "checkpoints")


ANEW, ON = "starts over, since it has no checkpoint yet", "resumes from its newest checkpoint"


LEFT = {
    "nothing": (lambda *_: None, ANEW),
    "a run half made": (lambda out, _: (out.with_name(".run.77") / "vocabulary").mkdir(parents=True), ANEW),
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
    assert leader[0] == other[0] == undisturbed
    assert (leader[1][0], other[1]) == (f"torchrun has restarted this training; it {said}.", [])
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("launch", ["", "an earlier launch"])
def test_a_run_that_another_launch_left_is_not_gone_on_with_unasked(launch, data, groups, tmp_path):
    a_run(tmp_path / "run", data, steps=STEPS + 1, launch=launch)
    groups(2).start(trained_again, "momentum", data, tmp_path / "run")
    found = groups(2).outcomes()
    assert [type(error) for error in found] == [CheckpointError] * 2


def agent():
    """The name of the process that has started this one, as torchrun's agent does."""
    return identity(os.getppid())


def test_launches_without_an_id_differ_by_their_agents(data, undisturbed, groups, tmp_path):
    """torchrun calls them all "none"."""
    out, note = tmp_path / "run", tmp_path / "run" / ".torchrun"
    a_run(out, data, steps=STEPS + 1, launch="none")
    note.write_text("none\nan agent\na process")
    groups(2).start(trained_again, "momentum", data, out, "none")
    assert [type(error) for error in groups(2).outcomes()] == [CheckpointError] * 2
    note.write_text(f"none\n{groups(2)(agent)[1]}\na process")
    leader, other = groups(2)(trained_again, "momentum", data, out, "none")
    assert leader[0] == other[0] == undisturbed


def test_a_training_that_torchrun_has_started_again_is_still_of_the_documents_it_was_begun_with(
    data, groups, tmp_path
):
    a_run(tmp_path / "run", data, steps=STEPS + 1, seed=7)
    groups(2).start(trained_again, "momentum", data, tmp_path / "run")
    assert [type(error) for error in groups(2).outcomes()] == [CheckpointError] * 2
