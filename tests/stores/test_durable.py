"""What must outlast a power cut: a file is there whole, or not at all."""

import os
import shutil
from pathlib import Path

import pytest

from widenet.stores.durable import appearing, appearing_together, put_in_place


def test_a_file_appears_whole_or_stays_as_it_was(tmp_path):
    path = tmp_path / "names"
    path.write_bytes(b"before")
    with pytest.raises(TypeError), appearing(path) as file:
        file.writelines([b"half", "no bytes"])
    assert path.read_bytes() == b"before"
    with appearing(path) as file:
        file.write(b"whole")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.fixture
def forced(monkeypatch):
    """The paths that are forced to disk, in order."""
    paths, fsync = [], os.fsync
    monkeypatch.setattr(
        os, "fsync", lambda file: paths.append(Path(f"/proc/self/fd/{file}").readlink()) or fsync(file)
    )
    return paths


class Killed(BaseException):
    pass


def write(paths, content):
    with appearing_together(paths) as beside:
        for path in beside:
            path.write_bytes(content)


@pytest.mark.parametrize("earlier", [("keys", "index"), ("keys",), ("index",)])
@pytest.mark.parametrize("stops", [True, False])
def test_after_an_interruption_or_a_kill_at_any_moment_files_belong_together(
    stops, earlier, tmp_path, monkeypatch
):
    """Ends before the first, second, ... change of the disk; after a kill, no later change happens either."""
    paths, done, outcomes = [tmp_path / "keys", tmp_path / "index"], 0, set()

    def fatal(change):
        def changed(*arguments, **more):
            nonlocal left
            left -= 1
            if left == -1 or (left < 0 and not stops):
                raise Killed
            return change(*arguments, **more)

        return changed

    while True:
        write(paths, b"before")
        for name in {"keys", "index"} - set(earlier):
            (tmp_path / name).unlink()
        with monkeypatch.context() as patch:
            for name in ("replace", "unlink"):
                patch.setattr(Path, name, fatal(getattr(Path, name)))
            left = done
            try:
                write(paths, b"after")
            except Killed:
                done += 1
            else:
                break
        if not stops:
            with pytest.raises(ZeroDivisionError), appearing_together(paths):  # the next writing fails, too
                1 // 0  # noqa: B018
        found = [path.read_bytes() for path in paths if path.exists()]
        assert found in ([b"before"] * len(earlier), [b"after"] * 2)
        outcomes.add(found[0])
    assert outcomes == {b"before", b"after"}
    assert done > 4


def test_a_file_is_on_disk_before_it_appears_and_its_name_afterwards(tmp_path, forced, monkeypatch):
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, to: forced.append(to) or replace(path, to))
    with appearing(tmp_path / "names") as file:
        file.write(b"whole")
    beside, appeared, folder = forced
    assert (beside.parent, appeared, folder) == (tmp_path, tmp_path / "names", tmp_path)


@pytest.mark.parametrize("earlier", [True, False])
def test_a_directory_takes_a_name_and_the_earlier_one_goes_once_that_is_on_disk(
    earlier, tmp_path, forced, monkeypatch
):
    rmtree, dropped = shutil.rmtree, []
    monkeypatch.setattr(
        shutil, "rmtree", lambda path, **how: dropped.append((path.name, list(forced))) or rmtree(path, **how)
    )
    for name in ("beside", *["data"] * earlier):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    put_in_place(tmp_path / "beside", tmp_path / "data")
    assert [path.relative_to(tmp_path) for path in tmp_path.rglob("*")] == [Path("data"), Path("data/beside")]
    assert dropped == [(".data.old", [tmp_path / "beside", tmp_path])] * earlier
