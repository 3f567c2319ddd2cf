"""The section about layers: norms, strips and tables of what a run has recorded."""

import re
import shutil

import pytest

from tests.pages import Page
from widenet.report.histograms import histograms_section
from widenet.report.subject import Subject
from widenet.training import histogram_log
from widenet.training.histogram_log import FILE, Histogram
from widenet.training.run_directory import RunDirectory


@pytest.fixture
def shown(reported, tmp_path):
    """Shows the page of a run with these lines: histograms by name, by group, by epoch."""

    def show(lines):
        run = shutil.copytree(reported / "run", tmp_path / "run")
        (run / FILE).unlink()
        for epoch, groups in lines.items():
            plain = {group: histogram_log.plain(names) for group, names in groups.items()}
            histogram_log.append(run, {"epoch": epoch, **plain})
        return Page(histograms_section(Subject("run", RunDirectory.open(run))))

    return show


def test_a_run_shows_its_layers(reported):
    page = Page(histograms_section(Subject("run", RunDirectory.open(reported / "run"))))
    assert page.texts["summary"] == ["Weights", "Gradients", "Activations"]
    names = ["taste/history", "next", "next bias", "taste bias"]
    groups = ["norms of weights", "norms of gradients", "norms of activations"]
    assert page.texts["b"] == [*groups, *names, "taste/history", "taste bias", "taste"]
    assert page.count("table") == 3


def test_a_run_without_histograms_has_no_section(shown):
    assert shown({}).elements == []


def test_the_table_says_what_the_picture_shows(shown):
    first, last = (
        Histogram(2.0, 8, 2, -3, [1, 1], [3, 1]),
        Histogram(None, 8, 0, -20, [0] * 19, [8] + [0] * 18),
    )
    page = shown({3: {"weights": {"<taste>": first}}, 2: {}, 5: {"weights": {"<taste>": last}}})
    assert page.texts["td"] == ["<taste>", "8", "2", "not finite", "5", "0.0%", "2^-20 to 2^-19"]
    assert page.texts["title"][-2:] == [
        "<taste>, epoch 3: norm 2, 25.0% zeros, median magnitude 2^-3 to 2^-2",
        "<taste>, epoch 5: norm not finite, 0.0% zeros, median magnitude 2^-20 to 2^-19",
    ]


def test_a_column_has_positive_numbers_above_and_negative_ones_below(shown):
    page = shown({1: {"weights": {"taste": Histogram(1.0, 14, 4, -2, [0, 1], [9, 0])}}})
    (paths,) = [[found for name, found in page.elements if name == "path"]]
    rows = {
        round((float(y) - 8) / 7): float(found["fill-opacity"])
        for found in paths
        for y in re.findall(r"M\S+ (\S+?)h", found["d"])
    }
    assert rows == {1: 1.0, 2: 0.75, 4: 0.38}
    assert [text for text in page.texts["text"] if "^" in text or text == "0"] == ["0", "2^0", "-2^0"]


def test_numbers_far_below_the_largest_join_the_zeros(shown):
    page = shown({1: {"activations": {"taste": Histogram(1.0, 3, 0, -30, [0] * 31, [2, *[0] * 29, 1])}}})
    (path, *_) = sorted(
        (found for name, found in page.elements if name == "path"),
        key=lambda found: -float(found["fill-opacity"]),
    )
    assert re.findall(r"M\S+ (\S+?)h", path["d"]) == [str(8 + 7 * 12)]


def test_of_many_epochs_some_are_drawn_and_the_last_one_always_is(shown):
    page = shown(
        {epoch: {"weights": {"taste": Histogram(1.0, 1, 0, 0, [0], [1])}} for epoch in range(1, 101)}
    )
    hints = [text for text in page.texts["title"] if text.startswith("taste, epoch")]
    assert [int(re.search(r"epoch (\d+)", text)[1]) for text in hints] == list(range(5, 101, 5))


def test_of_many_weights_some_are_drawn_and_all_are_in_the_table(shown):
    one = Histogram(1.0, 1, 0, 0, [0], [1])
    page = shown({1: {"weights": {f"layer {number}": one for number in range(30)}}})
    assert page.count("figure") == 1 + 24
    assert page.texts["td"][::7] == [f"layer {number}" for number in range(30)]
    assert any("The first 24 are drawn, 6 more are in the table." in text for text in page.texts["p"])
