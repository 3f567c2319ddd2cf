"""`widenet dsstne knn-search` takes DSSTNE's flags and writes its lines, byte for byte."""

import pytest

from widenet.cli import main


@pytest.fixture
def search(tmp_path, monkeypatch, capsys):
    """Runs the command among three files; gives its status, and what it wrote."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.txt").write_text("a\t1 0\nb\t0.5 0.25\n")
    (tmp_path / "two.txt").write_text("c\t0 3\nd\t-1 0\n")
    (tmp_path / "in.txt").write_text("q\t1 0\nr\t0.0001 1\n")

    def run(*words):
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(["dsstne", "knn-search", *words])
        return ended.value.code or 0, *capsys.readouterr()

    return run


def test_several_files_follow_one_option(search):
    found = "q\ta:1.000 b:0.500 c:0.000 d:-1.000\nr\tc:3.000 b:0.250 a:0.000 d:-0.000\n"
    for words in (
        "--data-files one.txt two.txt --input-files in.txt",
        "--input-files in.txt --data-files one.txt --data-files two.txt --k 100",
    ):
        assert search(*words.split()) == (0, found, "")


def test_every_flag_does_what_it_says(search, tmp_path):
    files = [
        "--data-files",
        "one.txt",
        "two.txt",
        "--input-files",
        "in.txt",
        "--k",
        "2",
        "--data-type",
        "fp16",
    ]
    found = search(*files, "--score-precision", "1", "--id-score-sep", "=")
    assert found == (0, "q\ta=1.0 b=0.5\nr\tc=3.0 b=0.3\n", "")
    assert search(*files, "--output-keys-only", "--output-file", "deep/out") == (0, "", "")
    assert (tmp_path / "deep" / "out").read_bytes() == b"q\ta b\nr\tc b\n"
    status, out, err = search(*files, "--output-keys-only", "--batch-size", "1", "--report-interval", "2")
    assert (status, out) == (0, "q\ta b\nr\tc b\n")
    assert err.startswith("2 batches; ")
    (tmp_path / "other.txt").write_text("q|1,0\n")
    words = [
        "--data-files",
        "other.txt",
        "--input-files",
        "other.txt",
        "--key-val-delim",
        "|",
        "--vec-delim",
        ",",
    ]
    assert search(*words) == (0, "q|q:1.000\n", "")
