"""The vocabulary: names both ways, and a search that says what is near."""

import shutil
import unicodedata

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
    assert vocabulary.find("ÜNDER") == [5]
    assert vocabulary.find(unicodedata.normalize("NFD", "ünder")) == [5]
    assert vocabulary.find("B4") == [3]


def test_many_texts_find_what_each_finds_and_ids_take_no_search(vocabulary, monkeypatch):
    texts = [*vocabulary.ids(range(len(vocabulary))), *vocabulary.titles(range(len(vocabulary)))] * 2
    expected = [vocabulary.find(text) for text in texts]
    assert vocabulary.find_each(texts) == expected
    assert vocabulary.find_each([]) == []
    monkeypatch.delattr(Vocabulary, "find")
    ids = vocabulary.ids(range(len(vocabulary)))
    assert vocabulary.find_each(ids * 50_000) == [[index] for index in range(len(ids))] * 50_000


def test_ids_are_found_in_another_form_of_accents_after_all_titles(tmp_path):
    path = tmp_path / "items.vocabulary.arrow"
    names = pa.array(["Björk", "Sigur Rós", "Mum"])
    table = pa.table(
        [names, pa.array([None, "mum", None], pa.string()), pa.array([3, 2, 1])], VOCABULARY_SCHEMA
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_table(table)
    vocabulary = Vocabulary.open(path)
    assert vocabulary.find(unicodedata.normalize("NFD", "björk")) == [0]
    assert vocabulary.find("MUM") == [1]
    with mistake(DataError):
        vocabulary.find("Bjork")


def test_whole_words_come_before_parts_of_words(tmp_path):
    path = tmp_path / "items.vocabulary.arrow"
    titles = ["Part 10, the end", "Page 79", "Part 1, the beginning", unicodedata.normalize("NFD", "Café 79")]
    table = pa.table(
        [pa.array(["a", "b", "c", "d"]), pa.array(titles), pa.array([9, 8, 1, 2])], VOCABULARY_SCHEMA
    )
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_table(table)
    vocabulary = Vocabulary.open(path)
    assert vocabulary.find("part 1") == [2]
    assert vocabulary.find("79") == [1, 3]
    assert vocabulary.find("7") == [1, 3]
    assert vocabulary.find("beg") == [2]
    with mistake(DataError):
        vocabulary.find("ginning")
    assert vocabulary.find("café") == [3]
    assert vocabulary.find("CAFÉ 79") == [3]


def test_a_number_is_no_part_of_a_title_where_ids_are_numbers(tmp_path):
    path = tmp_path / "items.vocabulary.arrow"
    titles = ["12 Monkeys", "1984", "Emma"]
    table = pa.table([pa.array(["7", "8", "9"]), pa.array(titles), pa.array([1, 2, 3])], VOCABULARY_SCHEMA)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_table(table)
    vocabulary = Vocabulary.open(path)
    assert [vocabulary.find(text) for text in ("7", "1984", "12 m", "em")] == [[0], [1], [0], [2]]
    with mistake(DataError):
        vocabulary.find("12")


def test_one_id_that_is_a_number_does_not_make_ids_numbers(tmp_path):
    path = tmp_path / "items.vocabulary.arrow"
    columns = [pa.array(["1984", "emma"]), pa.array(["Orwell", "Emma 2"]), pa.array([1, 2])]
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_table(pa.table(columns, VOCABULARY_SCHEMA))
    assert Vocabulary.open(path).find("2") == [1]


def test_a_search_gives_ids_whole_titles_whole_words_and_beginnings_in_this_order(vocabulary):
    assert vocabulary.search("emma", 9) == [2, 0]
    assert vocabulary.search("Emma", 9) == [5, 2, 0]
    assert vocabulary.search("Emma", 2) == [5, 2]
    assert vocabulary.search("the tower", 9) == [1, 5]
    assert vocabulary.search("tow", 9) == [4, 5, 1]
    assert vocabulary.search(unicodedata.normalize("NFD", "ünd"), 9) == [5]
    assert vocabulary.search("b", 9) == [4, 3, 2, 1, 0]
    assert vocabulary.search("", 9) == vocabulary.search("none", 9) == []


def test_an_unknown_text_gives_the_nearest_titles(vocabulary):
    with mistake(DataError):
        vocabulary.find("The Towr")
    with mistake(DataError):
        vocabulary.find("")


def test_of_titles_that_go_on_behind_a_text_the_most_alike_is_the_nearest(tmp_path):
    titles = [f"Book {number}: the end" for number in range(1, 1_001)]
    vocabulary = dataset_from_lists(tmp_path / "data", [[0]], titles=titles, width=1_000).vocabulary("items")
    with mistake(DataError):
        vocabulary.find("Boko 17")


def test_an_id_with_two_letters_exchanged_is_the_nearest_of_many(tmp_path):
    ids = [*(f"prel{number}" for number in range(5_001)), "perl"]
    vocabulary = dataset_from_lists(tmp_path / "data", [[0]], item_ids=ids).vocabulary("items")
    with mistake(DataError):
        vocabulary.find("Prel")


@pytest.mark.parametrize("text", ["libc7", "libc66", "lib6", "libcc6", "Libc-6", "licb6"])
def test_an_id_with_one_wrong_letter_comes_before_titles(text, tmp_path):
    ids, titles = ["module", "library", "libc6"], ["libc for all", "libcs", "GNU"]
    data = dataset_from_lists(tmp_path / "data", [[0, 1, 2]], titles=titles, item_ids=ids)
    with mistake(DataError):
        data.vocabulary("items").find(text)


def test_an_id_that_is_similar_is_suggested_with_its_title(tmp_path):
    ids, titles = ["library", "python3-yaml", "zsh"], ["C for all", "Parser", "Shell"]
    data = dataset_from_lists(tmp_path / "data", [[0, 1, 2]], titles=titles, item_ids=ids)
    with mistake(DataError):
        data.vocabulary("items").find("Pyton-yml")


def test_a_number_that_nothing_has_does_not_suggest_its_neighbours(tmp_path):
    data = dataset_from_lists(tmp_path / "data", [[0, 1]], titles=["Emma", "Lolita"], item_ids=["41", "43"])
    with mistake(DataError):
        data.vocabulary("items").find("42")


def test_a_part_of_more_titles_than_a_message_lists_is_refused_but_no_whole_title(tmp_path):
    titles = ["Emma", *["emma"] * 5, *[f"The T\u00f6wer {number}" for number in range(6)], "Tower of Glass"]
    data = dataset_from_lists(tmp_path / "data", [[*range(13)], [12]], titles=titles)
    vocabulary = data.vocabulary("items")
    assert vocabulary.find("EMMA") == [0, 1, 2, 3, 4, 5]
    assert vocabulary.find("tower") == [12]
    for text in ("The", "t\u00f6w"):
        with mistake(DataError, place="items"):
            vocabulary.find(text)


def test_a_word_may_begin_after_or_with_a_letter_without_case_or_a_sign(tmp_path):
    titles = ["\u9752\u3044\u30ac\u30e9\u30b9", "\u30ac\u30f3SEED", "\u7b2c2\u5dfb", "ASP.NET", "2x4"]
    vocabulary = dataset_from_lists(tmp_path / "data", [[*range(5)]], titles=titles).vocabulary("items")
    parts = ["\u30ac\u30e9\u30b9", "seed", "2\u5dfb", ".net"]
    assert [vocabulary.find(part) for part in parts] == [[0], [1], [2], [3]]
    for part in ("eed", "sp", "x4"):
        with mistake(DataError):
            vocabulary.find(part)


def test_an_unknown_id_is_named(vocabulary):
    with mistake(DataError):
        vocabulary.index_of(["b1", "b9"])


def test_a_text_that_is_no_unicode_is_unknown_in_one_sentence(vocabulary):
    """As an argument of a command line whose bytes are not UTF-8."""
    with mistake(DataError):
        vocabulary.find(b"Emma\xff".decode(errors="surrogateescape"))
    assert vocabulary.places_of(["\udcff", "b2"]).tolist() == [-1, 1]


def test_a_vocabulary_works_from_a_copied_file(tmp_path):
    dataset = dataset_from_lists(tmp_path / "ds", [[0, 1]], item_ids=["x", "y"])
    shutil.copy(dataset.vocabulary("items").path, tmp_path / "copy.arrow")
    assert Vocabulary.open(tmp_path / "copy.arrow").ids([1]) == ["y"]


def test_a_file_that_is_no_vocabulary_is_refused(tmp_path):
    dataset_from_lists(tmp_path / "ds", [[0, 1]])
    (tmp_path / "text").write_text("no arrow")
    for path in ("none", "text", "ds/examples-00000.arrow"):
        with mistake(DataError, place=path):
            Vocabulary.open(tmp_path / path)


def written(path, ids, counts=(1, 2, 3), titles=None):
    """A file of Arrow that only looks like a vocabulary."""
    titles = pa.nulls(len(ids), pa.string()) if titles is None else titles
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, VOCABULARY_SCHEMA) as writer:
        writer.write_batch(
            pa.RecordBatch.from_arrays([ids, titles, pa.array(counts)], schema=VOCABULARY_SCHEMA)
        )
    return path


