"""The types of items' attributes: what is text, though it looks like something else."""

import pytest

from widenet.data.ingest import ingest

NOTATIONS = {
    "84,32 12 ''": ("84,32", "Write 84.32, or use `items_decimal=','` for CSV with decimal commas."),
    "84,32 1.234,5 7": ("1.234,5", "Write 1234.5, without points between thousands."),
    "02.07.2011 31.12.2011 ''": ("02.07.2011", "If these are dates, write them as in 2024-05-31."),
    "7/31/24 12/1/24 ''": ("12/1/24", "If these are dates, write them as in 2024-05-31."),
    **dict.fromkeys(["84 12 7", "84,32 12 free", "1.2.3 1.10.2 2.0", "'' '' ''"]),
}


@pytest.mark.parametrize("cells", NOTATIONS)
def test_numbers_and_dates_in_another_notation_are_texts_and_said_to_be(cells, tmp_path):
    rows = zip("012", cells.replace("''", "").split(" "), strict=True)
    (tmp_path / "items.csv").write_text("item;price\n" + "".join(f"{item};{cell}\n" for item, cell in rows))
    said = []
    likes = [("u", item) for item in "012"]
    ingest(likes, tmp_path / "ds", items=tmp_path / "items.csv", on_progress=said.append)
    text, remedy = NOTATIONS[cells] or ("", "")
    noted = [f'note: column "price" is kept as text, such as "{text}". {remedy}'] * bool(text)
    assert [line for line in said if "as text" in line] == noted
