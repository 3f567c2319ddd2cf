"""Paired differences in reports: those of `widenet.compare`, from what the runs keep."""

import shutil

import pytest

import widenet
from tests.pages import Page
from widenet.report.several_runs import paired_differences
from widenet.report.subject import Subject
from widenet.training.run_directory import RunDirectory


@pytest.fixture
def runs(reported, tmp_path):
    """Copies of the two runs, and their dataset."""
    for name in ("run", "other"):
        shutil.copytree(reported / name, tmp_path / name)
    return tmp_path, reported / "data"


def shown(folder):
    return Page(
        paired_differences([Subject(name, RunDirectory.open(folder / name)) for name in ("run", "other")])
    )


def keep(folder, data, name, **options):
    widenet.Model.load(folder / name).evaluate(data, "validation", ks=[5], keep=True, **options)


def test_the_section_shows_what_compare_finds(runs):
    folder, data = runs
    for name in ("run", "other"):
        keep(folder, data, name)
    found = widenet.compare(folder / "run", folder / "other", data, "validation", ks=[5]).metrics["ndcg@5"]
    page = shown(folder)
    assert page.texts["th"] == ["run", "other", "difference", "95 % interval", "p"]
    cells = page.texts["td"]
    at = cells.index("ndcg@5")
    assert cells[at + 1 : at + 6] == [
        f"{found.first:.4f}",
        f"{found.second:.4f}",
        f"{found.difference:+.4f}",
        f"{found.lower:+.4f} to {found.upper:+.4f}",
        f"{found.p_value:.4f}",
    ]
    assert page.texts["h3"][0].startswith("validation, ")


def test_runs_that_keep_no_shared_evaluation_show_none(runs):
    folder, data = runs
    keep(folder, data, "run")
    keep(folder, data, "other", exclude_seen=False)
    page = shown(folder)
    assert page.count("table") == 0


def test_damage_is_one_sentence_on_the_page(runs):
    folder, data = runs
    keep(folder, data, "run")
    keep(folder, data, "other")
    (table,) = (folder / "other" / "evaluations").glob("*.arrow")
    table.write_bytes(table.read_bytes()[:-9])
    page = shown(folder)
    assert page.count("table") == 0
