"""The page of a dataset: its counts against a few rows by hand, and what a search shows first."""

from tests.pages import Page
from widenet.data.lists import dataset_from_lists
from widenet.ui.data_page import data_page, facts_of


def test_the_user_with_exactly_this_id_comes_first_however_many_begin_with_it(tmp_path):
    ids = [str(number) for number in range(10_000, 10_400)] + ["1", "12"]
    data = dataset_from_lists(tmp_path / "data", [[0]] * len(ids), ids=ids)
    page = Page(data_page(data, None, "1", None))
    assert page.texts["a"][page.texts["a"].index("1") :][:2] == ["1", "10000"]
    assert Page(data_page(data, None, "12", None)).texts["a"].count("12") == 1


ROWS = [[0, 1, 2], [0], [], [0, 1], [0, 3, 2, 1]]


def test_lengths_are_shares_of_all_examples(tmp_path):
    (facts,) = facts_of(dataset_from_lists(tmp_path / "data", ROWS, width=5))
    assert (facts.field, facts.part) == ("items", "train")
    assert facts.lengths == {"0": 0.2, "1": 0.2, "2 to 3": 0.4, "4 to 7": 0.2}
    assert (facts.activity.total, facts.popularity.number) == (10, 5)
