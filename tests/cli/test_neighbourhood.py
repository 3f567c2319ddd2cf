"""`widenet neighbourhood` makes a run that every other command reads."""

import json

import pytest
from safetensors.torch import load_file


@pytest.mark.usefixtures("inside")
def test_it_prints_what_it_tries_and_what_it_keeps(widenet, tmp_path):
    out = tmp_path / "near"
    ended = widenet("neighbourhood", "run", "--out", out, "--metric", "ndcg@2")
    assert ended.status == 0
    first, *tried, best, kept, fingerprint = ended.out.splitlines()
    assert first.endswith("  no term")
    assert first.startswith("ndcg@2 0.")
    assert "weight 0.8, floor 0.01, 25 neighbours, popularity 0.4" in tried[0]
    assert best.startswith("Best: ")
    assert ". For 6 other users ndcg@2 0." in best
    assert kept.startswith(f"{out}: ")
    assert ended.err == ""
    lines = [line.split("  ")[1] for line in [first, *tried]]
    assert len(set(lines)) == len(lines)
    again = widenet("fingerprint", out)
    assert again.out.strip() == fingerprint.split()[1]
    assert widenet("recommend", out, "The Hobbit").status == 0
    assert widenet("evaluate", out, "--data", "data").status == 0
    assert widenet("compare", "run", out, "--data", "data").status == 0
    assert widenet("report", "run", out, "--out", tmp_path / "both.html").status == 0
    assert json.loads(widenet("runs", tmp_path, "--json").out)["runs"][0]["made_of"].endswith("run")


@pytest.mark.usefixtures("inside")
def test_as_json_the_choices_go_to_standard_error(widenet, tmp_path):
    ended = widenet("neighbourhood", "run", "--out", tmp_path / "near", "--metric", "ndcg@2", "--json")
    found = json.loads(ended.out)
    network = json.loads((tmp_path / "near" / "network.json").read_text())
    kept = network["layers"][-1].get("neighbourhood")
    assert (found["neighbourhood"] and {**found["neighbourhood"], "fit": False}) == kept
    assert ended.err.startswith("ndcg@2 0.")
    assert found["num_users"] == 6


@pytest.mark.usefixtures("inside")
def test_a_training_fits_its_term_if_it_can(widenet, tmp_path):
    def lines(data, *words):
        return widenet(
            "train", *words, "--data", data, "--out", tmp_path / data, "--overwrite"
        ).err.splitlines()

    assert 'Fitting the neighbourhood term of "next" by ndcg@20.' in lines("data")
    stays = 'The neighbourhood term of "next" stays'
    assert [line for line in lines("whole", "--no-validation") if line.startswith(stays)]


@pytest.mark.usefixtures("inside")
def test_a_plan_names_the_bytes_of_the_neighbours(widenet, tmp_path):
    widenet("train", "--data", "data", "--out", tmp_path / "data")
    saved = [load_file(file) for file in (tmp_path / "data" / "model").glob("neighbourhood-*.safetensors")]
    held = sum(tensor.nbytes for tensors in saved for tensor in tensors.values())
    planned = json.loads(widenet("plan", "--data", "data", "--json").out)["neighbours"]
    assert planned == {"next": {"units": 9, "neighbours": 25, "bytes": held}}
    table = widenet("plan", "--data", "data").out
    assert f"neighbours of next     9       25  {held / 1000:.2f} kB  in shards of rows" in table
