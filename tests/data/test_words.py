"""Words for the rows and features of a dataset: interactions, points with labels, and others."""

import pytest

from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.data.split import split
from widenet.data.words import Words, words_of


def called(words, *fields):
    return [words.examples, *(f"{words.feature(field)}s" for field in fields)]


@pytest.mark.parametrize(
    ("fields", "source", "said"),
    [
        (["items"], {}, ["users", "items"]),
        (["books", "country"], {"min_value": None}, ["users", "items", "features"]),
        (["age", "items"], {}, ["users", "features", "items"]),
        (["tags", "words"], {"field_of_labels": "tags"}, ["points", "labels", "features"]),
        (["input", "output"], {"sources": ["a.nc"]}, ["examples", "features", "features"]),
    ],
)
def test_the_words_follow_from_fields_and_origin(fields, source, said):
    assert called(words_of(fields, source), *fields) == said


def test_several_fields_share_a_word_or_have_features():
    words = Words("user", {"items": "item", "books": "item"})
    assert (words.feature("items", "books"), words.feature("items", "country")) == ("item", "feature")


def test_made_datasets_have_their_words_and_a_split_keeps_them(tmp_path):
    (tmp_path / "log.csv").write_text("user,item\na,x\na,y\nb,x\nb,y\n")
    made = ingest(tmp_path / "log.csv", tmp_path / "made", field="books")
    parted = split(made, out=tmp_path / "parted", heldout=0.5, field="books")
    other = dataset_from_lists(tmp_path / "other", [[0], [1]], field="input")
    found = [called(each.manifest.words, *each.fields) for each in (made, parted, other)]
    assert found == [["users", "items"], ["users", "items"], ["examples", "features"]]
