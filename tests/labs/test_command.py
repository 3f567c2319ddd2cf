"""A lab without its data says why it is skipped."""

from benchmarks.results import Table
from labs import mnist
from labs.command import show
from labs.numbers.lab import run as numbers


def test_a_lab_whose_data_are_absent_is_skipped_with_the_reason(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mnist, "DATA", tmp_path)
    show(numbers, small=True)
    assert (
        capsys.readouterr().out
        == f"Skipped: no digits of MNIST at {tmp_path / 'mnist'}; set WIDENET_DATA.\n\n"
    )


def test_a_lab_prints_its_tables_and_its_form(capsys):
    show(lambda _: [Table("Sums", ["a", "b"], [["1", "2"]])], small=True)
    said = capsys.readouterr().out
    assert "### Sums\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n" in said
    assert "Small form, 0 seconds." in said
