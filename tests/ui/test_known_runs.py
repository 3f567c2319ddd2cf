"""What is known of runs: that of their files, read again only where these change."""

from tests.ui.conftest import training
from widenet.report.listing import list_runs
from widenet.ui.known_runs import KnownRuns


def known(folder):
    runs = KnownRuns(folder)
    runs.look()
    return runs


def test_it_is_what_the_list_of_runs_says(runs):
    listing = {run.name: run for run in list_runs(runs).runs}
    seen = known(runs)
    assert seen.now.runs.keys() == listing.keys() == {"untied", "deep/tied"}
    for name, run in seen.now.runs.items():
        assert run.differences == listing[name].differences
        assert run.listed.value == listing[name].value == run.values["ndcg@5"]
    assert seen.now.problems == {}


def test_only_what_changes_is_read_and_told(runs):
    with training(runs / "untied") as run:
        seen = known(runs)
        start = seen.now.version
        tied = seen.now.runs["deep/tied"]
        seen.look()
        assert seen.now.version == start
        run.log({"epoch": 2, "loss": 0.5, "ndcg@5": 0.75})
        seen.look()
        assert seen.now.version == start + 1
        assert seen.now.runs["untied"].listed.state == "training"
        assert seen.now.runs["untied"].values["ndcg@5"] == 0.75
        assert seen.now.runs["deep/tied"] is tied
