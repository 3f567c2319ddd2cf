"""Every test of this room computes as training does: one thread an operation; some begin with other runs."""

import pytest

from tests.trainings import SETTINGS, books
from widenet.parallel.exchange import one_thread_an_operation
from widenet.runs import train


@pytest.fixture(autouse=True)
def _one_thread():
    with one_thread_an_operation():
        yield


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Finished runs of some settings, trained once."""
    folder = tmp_path_factory.mktemp("before")
    data = books(folder / "data")

    def run(name):
        if not (folder / name).exists():
            network, training = SETTINGS[name]
            train(network, {**training, "keep": "last", "checkpoints": {}}, data, folder / name)
        return folder / name

    return run
