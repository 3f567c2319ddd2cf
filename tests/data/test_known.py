"""Known features: an ingest keeps them where they are, leaves unknown ones out, or appends them."""

import shutil

import pytest

from tests.data.test_ingest import rows_of
from tests.mistakes import mistake
from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.errors import DataError, OptionError

BEFORE = "user,item\na,z\nb,z\na,y\nc,x\n"
AFTER = "user,item\nd,z\nd,new\ne,rare\nd,w\nf,w\nf,z\n"


def named(dataset, field="items"):
    names = dataset.vocabulary(field)
    return list(
        zip(names.ids(range(len(names))), names.titles(range(len(names))), names.counts.tolist(), strict=True)
    )


@pytest.fixture(params=["text", "numbers"])
def ids(request):
    """Items by name, or by a small whole number, which is read another way."""
    numbers = {"x": "1", "y": "2", "z": "3", "w": "4", "new": "5", "rare": "6"}
    return numbers if request.param == "numbers" else {name: name for name in numbers}


@pytest.fixture
def after(tmp_path, source, ids):
    def written(name, text):
        header, *lines = text.splitlines()
        pairs = (line.split(",") for line in lines)
        return source(name, f"{header}\n" + "".join(f"{user},{ids[item]}\n" for user, item in pairs))

    ingest(
        written("before.csv", BEFORE),
        tmp_path / "before",
        titles=source("titles.csv", f"id,title\n{ids['z']},The Z\n{ids['y']},\n{ids['x']},\n"),
    )
    return written("after.csv", AFTER)


def test_known_features_stay_at_their_indices_and_unknown_ones_are_left_out_and_counted(after, ids, tmp_path):
    manifest = ingest(after, tmp_path / "after", vocabulary=tmp_path / "before").manifest
    dataset = Dataset.open(tmp_path / "after")
    assert named(dataset) == [(ids["z"], "The Z", 2), (ids["x"], ids["x"], 0), (ids["y"], ids["y"], 0)]
    assert rows_of(dataset) == {"d": {ids["z"]: 1}, "f": {ids["z"]: 1}}
    counted = {name: count for name, count in manifest.source.items() if "vocabulary" in name}
    assert counted == {"items_not_in_vocabulary": 3, "train_interactions_not_in_vocabulary": 4}


def test_new_features_are_appended_by_falling_count(after, ids, tmp_path, source):
    titles = source(
        "more.csv",
        "id,title\n"
        + "".join(f"{ids[name]},{'The W' * (name == 'w')}\n" for name in ("z", "new", "rare", "w")),
    )
    manifest = ingest(
        after, tmp_path / "after", vocabulary=tmp_path / "before", grow=True, titles=titles
    ).manifest
    dataset = Dataset.open(tmp_path / "after")
    ordered = [("z", 2), ("x", 0), ("y", 0), ("w", 2), ("new", 1), ("rare", 1)]
    shown = {ids["z"]: "The Z", ids["w"]: "The W"}
    assert named(dataset) == [(ids[name], shown.get(ids[name], ids[name]), count) for name, count in ordered]
    assert rows_of(dataset)["d"] == {ids["z"]: 1, ids["new"]: 1, ids["w"]: 1}
    assert manifest.source["items_new"] == 3
    verify(tmp_path / "after", manifest)


def test_a_run_keeps_its_vocabulary_in_a_folder(after, tmp_path):
    (tmp_path / "run" / "vocabulary").mkdir(parents=True)
    shutil.copy(
        tmp_path / "before" / "items.vocabulary.arrow", tmp_path / "run" / "vocabulary" / "items.arrow"
    )
    ingest(after, tmp_path / "one", vocabulary=tmp_path / "run", name="data")
    ingest(after, tmp_path / "two", vocabulary=tmp_path / "before", name="data")
    one, two = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in ("one", "two")
    )
    assert one == two


def test_minimums_count_known_items_alone(after, ids, tmp_path):
    ingest(after, tmp_path / "after", vocabulary=tmp_path / "before", min_item_users=2)
    assert rows_of(Dataset.open(tmp_path / "after")) == {"d": {ids["z"]: 1}, "f": {ids["z"]: 1}}
    ingest(after, tmp_path / "grown", vocabulary=tmp_path / "before", grow=True, min_item_users=2)
    assert [name for name, *_ in named(Dataset.open(tmp_path / "grown"))] == [ids[name] for name in "zxyw"]


@pytest.mark.parametrize(
    ("grow", "countries"), [(False, [("be", 0), ("at", 1)]), (True, [("be", 0), ("at", 1), ("ch", 2)])]
)
def test_further_fields_keep_their_features_too(tmp_path, source, grow, countries):
    before = source("before.csv", "user,item,country\na,x,be\nb,x,be\nb,x,at\n")
    after = source("after.csv", "user,item,country\nc,x,ch\nd,x,ch\nd,x,at\n")
    options = {"sparse": {"country": "country"}, "users_id": "user"}
    ingest(before, tmp_path / "before", users=before, **options)
    manifest = ingest(
        after, tmp_path / "after", users=after, vocabulary=tmp_path / "before", grow=grow, **options
    ).manifest
    dataset = Dataset.open(tmp_path / "after")
    assert named(dataset, "country") == [(name, name, count) for name, count in countries]
    assert manifest.source.get("country_not_in_vocabulary") == (None if grow else 1)
    assert dataset.sparse("country", slice(None)).indices.tolist() == ([2, 1, 2] if grow else [1])


def test_what_cannot_be_kept_is_refused(after, tmp_path, source):
    with mistake(DataError):
        ingest(after, tmp_path / "after", vocabulary=tmp_path / "before", field="books")
    with mistake(DataError, option="vocabulary"):
        ingest(after, tmp_path / "after", vocabulary=tmp_path / "nowhere")
    with mistake(OptionError, option="grow"):
        ingest(after, tmp_path / "after", grow=True)
    with mistake(DataError, option="vocabulary"):
        ingest(
            source("others.csv", "user,item\na,other\n"), tmp_path / "after", vocabulary=tmp_path / "before"
        )
    assert not (tmp_path / "after").exists()
