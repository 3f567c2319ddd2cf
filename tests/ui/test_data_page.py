"""The page of a dataset: what a search shows first."""

from tests.pages import Page
from widenet.data.lists import dataset_from_lists
from widenet.ui.data_page import data_page


def test_the_user_with_exactly_this_id_comes_first_however_many_begin_with_it(tmp_path):
    ids = [str(number) for number in range(10_000, 10_400)] + ["1", "12"]
    data = dataset_from_lists(tmp_path / "data", [[0]] * len(ids), ids=ids)
    page = Page(data_page(data, None, "1", None))
    assert page.texts["a"][page.texts["a"].index("1") :][:2] == ["1", "10000"]
    assert Page(data_page(data, None, "12", None)).texts["a"].count("12") == 1
