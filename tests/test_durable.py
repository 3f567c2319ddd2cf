"""What must outlast a power cut: a file is there whole, or not at all."""

import pytest

from widenet.durable import appearing


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


def test_what_cannot_be_written_is_called_by_its_own_name(tmp_path):
    path = tmp_path / "absent" / "names"
    with pytest.raises(FileNotFoundError) as raised, appearing(path):
        pass
    assert raised.value.filename == str(path)
