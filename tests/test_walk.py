"""The files of the package that one batch enters, as the page about the architecture lists them."""

import re
import sys
from pathlib import Path

import pytest

import widenet
from tests.trainings import books
from widenet import train
from widenet.model.network import Network
from widenet.training import loop

PACKAGE = Path(widenet.__file__).parent
PAGE = PACKAGE.parent / "docs" / "architecture.md"
SMALLEST = {
    "layers": [
        {"name": "in", "kind": "input", "field": "items"},
        {"name": "taste", "units": 8, "activation": "tanh"},
        {"name": "out", "kind": "output", "field": "items"},
    ]
}
BATCHES = 3
"""What is loaded or computed once has been by then."""


def entered(work):
    """The result of some work, and the files of the package that it enters in its thread, in order."""
    files = {}

    def note(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.setdefault(path.relative_to(PACKAGE).as_posix())

    sys.setprofile(note)
    try:
        result = work()
    finally:
        sys.setprofile(None)
    return result, list(files)


@pytest.mark.parametrize("network", [SMALLEST, None], ids=["smallest", "default"])
def test_a_batch_enters_the_files_that_the_architecture_lists(network, tmp_path, monkeypatch):
    walks = {"prepare": [], "step": []}

    def traced(name, function):
        def run(*args, **kwargs):
            result, files = entered(lambda: function(*args, **kwargs))
            walks[name].append(files)
            return result

        return run

    monkeypatch.setattr(Network, "prepare", traced("prepare", Network.prepare))
    monkeypatch.setattr(loop, "train_step", traced("step", loop.train_step))
    data = books(tmp_path / "books")
    training = {"batch_size": data.num_examples // (BATCHES + 1), "epochs": 1}
    train(network, training, data.path, tmp_path / "run")
    own = dict.fromkeys([*walks["prepare"][BATCHES], *walks["step"][BATCHES]])
    listed = re.findall(r"^\d+\. `(\S+\.py)`", PAGE.read_text("utf-8"), re.MULTILINE)
    assert sorted(own) == sorted(listed)
    assert len(listed) <= 20
