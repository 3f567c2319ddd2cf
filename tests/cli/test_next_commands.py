"""The commands that a training ends with: a shell reads them as they are."""

import json
import shlex

from widenet.data.lists import dataset_from_lists


def test_paths_are_quoted_where_a_shell_needs_it(tmp_path, monkeypatch, widenet):
    monkeypatch.chdir(tmp_path)
    dataset_from_lists("all data", [[0, 1, 2], [1, 2, 3], [0, 2, 3]] * 4, width=4)
    network = {
        "layers": [
            {"name": "history", "kind": "input", "field": "items"},
            {"name": "taste", "units": 2},
            {"name": "next", "kind": "output", "field": "items", "neighbourhood": {"weight": 0.5}},
        ]
    }
    (tmp_path / "network.json").write_text(json.dumps(network))
    *_, following, term = widenet(
        "train", "network.json", "--data", "all data", "--out", "my $run"
    ).err.splitlines()
    assert following == (
        "Next: widenet evaluate 'my $run' --data 'my $run/data' --part validation, or widenet"
        " predict 'my $run' --data 'all data' --out recommendations.parquet"
    )
    evaluate, predict = following.removeprefix("Next: ").split(", or ")
    near = term.removeprefix("Perhaps better lists, without a new training: ")
    assert near == "widenet neighbourhood 'my $run' --out 'my $run-near'"
    for command in (evaluate, predict, near):
        assert widenet(*shlex.split(command)[1:]).status == 0
