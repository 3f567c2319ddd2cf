"""`widenet dsstne generateNetCDF` takes DSSTNE's flags."""

import pytest

from widenet.cli import main


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(["dsstne", "generateNetCDF", *arguments])
    return ended.value.code or 0


def test_text_becomes_netcdf_that_ingest_reads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("u1\ta,2:b,3\nu2\tb,1\n")
    flags = ["-d", "input", "-i", "in.txt", "-o", "in.nc", "-f", "features", "-s", "samples"]
    assert command(*flags, "-c", "-t", "analog") == 0
    assert (
        "in.nc: data set 'input': 2 examples, 2 features in a width of 128, 3 entries."
        in capsys.readouterr().err
    )
    assert command(*flags, "-c", "-m") == 2
    assert "-c and -m cannot go together" in capsys.readouterr().err
    assert command("-h") == 0
