"""A newer model is swapped in under load: no request lost, and each answer that of the model it names."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import pytest

from tests.serve.conftest import NETWORK, service
from widenet.runs import Model, train
from widenet.serve.batches import Follower, Measurements, ModelThread, state_of
from widenet.serve.engine import Engine
from widenet.serve.serve_arguments import ServeArguments


def point(link, run):
    """Let a link lead to another run, at once."""
    beside = link.with_name("beside")
    beside.symlink_to(run)
    beside.replace(link)


def test_the_model_of_a_link_that_moves_is_swapped_under_load_without_an_error(world, tmp_path):
    link = tmp_path / "current"
    point(link, world.run("first"))
    expected = {}
    for name in ("first", "second"):
        model = Model.load(world.run(name), "cpu")
        expected[model.fingerprint()] = [vars(one) for one in model.recommend(["i1", "i7"], k=5)]
    first, second = expected
    with service(link) as running, ThreadPoolExecutor(8) as pool:

        def until(fingerprint):
            seen = []
            while not seen or seen[-1].json["fingerprint"] != fingerprint:
                seen.append(running.recommend(items=["i1", "i7"], k=5))
            return seen

        for name, fingerprint in (("second", second), ("first", first), ("second", second)):
            point(link, world.run(name))
            for replies in pool.map(until, [fingerprint] * 8):
                assert {reply.status for reply in replies} == {200}
                assert all(reply.json["items"] == expected[reply.json["fingerprint"]] for reply in replies)
        assert running.measured("widenet_swaps_total") == 3


def test_a_run_in_training_is_served_with_each_newer_checkpoint(world, tmp_path):
    run, saved, seen, pointers = tmp_path / "run", Queue(), Queue(), [""]
    latest = run / "checkpoints" / "latest"

    def wait_after_each_checkpoint():
        if latest.exists() and latest.read_text() != pointers[-1]:
            pointers.append(latest.read_text())
            saved.put(None)
            seen.get(timeout=600)
        return False

    document, fingerprints = {"epochs": 3, "shards": 3, "checkpoints": {"min_seconds": 0}}, []
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(
            train, NETWORK, document, world.data, run, device="cpu", interrupted=wait_after_each_checkpoint
        )
        training.add_done_callback(saved.put)
        saved.get(timeout=600)
        with service(run) as running:
            while True:
                is_finished, model = training.done(), Model.load(run, "cpu")
                fingerprints.append(model.fingerprint())
                reply = running.recommend(items=["i1", "i7"], k=5)
                while reply.json["fingerprint"] != fingerprints[-1]:
                    assert reply.json["fingerprint"] == fingerprints[-2]
                    assert training.done() == is_finished, training.exception()
                    reply = running.recommend(items=["i1", "i7"], k=5)
                assert reply.json["items"] == [vars(one) for one in model.recommend(["i1", "i7"], k=5)]
                if is_finished:
                    break
                seen.put(None)
                saved.get(timeout=600)
    assert fingerprints[-1] == training.result().fingerprint()
    assert len(set(fingerprints)) == 3


@pytest.mark.parametrize(("fault", "may_pass"), [(OSError("a disk"), True), (MemoryError(), False)])
def test_a_model_that_cannot_be_loaded_leaves_the_one_that_answers(fault, may_pass, world, tmp_path, capsys):
    link, faults = tmp_path / "current", [fault]

    def load(run):
        if faults:
            raise faults.pop()
        return Engine.load(run, None, "cpu", None)

    point(link, world.run("first"))
    before = Engine.load(link, None, "cpu", None)
    thread = ModelThread(before, ServeArguments(link), Measurements())
    follower = Follower(link, state_of(link), thread, load)
    newer = Model.load(world.run("second"), "cpu").fingerprint()
    point(link, world.run("second"))
    follower.look()
    assert thread.engine is before
    assert capsys.readouterr().err.count("the model that answers stays") == 1
    follower.look()
    assert (thread.engine.fingerprint == newer) == may_pass
    for name in ("first", "second"):
        point(link, world.run(name))
        follower.look()
    assert thread.engine.fingerprint == newer


def test_weights_that_are_copied_over_in_place_are_another_model(world, tmp_path):
    run = shutil.copytree(world.run("first"), tmp_path / "run")
    before = state_of(run)
    assert state_of(run) == before
    shutil.copytree(world.run("second"), run, dirs_exist_ok=True)
    assert state_of(run) != before
