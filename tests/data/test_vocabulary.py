"""The vocabulary: names both ways, and a search that says what is near."""

import numpy as np
import pyarrow as pa
import pytest

from tests.flips import flips
from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.data.manifest import sha256_of
from widenet.data.vocabulary import Vocabulary
from widenet.data.writer import VOCABULARY_SCHEMA
from widenet.errors import DataError, OptionError

TITLES = ["Emma", "The Tower", "emma", None, "Tower of Glass", "Ünder the Tower"]
IDS = ["b1", "b2", "b3", "b4", "b5", "Emma"]
COUNTS = [1, 2, 3, 4, 9, 5]


@pytest.fixture(params=[10, 2])
def vocabulary(tmp_path, request):
    """The same vocabulary in one record batch and in three."""
    path = tmp_path / "items.vocabulary.arrow"
    table = pa.table([pa.array(IDS), pa.array(TITLES), pa.array(COUNTS)], schema=VOCABULARY_SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_table(table, max_chunksize=request.param)
    return Vocabulary.open(path)


def test_indices_give_ids_and_titles_and_ids_give_indices(vocabulary):
    assert len(vocabulary) == 6
    assert vocabulary.ids([5, 0, 0, 3]) == ["Emma", "b1", "b1", "b4"]
    assert vocabulary.titles([4, 3]) == ["Tower of Glass", "b4"]
    assert vocabulary.titles([]) == []
    assert vocabulary.index_of(["b4", "Emma", "b4"]).tolist() == [3, 5, 3]
    assert vocabulary.counts.tolist() == COUNTS


def test_an_id_comes_before_titles_and_whole_titles_before_parts(vocabulary):
    assert vocabulary.find("Emma") == [5]
    assert vocabulary.find("EMMA") == [2, 0]
    assert vocabulary.find("the tower") == [1]
    assert vocabulary.find("tower") == [4, 5, 1]
    assert vocabulary.find("ÜNDER") == vocabulary.find("under") == [5]


def test_many_texts_find_what_each_finds_and_ids_take_no_search(vocabulary, monkeypatch):
    texts = [*IDS, "tower", "emma"] * 2
    assert vocabulary.find_each(texts) == [vocabulary.find(text) for text in texts]
    assert vocabulary.find_each([]) == []
    monkeypatch.delattr(Vocabulary, "find")
    assert vocabulary.find_each(IDS * 50_000) == [[index] for index in range(len(IDS))] * 50_000


def test_a_number_is_no_part_of_a_title(tmp_path):
    titles = ["12 Monkeys", "1984", "Emma"]
    dataset = dataset_from_lists(tmp_path / "ds", [[0, 1, 2]], item_ids=["7", "8", "9"], titles=titles)
    vocabulary = dataset.vocabulary("items")
    assert [vocabulary.find(text) for text in ("7", "1984", "12 m", "em")] == [[0], [1], [0], [2]]
    with mistake(DataError):
        vocabulary.find("12")


def test_a_search_gives_ids_whole_titles_parts_and_beginnings_of_ids_in_this_order(vocabulary):
    assert vocabulary.search("emma", 9) == [2, 0]
    assert vocabulary.search("Emma", 9) == [5, 2, 0]
    assert vocabulary.search("Emma", 2) == [5, 2]
    assert vocabulary.search("b", 9) == [4, 3, 2, 1, 0]
    assert vocabulary.search("", 9) == vocabulary.search("none", 9) == []


@pytest.mark.parametrize("text", ["The Towr", "", "\udcff"])
def test_an_unknown_text_is_refused(text, vocabulary):
    with mistake(DataError):
        vocabulary.find(text)


def written(path, ids, counts=(1, 2, 3), titles=None):
    """A file of Arrow that only looks like a vocabulary."""
    titles = pa.nulls(len(ids), pa.string()) if titles is None else titles
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_batch(
            pa.RecordBatch.from_arrays([ids, titles, pa.array(counts)], schema=VOCABULARY_SCHEMA)
        )
    return path


def test_no_changed_bytes_of_a_vocabulary_without_a_digest_end_a_process(tmp_path):
    path = written(
        tmp_path / "items.arrow", pa.array(["one", "two", "thrée"]), titles=pa.array(["A", None, "Č"])
    )

    def read():
        names = Vocabulary.open(path)
        return (
            names.ids(range(len(names))),
            names.titles(range(len(names))),
            names.counts.tolist(),
            names.places_of(["two"]).tolist(),
        )

    for place, found in flips(path, 5, 300, read):
        assert isinstance(found, DataError | tuple), f"{place}: {found}"


def test_a_changed_byte_is_found_by_the_recorded_digest_before_arrow_reads(tmp_path):
    path = written(tmp_path / "items.arrow", pa.array(["one", "two", "three"]))
    recorded = sha256_of(path)
    for place, found in flips(path, 6, 200, lambda: Vocabulary.open(path, recorded)):
        assert isinstance(found, DataError), f"{place}: {found}"


@pytest.mark.parametrize("indices", [[0, 6], [-1], np.array([9])])
def test_a_feature_that_does_not_exist_is_refused(vocabulary, indices):
    for names in (vocabulary.ids, vocabulary.titles):
        with mistake(OptionError, vocabulary.path, "indices"):
            names(indices)
