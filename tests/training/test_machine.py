"""machine.json: what a training ran on."""

import platform

import torch

from widenet.data.dataset import Dataset
from widenet.data.lists import dataset_from_lists
from widenet.training.machine import machine


def test_it_says_versions_device_and_the_place_of_the_data(tmp_path, monkeypatch):
    dataset_from_lists(tmp_path / "data", [[0]], width=1)
    monkeypatch.chdir(tmp_path)
    dataset = Dataset.open("data")
    monkeypatch.setenv("WIDENET_THREADS", "3")
    found = machine(dataset, torch.device("cpu"))
    assert (found["torch"], found["python"]) == (torch.__version__, platform.python_version())
    assert (found["threads"], found["processes"], found["data"]) == (3, 1, str(tmp_path / "data"))
    assert found["device"]
