"""DSSTNE's data and trained networks go in and out by the command line."""

import pytest

from tests.dsstne.models import connected, fully, write_model
from widenet.cli import main
from widenet.data.dataset import Dataset


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


def test_text_becomes_netcdf_and_that_a_dataset(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("u1\ta,2:b,3\nu2\tb,1\n")
    flags = ["-d", "input", "-i", "in.txt", "-o", "in.nc", "-f", "features", "-s", "samples"]
    assert command("dsstne", "generateNetCDF", *flags, "-c", "-t", "analog") == 0
    assert capsys.readouterr().err.startswith("in.nc: data set 'input': 2 examples, 2 features")
    assert command("dsstne", "generateNetCDF", *flags, "-c", "-m") == 2
    assert command("dsstne", "generateNetCDF", "-h") == 0
    assert command("dsstne", "import-data", "in.nc", "--out", "data", "--targets", "input") == 0
    assert Dataset.open("data").field("input").num_entries == {"train": 3}
    assert command("data", "ingest", "in.nc", "--out", "other") == 2


def test_a_network_goes_in_and_out(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    layers = [
        fully("Input", "Input", 5, data="gl_input", attributes=1),
        fully("Hidden", "Hidden", 2, ["Input"]),
        fully("Output", "Output", 5, ["Hidden"], data="gl_output"),
    ]
    write_model("x.nc", layers, connected(1, layers))
    (tmp_path / "names").write_text("a\t0\nb\t1\nc\t2\n")
    renamed = ["--field", "gl_input=items", "--field", "gl_output=items"]
    assert command("import", "x.nc", "--out", "run", "--features", "names", *renamed) == 0
    assert "Input 5, Hidden 2, Output 5" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["recommend", "run", "--items", "a", "-k", "5"])
    assert {
        line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
        if line.split()[:1] in (["1"], ["2"])
    } == {"b", "c"}
    assert command("dsstne", "export-model", "run", "y.nc") == 0
    assert capsys.readouterr().out == "y.nc: written.\n"
    assert command("import", "y.nc", "--out", "again", "--field", "items") == 2
