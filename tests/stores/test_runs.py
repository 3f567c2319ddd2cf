"""Runs in a store: the main job, kills while a checkpoint is sent, and several trainings of one run."""

import json
import os
import shutil
import signal
from hashlib import sha256

import pytest

import widenet
from tests.mistakes import mistake
from tests.stores.servers import in_every_store
from widenet.errors import CheckpointError, StoreError
from widenet.stores import cache
from widenet.stores.folders import readable
from widenet.stores.runs import RunMirror
from widenet.stores.uri import Uri
from widenet.training.state import Silence

PAIRS = [(user, (user * 7 + n * n) % 40) for user in range(60) for n in range(5)]
ROWS = "user,item\n" + "".join(f"u{user},i{item}\n" for user, item in PAIRS)
NETWORK = {
    "name": "n",
    "layers": [
        {"name": "history", "kind": "input", "field": "items"},
        {"name": "taste", "units": 4, "activation": "tanh"},
        {"name": "next", "kind": "output", "field": "items"},
    ],
}  # fmt: skip
TRAINING = {
    "epochs": 4, "batch_size": 16, "shards": 2, "optimizer": {"kind": "adam", "learning_rate": 0.01},
    "checkpoints": {"min_seconds": 0, "keep_last": 1},
}  # fmt: skip
URI = "s3://shelf/run"


@pytest.fixture
def data(store, tmp_path):
    del store
    (tmp_path / "r.csv").write_text(ROWS)
    return widenet.ingest(tmp_path / "r.csv", tmp_path / "books")


def stop_after(epochs):
    """A function that interrupts a training once so many epochs have ended; and what counts them."""
    done = []
    return {
        "after_epoch": lambda _network, epoch: done.append(epoch),
        "interrupted": lambda: len(done) >= epochs,
    }


def train(data, out, training=TRAINING, **options):
    return widenet.train(NETWORK, training, data, out, device="cpu", **options)


def interrupt(data, out, epochs, **options):
    with pytest.raises(KeyboardInterrupt):
        train(data, out, **stop_after(epochs), **options)


def newest(store):
    return store.published("run")["checkpoints/latest"]


def other_machine(monkeypatch, tmp_path, name):
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / name))


@in_every_store
def test_the_main_job_works_with_everything_in_a_store(store, tmp_path, widenet_command):
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(TRAINING))
    (tmp_path / "r.csv").write_text(ROWS)
    store.put("raw/r.csv", ROWS.encode())
    outcomes = {}
    shelf = f"{store.scheme}://shelf"
    for place, source in {shelf: store.uri("raw/*.csv"), "local": "r.csv"}.items():
        jobs = [
            f"data ingest {source} --out {place}/books",
            f"data split {place}/books --heldout 0.2 --out {place}/split",
            f"train network.json training.json --data {place}/split --out {place}/run --processes 2",
            f"evaluate {place}/run --data {place}/split",
            f"predict {place}/run --data {place}/split --out {place}/p.parquet",
            f"recommend {place}/run --items i1 -k 5",
            f"fingerprint {place}/run",
        ]
        said = [widenet_command(*words.split()) for words in jobs]
        assert [status for status, _ in said] == [0] * len(jobs), said
        outcomes[place] = [text.replace(place, "PLACE") for _, text in said[3:]]
    assert outcomes[shelf] == outcomes["local"]
    local = tmp_path / "local"
    assert store.read("p.parquet") == (local / "p.parquet").read_bytes()
    assert store.published("split") == {path.name: path.read_bytes() for path in (local / "split").iterdir()}
    there, local = store.published("run"), local / "run"
    assert {name for name in there if "events" not in name} == {
        path.relative_to(local).as_posix()
        for path in local.rglob("*")
        if path.is_file() and not path.name.startswith((".", "events"))
    }
    for name in ("model/manifest.json", "network.json", "vocabulary/items.arrow"):
        assert there[name] == (local / name).read_bytes()
    everything = b"".join(store.objects().values()) + b"".join(
        path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()
    )
    assert [secret for secret in store.secrets if secret.encode() in everything] == []
    assert sorted(path.name for path in tmp_path.iterdir() if ":" in path.name) == []


@in_every_store
def test_ten_kills_while_checkpoints_are_sent_leave_no_broken_run(store, data, tmp_path, widenet_command):
    uri = store.uri("run")
    long = {**TRAINING, "epochs": 16}
    undisturbed = train(data, tmp_path / "undisturbed", long).fingerprint()
    (tmp_path / "network.json").write_text(json.dumps(NETWORK))
    (tmp_path / "training.json").write_text(json.dumps(long))
    words = f"train network.json training.json --data {data.path} --out {uri} --device cpu".split()
    seen, running = [], []

    def kill_at(which):
        def kill(method, number):
            if (method, number) == which:
                store.at = None
                os.killpg(running[-1].pid, signal.SIGKILL)

        return kill

    # Objects of the first checkpoint, its manifest, objects and manifests of later ones, removals and reads.
    uploads = [("PUT", number) for number in (1, 9, 17, 18, 3, 12, 5)]
    for which in [*uploads, ("DELETE", 1), ("DELETE", 3), ("GET", 5)]:
        started = store.published("run") is not None
        store.count_from_here(kill_at(which))
        status, text = widenet_command(*words, *["--resume"] * started, started=running.append)
        store.count_from_here()
        seen.append((which, status, store.published("run") is not None))
        assert status == -signal.SIGKILL, (which, text, seen)
        if seen[-1][2]:
            other = readable(uri, "run", whole=True)
            assert widenet.Model.load(other, "cpu").fingerprint()
    assert {is_published for _, _, is_published in seen} == {False, True}
    status, text = widenet_command(*words, "--resume")
    assert status == 0, text
    assert undisturbed in text
    assert widenet.Model.load(uri, "cpu").fingerprint() == undisturbed
    assert objects(store) == listed(store)


