"""DSSTNE's data and trained networks go in and out by the command line."""

from tests.dsstne.models import connected, fully, write_model
from widenet.data.dataset import Dataset


def test_text_becomes_netcdf_and_that_a_dataset(tmp_path, monkeypatch, widenet):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("u1\ta,2:b,3\nu2\tb,1\n")
    flags = ["-d", "input", "-i", "in.txt", "-o", "in.nc", "-f", "features", "-s", "samples", "-c"]
    ended = widenet("dsstne", "generateNetCDF", *flags, "-t", "analog")
    assert ended.status == 0
    assert ended.err.startswith("in.nc: data set 'input': 2 examples, 2 features")
    assert widenet("dsstne", "import-data", "in.nc", "--out", "data", "--targets", "input").status == 0
    assert Dataset.open("data").field("input").num_entries == {"train": 3}
    assert widenet("data", "ingest", "in.nc", "--out", "other").status == 2


def test_a_network_goes_in_and_out(tmp_path, monkeypatch, widenet):
    monkeypatch.chdir(tmp_path)
    layers = [
        fully("Input", "Input", 5, data="gl_input", attributes=1),
        fully("Hidden", "Hidden", 2, ["Input"]),
        fully("Output", "Output", 5, ["Hidden"], data="gl_output"),
    ]
    write_model("x.nc", layers, connected(1, layers))
    (tmp_path / "names").write_text("a\t0\nb\t1\nc\t2\n")
    renamed = ["--features", "names", "--field", "gl_input=items", "--field", "gl_output=items"]
    assert "Input 5, Hidden 2, Output 5" in widenet("import", "x.nc", "--out", "run", *renamed).out
    found = widenet("recommend", "run", "--items", "a", "-k", "5").out.splitlines()
    assert {line.split()[-1] for line in found} == {"b", "c"}
    ended = widenet("dsstne", "export-model", "run", "y.nc")
    assert (ended.status, ended.out) == (0, "y.nc: written.\n")
    assert widenet("import", "y.nc", "--out", "again", "--field", "items").status == 2
