"""Published data by name: downloads are whole and checked, and each entry becomes its dataset."""

import hashlib
import io
import zipfile

import pytest

from tests.data.web import served
from tests.mistakes import mistake
from widenet.data import published as fetch
from widenet.data.dataset import Dataset
from widenet.data.published import download
from widenet.errors import DataError

BODY = bytes(range(256)) * 40
CHECKSUM = f"sha256:{hashlib.sha256(BODY).hexdigest()}"


@pytest.fixture
def web(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDENET_CACHE", str(tmp_path / "cache"))
    with served() as found:
        found.files = {"/data.bin": BODY}
        yield found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    "checksum", [None, CHECKSUM, f"md5:{hashlib.md5(BODY, usedforsecurity=False).hexdigest()}"]
)
def test_a_file_is_whole_told_of_and_read_once(web, tmp_path, checksum):
    told = []
    for _ in range(2):
        path = download(
            f"{web.address}/data.bin", tmp_path / "cache", checksum, lambda *done: told.append(done)
        )
    assert path.read_bytes() == BODY
    assert (told[-1], web.asked) == ((10240, 10240), ["/data.bin"])
    assert names(tmp_path / "cache") == ["data.bin"]


def test_a_kept_file_is_compared_with_its_checksum(web, tmp_path):
    path = download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    path.write_bytes(BODY[:-1])
    with mistake(DataError):
        download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    assert path.exists()


def test_what_broke_off_begins_anew(web, tmp_path):
    web.breaks_after = 3000
    with mistake(DataError, place="data.bin"):
        download(f"{web.address}/data.bin", tmp_path)
    assert names(tmp_path) == []
    web.breaks_after = None
    assert download(f"{web.address}/data.bin", tmp_path, CHECKSUM).read_bytes() == BODY


def test_a_wrong_file_is_removed(web, tmp_path):
    web.files["/data.bin"] = b"<html>Log in"
    with mistake(DataError):
        download(f"{web.address}/data.bin", tmp_path, CHECKSUM)
    assert not (tmp_path / "data.bin").exists()
    web.files["/data.bin"] = BODY
    assert download(f"{web.address}/data.bin", tmp_path, CHECKSUM).read_bytes() == BODY


@pytest.mark.parametrize("status", [404, 500])
def test_a_refusal_is_one_sentence_with_the_place_where_the_file_may_be_put(status, web, tmp_path):
    web.status = status
    with mistake(DataError, place="data.bin"):
        download(f"{web.address}/data.bin", tmp_path)


FILES = {
    "u.data": "1\t10\t5\t100\n1\t11\t3\t101\n2\t10\t4\t102\n",
    "u.item": "10|Toy Story (1995)|x\n11|Amélie|y\n",
    "ratings.dat": "1::10::5::100\n1::11::3::101\n2::10::4::102\n",
    "movies.dat": "10::Toy Story (1995)::x\n11::Amélie::y\n",
    "train.txt": "1 10\n2 10\n",
    "test.txt": "1 11\n",
}
TITLED = {
    "userId,movieId": "movieId,title\n10,Toy Story (1995)\n11,Amélie\n",
    "user_id,book_id": "isbn,book_id,title\n3,10,Toy Story (1995)\n",
}


def files_of(data):
    """The small files that stand for those of published data, by name."""
    if "user" in data.ingest:
        header = f"{data.ingest['user']},{data.ingest['item']}"
        rows = f"{header},rating,timestamp\n1,10,5,100\n1,11,3,101\n2,10,4,102\n"
        return {data.interactions: rows.encode(), data.titles["file"]: TITLED[header].encode()}
    wanted = [data.interactions, data.heldout, data.titles.get("file")]
    return {name: FILES[name].encode(data.titles.get("encoding", "utf-8")) for name in wanted if name}


def archive(files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as found:
        for name, content in files.items():
            found.writestr(f"folder/{name}", content)
    return packed.getvalue()


def local(name, web):
    """Published data whose files this machine serves, small ones, without checksums."""
    data, files = fetch.Published.find(name), []
    contents = files_of(data)
    for facts in data.files:
        path = facts["url"].rsplit("/", 1)[-1]
        web.files[f"/{path}"] = archive(contents) if path.endswith(".zip") else contents[path]
        files.append({"url": f"{web.address}/{path}"})
    return fetch.Published(**{**vars(data), "files": files})


@pytest.mark.parametrize("name", fetch.published())
def test_each_becomes_a_dataset_with_its_titles_and_parts(name, web, tmp_path):
    data, said = local(name, web), []
    dataset = fetch.fetch(data, tmp_path / "out", say=said.append)
    assert dataset.digest == Dataset.open(tmp_path / "out").digest
    names = dataset.vocabulary("items")
    assert dataset.ids(slice(None)) == ["1", "2"]
    assert names.ids([0]) == ["10"]
    assert dataset.sparse("items", slice(None)).indices.tolist() == [0, 0]
    assert dataset.manifest.name == name
    assert names.titles([0]) == (["Toy Story (1995)"] if data.titles else ["10"])
    assert dataset.fields["items"].parts == (("train", "heldout") if data.heldout else ("train",))
    assert sum("could not be checked" in line for line in said) == len(data.files)
    assert not any(path.is_dir() for path in (tmp_path / "cache" / name).iterdir())


def test_an_earlier_dataset_is_replaced_where_one_says_so_and_nothing_else(web, tmp_path):
    data, out = local("movielens-1m", web), tmp_path / "out"
    before = fetch.fetch(data, out, say=lambda _: None).digest
    with mistake(DataError, option="overwrite"):
        fetch.fetch(data, out, say=lambda _: None)
    assert fetch.fetch(data.with_min_value(3), out, overwrite=True, say=lambda _: None).digest != before
    (out / "notes.txt").write_text("mine")
    web.status = 500
    with mistake(DataError, place=out):
        fetch.fetch(data, out, overwrite=True, say=lambda _: None)
    assert (out / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize(
    ("content", "place"),
    [
        (b"<html>", "ml-1m.zip"),
        (archive({"other": b""}), "ml-1m.zip"),
        (archive({"ratings.dat": b"1::10::5::1\n", "movies.dat": b"one\n"}), "movies.dat"),
    ],
)
def test_an_archive_that_is_none_or_another_is_refused(content, place, web, tmp_path):
    data = local("movielens-1m", web)
    web.files["/ml-1m.zip"] = content
    with mistake(DataError, place=place):
        fetch.fetch(data, tmp_path / "out", say=lambda _: None)
    assert not (tmp_path / "out").exists()
