"""A command line without --data names the dataset of the run that it names, if that is still there."""

import shutil

import pytest

MISSING = "widenet {0}: Missing option '--data'.{1} See `widenet {0} --help`.\n"


@pytest.mark.parametrize(
    "line",
    [
        "train {}/network.json {}/training.json",
        "train --resume --out {}",
        "evaluate {}",
    ],
)
def test_the_dataset_of_a_run_or_of_its_documents_is_named(line, inside, widenet, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = inside / "run"
    ended = widenet(*line.format(run, run).split())
    advice = f" Add --data {inside / 'data'}, on which {run} was trained."
    command = line.partition(" ")[0]
    assert (ended.status, ended.out, ended.err) == (2, "", MISSING.format(command, advice))


def test_a_dataset_that_lies_in_its_run_is_named_there_in_quotes(world, widenet, tmp_path, monkeypatch):
    run = tmp_path / "a run"
    shutil.copytree(world / "run", run)
    shutil.copytree(world / "data", run / "data")
    ended = widenet("train", run / "network.json", run / "training.json")
    assert ended.err == MISSING.format("train", f" Add --data '{run / 'data'}', on which {run} was trained.")
    monkeypatch.chdir(run)
    ended = widenet("train", "network.json", "training.json")
    assert ended.err == MISSING.format("train", f" Add --data data, on which {run} was trained.")


def test_the_folder_of_a_run_is_not_taken_for_the_run_that_is_named(inside, widenet, monkeypatch):
    monkeypatch.chdir(inside / "run")
    advice = f" Add --data {inside / 'data'}, on which {{}} was trained."
    assert widenet("evaluate", "../run").err == MISSING.format("evaluate", advice.format("../run"))
    assert widenet("evaluate", "nosuch").err == MISSING.format("evaluate", "")
    assert widenet("train", "nosuch.json").err == MISSING.format("train", "")


@pytest.mark.parametrize("machine", [None, "", "[]", "{}", '{"data": 5}', '{"data": "nowhere"}', "[" * 9999])
def test_no_dataset_is_named_where_none_is_known(machine, world, widenet, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(world / "run", run)
    (run / "machine.json").unlink() if machine is None else (run / "machine.json").write_text(machine)
    for word in (run, "x" * 5000):
        assert widenet("evaluate", word).err == MISSING.format("evaluate", "")
