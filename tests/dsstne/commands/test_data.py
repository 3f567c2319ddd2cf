"""NetCDF files go in by `data ingest` and `dsstne import-data`, and out by `dsstne export-data`."""

import json

import pytest

from widenet.cli import main
from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.dsstne.export import export_data


@pytest.fixture
def written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export_data(dataset_from_lists("whole", [[1, 0], [2]], width=3, sparse={"next": [[0], [1]]}), "x.nc")
    (tmp_path / "names").write_text("a\t0\nb\t1\nc\t2\n")
    (tmp_path / "two").write_text("p\t0\nq\t1\n")
    return tmp_path


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


def test_ingest_knows_netcdf_by_suffix_and_by_content(written, capsys):
    assert command("data", "ingest", "x.n?", "--out", "pattern", "--json") == 0
    assert json.loads(capsys.readouterr().out)["path"] == "pattern"
    assert command("data", "ingest", "x.nc", "--out", "a") == 0
    (written / "x.nc").rename("x")
    assert command("data", "ingest", "x", "--out", "b", "--name", "b") == 0
    assert "reading x as netcdf" in capsys.readouterr().err
    assert Dataset.open("a").digest == Dataset.open("b").digest == Dataset.open("whole").digest
    assert command("data", "ingest", "x", "--out", "c", "--min-value", "3") == 2
    assert (
        "--min-value is for files of interactions; a NetCDF file describes its own content."
        in capsys.readouterr().err
    )


@pytest.mark.usefixtures("written")
def test_index_files_are_given_for_all_sets_or_by_name(capsys):
    assert (
        command(
            "dsstne",
            "import-data",
            "x.nc",
            "--out",
            "a",
            "--features",
            "items=names",
            "--features",
            "next=two",
            "--samples",
            "two",
        )
        == 0
    )
    dataset = Dataset.open("a")
    assert (
        dataset.vocabulary("items").ids([2]),
        dataset.vocabulary("next").ids([1]),
        dataset.ids(slice(0, 2)),
    ) == (
        ["c"],
        ["q"],
        ["p", "q"],
    )
    assert (
        command("dsstne", "import-data", "x.nc", "--out", "b", "--features", "names", "--features", "two")
        == 2
    )
    assert (
        "--features must be one file for all data sets, or SET=FILE for each; got names, two."
        in capsys.readouterr().err
    )
    assert command("dsstne", "import-data", "x.nc", "--out", "b", "--features", "names") == 2
    assert "must name at most the 2 features" in capsys.readouterr().err


@pytest.mark.usefixtures("written")
def test_a_dataset_goes_out_again(capsys):
    assert command("dsstne", "export-data", "whole", "y.nc", "--targets", "next") == 0
    assert capsys.readouterr().out == "y.nc: written.\n"
    assert command("dsstne", "import-data", "y.nc", "--out", "again", "--targets", "next") == 0
    assert Dataset.open("again").digest == Dataset.open("whole").digest
