"""The page of a dataset: which users a search shows first."""

import datetime
from types import SimpleNamespace

from tests.pages import Page
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.ui.data_page import data_page, datasets_page


def test_the_user_with_exactly_this_id_comes_first_however_many_begin_with_it(tmp_path):
    ids = [str(number) for number in range(10_000, 10_400)] + ["1", "12"]
    data = dataset_from_lists(tmp_path / "data", [[0]] * len(ids), ids=ids)
    page = Page(data_page(data, None, "1", None))
    assert page.texts["a"][page.texts["a"].index("1") :][:2] == ["1", "10000"]
    assert Page(data_page(data, None, "12", None)).texts["a"].count("12") == 1


def test_items_have_their_first_attributes_each_shortened(tmp_path):
    items = {
        "item": ["b1", "b2"],
        "genres": [["verse", "<b>"], None],
        "in_stock": [True, False],
        "since": [datetime.date(2026, 1, 2), None],
        "price": [0.5, 12],
        "blurb": ["x" * 41, "y" * 40],
        "sixth": [777, 778],
    }
    data = ingest([("u1", "b1"), ("u2", "b2"), ("u2", "b1")], tmp_path / "data", items=items)
    written = data_page(data, None, "b", None)
    assert (
        f"in_stock: true · genres: verse, &lt;b&gt; · blurb: {'x' * 40}… · since: 2026-01-02 · price: 0.5<"
        in written
    )
    assert f"in_stock: false · blurb: {'y' * 40} · price: 12.0<" in written
    assert "77" not in written


def test_a_dataset_that_lies_in_a_run_has_the_name_of_the_run():
    runs = {
        name: SimpleNamespace(documents={"data": data})
        for name, data in (("a", "/x/runs/a/data"), ("b", "/x/runs/b/data"), ("c", "/x/books"))
    }
    page = Page(datasets_page(SimpleNamespace(runs=runs, version=0)))
    assert page.texts["a"][-3:] == ["a/data", "b/data", "books"]
