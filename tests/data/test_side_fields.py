"""Further fields of users: categories, numbers and weights, from a file of users or from the interactions."""

from itertools import pairwise

import pandas as pd
import pytest

from widenet.data.contents import verify
from widenet.data.dataset import Dataset
from widenet.data.ingest import ingest
from widenet.data.split import split

LOG = "user,item,shop\nb,x,north\na,x,south\na,y,north\nc,z,\na,z,south\nd,x,east\n"
USERS = "id,country,tag,age,income,counts\na,at,3,30,1.5,2\nb,de,20,40,-2,0.5\nc,de,,50,0,1\nq,fr,7,1,1,1\n"


@pytest.fixture
def log(source):
    return source("log.csv", LOG)


@pytest.fixture
def users(source):
    return source("users.csv", USERS)


def names_of(dataset, field):
    batch = dataset.sparse(field, slice(None))
    ids = dataset.vocabulary(field).ids(batch.indices.numpy())
    starts = batch.indptr.tolist()
    return [ids[start:stop] for start, stop in pairwise(starts)]


@pytest.mark.parametrize("in_memory", [False, True])
def test_users_have_categories_numbers_and_weights(tmp_path, log, users, in_memory):
    given = pd.read_csv(users, dtype={"tag": "string"}) if in_memory else users
    options = {
        "sparse": {"country": "country", "tag": "tag"},
        "dense": {"profile": ["age", "income"]},
        "weight": "counts",
        "users_id": "id",
    }
    manifest = ingest(log, tmp_path / "whole", users=given, **options).manifest
    for folder in (tmp_path / "whole", tmp_path / "parts"):
        if folder.name == "parts":
            split(tmp_path / "whole", folder, heldout=0.3)
        dataset = Dataset.open(folder)
        assert list(dataset.fields) == ["items", "country", "tag", "profile"]
        assert names_of(dataset, "country") == [["at"], ["de"], ["de"], []]
        assert names_of(dataset, "tag") == [["3"], ["20"], [], []]
        assert dataset.vocabulary("country").ids(range(2)) == ["de", "at"]
        assert dataset.vocabulary("country").counts.tolist() == [2, 1]
        assert dataset.vocabulary("tag").ids(range(2)) == ["3", "20"]
        assert dataset.dense("profile", slice(None)).tolist() == [[30, 1.5], [40, -2], [50, 0], [0, 0]]
        assert dataset.weights(slice(None)).tolist() == [2, 0.5, 1, 1]
        verify(folder, dataset.manifest)
    assert manifest.source["users_without_a_row"] == 1


def test_the_ids_of_users_are_in_the_column_that_holds_all_of_them(tmp_path, source):
    log = source("log.csv", "account,sku\na,1\nb,1\n")
    options = {"user": "account", "item": "sku", "sparse": {"land": "country"}}
    for name, header in (("users", "id,account,country"), ("others", "account,id,country")):
        users = source(f"{name}.csv", f"{header}\n1,a,at\n2,b,de\n")
        ingest(log, tmp_path / name, users=users, **options)
        assert names_of(Dataset.open(tmp_path / name), "land") == [["at"], ["de"]]
