"""What the tables of mistakes share: a command line that is refused, and what must then hold."""

import pytest


def listing(folder):
    """Every file and folder, links not followed, with what a file holds."""
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.fixture
def desk(world, tmp_path, monkeypatch):
    """The current directory: links to what the world holds, and a folder `bad`."""
    for path in world.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "bad").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def refused(widenet, world, desk):
    """Runs a command line that must end with status 2 and leave everything as it was; gives the sentence that
    it says last.

    Before the sentence stand phases, each ending in "...", and nothing else.
    """

    def run(line):
        before = listing(world), listing(desk)
        ended = widenet(*line.split(" "))
        assert (ended.status, ended.out) == (2, "")
        *phases, sentence = ended.err.splitlines()
        assert [each for each in phases if not each.endswith("...")] == []
        assert (listing(world), listing(desk)) == before
        return sentence

    return run