def test_a_vocabulary_without_a_recorded_digest_is_checked_whole_before_its_names_are_used(tmp_path):
    def text(offsets, data):
        return pa.StringArray.from_buffers(
            3, pa.py_buffer(np.array(offsets, dtype=np.int32)), pa.py_buffer(data)
        )

    for ids in (
        text([0, 1, 2, 4], b"ab\xff\xfe"),
        text([0, 3, 2, 4], b"abcd"),
        text([0, -5, 2, 4], b"abcd"),
        pa.array(["a", None, "b"]),
    ):
        with mistake(DataError, place="wrong"):
            Vocabulary.open(written(tmp_path / "wrong", ids))


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

    for place, found in flips(path, 5, 1000, read):
        assert isinstance(found, DataError | tuple), f"{place}: {found}"


def test_a_changed_byte_is_found_by_the_recorded_digest_before_arrow_reads(tmp_path):
    path = written(tmp_path / "items.arrow", pa.array(["one", "two", "three"]))
    recorded = sha256_of(path)
    for place, found in flips(path, 6, 200, lambda: Vocabulary.open(path, recorded)):
        assert isinstance(found, DataError), f"{place}: {found}"
        assert (
            "the vocabulary is damaged: its SHA-256 is not the recorded one. Copy it from the dataset again"
            in str(found)
        )


