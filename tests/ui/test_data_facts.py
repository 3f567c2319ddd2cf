"""The facts of a dataset against counts of a few rows by hand."""

import widenet
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.ui.data_facts import facts_of

ROWS = [[0, 1, 2], [0], [], [0, 1], [0, 3, 2, 1]]


def test_ranks_fall_and_lengths_are_shares_of_all_examples(tmp_path):
    (facts,) = facts_of(dataset_from_lists(tmp_path / "data", ROWS, width=5))
    assert (facts.field, facts.part, facts.ends) == ("items", "train", None)
    assert facts.ranks == [(1, 4), (2, 3), (3, 2), (4, 1)]
    assert facts.lengths == {"0": 0.2, "1": 0.2, "2 to 3": 0.4, "4 to 7": 0.2}
    assert (facts.activity.total, facts.popularity.number) == (10, 5)


def test_a_dataset_without_entries_has_facts(tmp_path):
    (facts,) = facts_of(dataset_from_lists(tmp_path / "data", [[], []], width=5))
    assert facts.ranks == []
    assert facts.lengths == {"0": 1.0}


def ends(tmp_path, times):
    lines = "".join(f"u{place % 2},b{place},{time}\n" for place, time in enumerate(times))
    (tmp_path / "table.csv").write_text(f"user,item,time\n{lines}")
    widenet.ingest(
        tmp_path / "table.csv", tmp_path / "data", user="user", item="item", time="time", keep_times=True
    )
    return facts_of(Dataset.open(tmp_path / "data"))[0].ends


def test_the_oldest_and_the_newest_entry_have_a_day(tmp_path):
    assert ends(tmp_path, [1_700_000_000, 86_400 * 11_000, 1_600_000_000]) == ("2000-02-13", "2023-11-14")


def test_times_that_are_no_seconds_stay_numbers(tmp_path):
    assert ends(tmp_path, [3, 1, 2]) == ("1", "3")
