"""What the tests of reports share: a run on data whose names are HTML, and another run."""

import pytest

from tests.browser import chromium  # noqa: F401
from tests.trainings import UNTIED, books, document
from widenet.runs import train

EVIL = "<script>document.title='gone';console.error('gone')</script><img src=x onerror=console.error(1)>"
NETWORK = {**UNTIED, "name": f"net {EVIL}"}
TRAINING = document({"kind": "adam", "learning_rate": 0.05})


@pytest.fixture(scope="session")
def reported(tmp_path_factory):
    """A folder with the dataset "data" and the trained runs "run" and "other"."""
    folder = tmp_path_factory.mktemp("reported")
    titles = [f"Book {index} {EVIL}" for index in range(31)]
    data = books(folder / "data", titles=titles, ids=[f"{example:02} {EVIL}" for example in range(23)])
    train(NETWORK, TRAINING, data, folder / "run")
    train(
        UNTIED,
        {**TRAINING, "epochs": 2, "optimizer": {"kind": "adam", "learning_rate": 0.01}},
        data,
        folder / "other",
    )
    return folder