@in_every_store
def test_a_run_continues_on_another_machine_and_on_the_first_one_again(store, data, tmp_path, monkeypatch):
    uri = store.uri("run")
    expected = train(data, tmp_path / "undisturbed").fingerprint()
    interrupt(data, uri, 1)
    assert newest(store) == b"epoch-00001-step-000000001\n"
    other_machine(monkeypatch, tmp_path, "second")
    interrupt(data, uri, 1, resume=True)
    other_machine(monkeypatch, tmp_path, "cache")
    for _ in range(2):
        mirror = RunMirror(Uri.of(uri))
        assert mirror.restore()
        assert (mirror.path / "log.jsonl").is_file()
        shutil.rmtree(mirror.path)  # by somebody who leaves hidden files
    assert train(data, uri, resume=True).fingerprint() == expected
    assert "model/manifest.json" in store.published("run")


def test_a_validation_part_is_not_published_but_cut_again(store, tmp_path, monkeypatch):
    data = widenet.ingest(
        {"user": [user for user in range(20) for _ in range(6)], "item": [*range(12)] * 10},
        "s3://shelf/books",
    )
    words = {"device": "cpu", "data": data, "network": None, "training": None, "report": Silence()}
    expected = widenet.train(**words, out=tmp_path / "undisturbed").fingerprint()
    with pytest.raises(KeyboardInterrupt):
        widenet.train(**words, out=URI, **stop_after(1))
    assert "validation.json" in store.published("run")
    assert [name for name in store.published("run") if name.startswith("data")] == []
    other_machine(monkeypatch, tmp_path, "second")
    assert (
        widenet.train(**{**words, "data": "s3://shelf/books"}, out=URI, resume=True).fingerprint() == expected
    )
    assert not any(path.name.endswith(".unfinished") for path in cache.folder("runs").iterdir())


def test_another_training_that_publishes_meanwhile_is_not_overwritten(store, data, tmp_path, monkeypatch):
    interrupt(data, URI, 1)
    theirs = []

    def publish_theirs(*_):
        if not theirs:
            with monkeypatch.context() as patch:
                patch.setenv("WIDENET_CACHE", str(tmp_path / "second"))
                interrupt(data, URI, 1, resume=True)
            theirs.append(store.read("run/widenet.json"))

    with mistake(StoreError):
        train(data, URI, resume=True, after_epoch=publish_theirs)
    assert store.read("run/widenet.json") == theirs[0]
    assert store.published("run")


@in_every_store
def test_a_run_that_could_not_be_sent_goes_on_from_what_the_store_holds(store, data, tmp_path):
    uri = store.uri("run")
    expected = train(data, tmp_path / "undisturbed").fingerprint()
    store.refuse_put(3)
    with mistake(StoreError):
        train(data, uri)
    store.count_from_here()
    assert store.published("run") is None
    with mistake(CheckpointError):
        train(data, uri, resume=True)
    interrupt(data, uri, 2)
    before = newest(store)
    store.refuse_put(2)
    with mistake(StoreError):
        train(data, uri, resume=True)
    store.count_from_here()
    assert newest(store) == before
    assert train(data, uri, resume=True).fingerprint() == expected
    assert objects(store) == listed(store)


def objects(store):
    return {key.removeprefix("run/files/") for key in store.objects("run/files/") if not key.endswith("/")}


def listed(store):
    return {sha256(content).hexdigest() for content in store.published("run").values()}


def test_a_checkpoint_that_no_manifest_lists_is_removed_after_the_next_one(store, tmp_path):
    mirror, digest = RunMirror(Uri.of(URI)), sha256(b"1").hexdigest()
    (tmp_path / "weights").write_bytes(b"1")
    mirror.begin(resume=False)
    mirror.path.mkdir()
    mirror.send(tmp_path, {"weights": {"bytes": 1, "sha256": digest}})
    mirror.note_sent({"weights": {"bytes": 1, "sha256": digest}})
    mirror.publish()
    assert objects(store) == {digest}  # a folder may still take its name
    mirror.publish()
    assert objects(store) == listed(store) == set()


def test_the_weights_of_the_best_epoch_reach_another_machine(data, tmp_path, monkeypatch):
    split = widenet.split(data, tmp_path / "split", validation=0.2)
    training = {**TRAINING, "keep": "best", "evaluation": {"metric": "ndcg@5"}}
    expected = train(split, tmp_path / "undisturbed", training).fingerprint()
    with pytest.raises(KeyboardInterrupt):
        train(split, URI, training, **stop_after(2))
    other_machine(monkeypatch, tmp_path, "second")
    assert train(split, URI, training, resume=True).fingerprint() == expected
    other_machine(monkeypatch, tmp_path, "third")
    assert widenet.Model.load(URI, "cpu").fingerprint() == expected


@pytest.mark.parametrize("name", ["run/notes.txt", "run", "run/network.json"])
def test_a_taken_prefix_is_refused_before_any_step(store, data, name):
    store.put(name, b"mine")
    with mistake(StoreError):
        train(data, URI, after_epoch=pytest.fail)
    assert store.objects() == {name: b"mine"}


def test_a_run_in_the_store_is_not_overwritten(store, data, tmp_path, monkeypatch):
    train(data, URI)
    before = store.objects()
    for machine in ("cache", "second"):
        other_machine(monkeypatch, tmp_path, machine)
        with mistake(StoreError):
            train(data, URI)
    assert store.objects() == before


def test_a_run_that_was_removed_from_the_store_can_be_trained_again(store, data):
    first = train(data, URI).fingerprint()
    store.empty()
    assert train(data, URI).fingerprint() == first
    assert store.published("run")
