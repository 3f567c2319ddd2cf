"""The page of a dataset: its counts against a few rows by hand, and what a search shows first."""

import datetime

from tests.pages import Page
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.lists import dataset_from_lists
from widenet.ui.data_page import data_page, facts_of


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


ROWS = [[0, 1, 2], [0], [], [0, 1], [0, 3, 2, 1]]


def test_lengths_are_shares_of_all_examples(tmp_path):
    (facts,) = facts_of(dataset_from_lists(tmp_path / "data", ROWS, width=5))
    assert (facts.field, facts.part, facts.ends) == ("items", "train", None)
    assert facts.lengths == {"0": 0.2, "1": 0.2, "2 to 3": 0.4, "4 to 7": 0.2}
    assert (facts.activity.total, facts.popularity.number) == (10, 5)


def ends(tmp_path, times):
    lines = "".join(f"u{place % 2},b{place},{time}\n" for place, time in enumerate(times))
    (tmp_path / "table.csv").write_text(f"user,item,time\n{lines}")
    ingest(tmp_path / "table.csv", tmp_path / "data", user="user", item="item", time="time", keep_times=True)
    return facts_of(Dataset.open(tmp_path / "data"))[0].ends


def test_the_oldest_and_the_newest_entry_have_a_day(tmp_path):
    assert ends(tmp_path, [1_700_000_000, 86_400 * 11_000, 1_600_000_000]) == ("2000-02-13", "2023-11-14")


def test_times_that_are_no_seconds_stay_numbers(tmp_path):
    assert ends(tmp_path, [3, 1, 2]) == ("1", "3")
