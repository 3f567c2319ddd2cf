"""Curves of a log: the loss, then a figure a metric with a line a k."""

from tests.pages import Page
from widenet.runs.run_log import log_curves, metric_names, points

RECORDS = [
    {"epoch": 1, "loss": 3.0, "seconds": 1.0, "learning_rate": 0.1},
    {
        "epoch": 2,
        "loss": 2.0,
        "seconds": 1.0,
        "recall@5": 0.25,
        "recall@20": 0.5,
        "map@5": 0.125,
        "num_examples": 7.0,
    },
]


def test_metrics_are_told_from_other_numbers():
    assert metric_names(RECORDS) == ["recall@5", "recall@20", "map@5"]
    assert points(RECORDS, "loss") == [(1, 3.0), (2, 2.0)]
    assert points([*RECORDS, {"epoch": 3, "loss": "much"}], "recall@5") == [(2, 0.25)]


def test_each_metric_has_its_figure():
    page = Page(log_curves(RECORDS))
    assert page.texts["b"] == ["loss", "recall", "map@5"]
    assert "recall@20, epoch 2: 0.5" in page.texts["title"]
    assert Page(log_curves([])).texts["p"] == ["no values"]
