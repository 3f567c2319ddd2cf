"""The stream: every example once, resumable anywhere, its thread never left behind."""

import threading

import numpy as np
import pytest
import torch

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.data.stream import Stream
from widenet.errors import DataError, FitError, OptionError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return dataset_from_lists(
        tmp_path_factory.mktemp("stream") / "ds",
        [[row % 7, 7 + row % 5] if row % 4 else [] for row in range(23)],
        heldout=[[row % 3] for row in range(23)],
        weights=[row / 2 for row in range(23)],
        dense={"age": [[row] for row in range(23)]},
    )


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("widenet-batches")]


def test_an_epoch_has_every_example_once_and_a_smaller_last_batch(dataset):
    stream = Stream(dataset, ["items", "age"], 5, seed=3)
    batches = list(stream.batches(0))
    assert stream.steps_per_epoch == len(batches) == 5
    assert [batch.num_examples for batch in batches] == [5, 5, 5, 5, 3]
    assert [batch.step for batch in batches] == [0, 1, 2, 3, 4]
    assert sorted(np.concatenate([batch.rows for batch in batches])) == list(range(23))


def test_a_batch_carries_the_fields_and_weights_of_its_rows(dataset):
    for batch in Stream(dataset, ["items", "age"], 5, seed=3).batches(2):
        assert batch.fields["items"].indices.equal(dataset.sparse("items", batch.rows).indices)
        assert batch.fields["age"][:, 0].tolist() == batch.rows.tolist()
        assert batch.weights.tolist() == (batch.rows / 2).tolist()


def test_of_a_field_that_is_divided_only_some_examples_are_read(dataset):
    own = {"age": lambda count: slice(count // 2, count - 1)}
    whole = list(Stream(dataset, ["items", "age"], 5, seed=3).batches(0))
    for batch, some in zip(
        whole, Stream(dataset, ["items", "age"], 5, seed=3, own=own).batches(0), strict=True
    ):
        half, last = batch.num_examples // 2, batch.num_examples - 1
        expected = batch.fields["age"].clone()
        expected[:half] = expected[last:] = 0
        assert torch.equal(some.fields["age"], expected)
        assert torch.equal(some.fields["items"].indices, batch.fields["items"].indices)


def test_epochs_and_seeds_have_orders_of_their_own(dataset):
    def order(seed, epoch):
        return np.concatenate(
            [batch.rows for batch in Stream(dataset, [], 4, seed=seed).batches(epoch)]
        ).tolist()

    assert order(1, 0) == order(1, 0)
    assert len({tuple(order(seed, epoch)) for seed in (1, 2) for epoch in (0, 1)}) == 4


@pytest.mark.parametrize("start_step", [0, 1, 4, 5])
def test_a_resumed_stream_equals_the_uninterrupted_one(dataset, start_step):
    whole = list(Stream(dataset, ["items"], 5, seed=3).batches(7))
    resumed = list(Stream(dataset, ["items"], 5, seed=3).batches(7, start_step))
    assert [(batch.epoch, batch.step) for batch in resumed] == [(7, step) for step in range(start_step, 5)]
    for batch, again in zip(whole[start_step:], resumed, strict=True):
        assert batch.rows.tolist() == again.rows.tolist()
        assert batch.fields["items"].indices.equal(again.fields["items"].indices)


def test_examples_without_entries_can_be_left_out(dataset):
    stream = Stream(dataset, ["items"], 4, seed=0, skip_empty="items")
    batches = list(stream.batches(0))
    assert stream.num_examples == 17
    assert sorted(np.concatenate([batch.rows for batch in batches])) == [row for row in range(23) if row % 4]
    assert all(batch.fields["items"].counts().min() == 2 for batch in batches)


def test_a_failure_in_the_thread_reaches_the_reader(dataset, monkeypatch):
    stream = Stream(dataset, ["items"], 2, seed=0)
    read = stream._read

    def failing(name, rows):
        if threading.current_thread() is not threading.main_thread() and next(calls) == 4:
            raise RuntimeError("the disk is gone")
        return read(name, rows)

    calls = iter(range(100))
    monkeypatch.setattr(stream, "_read", failing)
    seen = []
    with pytest.raises(RuntimeError, match="the disk is gone"):
        seen.extend(batch.step for batch in stream.batches(0))
    assert threads() == []


def test_leaving_early_ends_the_thread(dataset):
    batches = Stream(dataset, ["items"], 1, seed=0).batches(0)
    next(batches)
    assert threads() != []
    batches.close()
    assert threads() == []


def test_what_cannot_be_streamed_is_refused_at_once(dataset, tmp_path):
    with mistake(OptionError):
        Stream(dataset, ["items"], 0, seed=0)
    with mistake(FitError):
        Stream(dataset, ["items"], 1, seed=0, part="validation")
    with mistake(DataError, place="itms"):
        Stream(dataset, ["itms"], 1, seed=0)
    with mistake(DataError):
        Stream(dataset_from_lists(tmp_path / "empty", [[], []]), ["items"], 1, seed=0, skip_empty="items")