@pytest.mark.parametrize("indices", [[0, 6], [-1], np.array([9])])
def test_a_feature_that_does_not_exist_is_refused(vocabulary, indices):
    for names in (vocabulary.ids, vocabulary.titles):
        with mistake(OptionError, place="indices"):
            names(indices)


def test_a_title_is_found_without_its_accents_after_those_that_have_the_text(tmp_path):
    titles = ["\u00dcbermut", "Ubermut", "Der Fu\u0308nfte", "M\u00e9lanie", "\u30ac\u30e9\u30b9"]
    data = dataset_from_lists(tmp_path / "data", [[0, 1, 2, 3, 4], [0]], titles=titles)
    vocabulary = data.vocabulary("items")
    assert vocabulary.search("ubermut", 5) == [1, 0]
    assert vocabulary.search("\u00fcbermut", 5) == [0, 1]
    assert vocabulary.search("ubermut", 1) == [1]
    assert vocabulary.find("funfte") == vocabulary.find("f\u00fcnfte") == [2]
    assert vocabulary.find("melanie") == [3]
    assert vocabulary.search("\u30ab\u30e9\u30b9", 5) == []  # other letters, not accents
    for accent in ("\u0301", "\u00b4"):
        assert vocabulary.search(accent, 5) == vocabulary.matching(accent) == []


def test_without_accents_a_whole_title_comes_before_whole_words_and_these_before_parts(tmp_path):
    titles = ["\u00c9milie et les autres", "\u00c9milie", "T\u00fcbermann", "\u00dcber uns"]
    vocabulary = dataset_from_lists(tmp_path / "data", [[0, 2], [0, 2], [0, 1, 3]], titles=titles).vocabulary(
        "items"
    )
    assert vocabulary.find("emilie") == [1]
    assert vocabulary.find("uber") == [3]
    assert vocabulary.find("tuberm") == [2]


def test_a_field_without_titles_says_so(tmp_path):
    vocabulary = dataset_from_lists(tmp_path / "data", [[0, 1]], item_ids=["a1", "b2"]).vocabulary("items")
    with mistake(DataError):
        vocabulary.find("Der Zauberberg")
