"""Times beside sequences whose rows are taken in the order of their sources."""

from datetime import date

import pandas as pd
import pyarrow as pa
import pytest

from widenet.data.basket_tables import baskets_of
from widenet.data.ingest import ingest
from widenet.errors import DataError

DAYS = [date(2024, 5, 1), date(2024, 5, 2)]


@pytest.mark.parametrize(
    ("name", "times", "is_known"),
    [("date", ["05/01/24", "04/01/24"], True), ("seen", [2, 1], False), ("seen", DAYS, True)],
    ids=["by its name", "neither", "by its type"],
)
def test_a_line_names_the_column_that_looks_like_times(name, times, is_known, tmp_path):
    lines = []
    table = pa.table({"user": ["u", "u"], "item": ["a", "b"], name: times})
    ingest([table], tmp_path / "ds", sequence=True, on_progress=lines.append)
    line = f"note: rows are taken in the order of the table; `time='{name}'` orders them by that column"
    assert (line in lines) == is_known


def test_a_source_or_table_that_is_not_in_the_order_of_its_times_is_refused(tmp_path):
    rows = pd.DataFrame({"user": ["u", "v", "u"], "item": ["a", "b", "c"], "date": [*DAYS[::-1], DAYS[0]]})
    rule = 'those of user "u" are not in the order of column "date". '
    with pytest.raises(DataError, match=f"{rule}Order them with `time='date'`, or remove"):
        ingest([rows], tmp_path / "ds", sequence=True)
    with pytest.raises(DataError, match=f"{rule}Sort the table by it, or remove the column"):
        baskets_of(rows, {}, is_sequence=True)
    assert baskets_of(rows, {}).items == ["a", "b", "c"]
    assert baskets_of(rows.sort_values("date", kind="stable"), {}, is_sequence=True).items == ["b", "c", "a"]
    other = rows.rename(columns={"date": "released"})
    lines = []
    ingest([other], tmp_path / "other", sequence=True, on_progress=lines.append)
    assert [line for line in lines if "`time='released'` orders them" in line]
    assert baskets_of(other, {}, is_sequence=True).items == ["a", "b", "c"]
