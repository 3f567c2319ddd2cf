"""Trained networks go in by `import`, and out by `dsstne export-model`."""

import pytest

from tests.dsstne.models import connected, fully, write_model
from widenet.cli import main


def command(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


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
        main(["recommend", "run", "a", "-k", "5"])
    assert {
        line.split()[-1]
        for line in capsys.readouterr().out.splitlines()
        if line.split()[:1] in (["1"], ["2"])
    } == {"b", "c"}
    assert command("dsstne", "export-model", "run", "y.nc") == 0
    assert capsys.readouterr().out == "y.nc: written.\n"
    assert command("import", "y.nc", "--out", "again", "--field", "items") == 2
    assert "--field must be NAME=FIELD" in capsys.readouterr().err
