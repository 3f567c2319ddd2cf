"""Runs in a store that cannot be resumed: one sentence, before the processes have joined."""

import pytest

from widenet.data.lists import dataset_from_lists
from widenet.stores.runs import RunMirror
from widenet.stores.uri import Uri

URI = "s3://shelf/run"


@pytest.fixture
def data(store, tmp_path):
    del store
    return dataset_from_lists(tmp_path / "books", [[0, 1], [1, 2], [0, 2]])


RESUMES = {
    "a closed port": ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, URI),
    "no bucket": ({}, "s3://none/run"),
    "no run": ({}, URI),
    "a copy that cannot be made": ({}, URI),
}


@pytest.mark.parametrize("lacks", RESUMES)
def test_a_run_that_cannot_be_resumed_is_one_sentence_of_all_processes(lacks, data, widenet_command):
    variables, uri = RESUMES[lacks]
    if lacks.startswith("a copy"):
        place = RunMirror(Uri.of(uri)).path
        place.with_name(f".{place.name}.making").mkdir()
    words = f"train --data {data.path} --out {uri} --device cpu --processes 2 --resume".split()
    status, text = widenet_command(*words, **variables)
    assert (status, len(text.splitlines())) == (2, 1), text
    assert text.startswith("widenet: ")
