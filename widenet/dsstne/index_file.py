"""DSSTNE's index files, with a line `name<TAB>index` for each name, in any order."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from widenet.errors import DataError
from widenet.regular_files import bounded_lines, check_regular


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a text without their ends, each with its number; raises DataError."""
    with path.open("rb") as file:
        for number, line in enumerate(bounded_lines(file, path), start=1):
            try:
                yield number, line.decode().rstrip("\r\n")
            except UnicodeDecodeError as error:
                place = f"{path}: line {number}"
                raise DataError(f"must be UTF-8 text; {error.reason}", place=place) from error


def read_names(path: Path) -> list[str]:
    """Read the names in the order of their indices.

    Raises:
        DataError: A line is malformed or repeats a name, or the indices are not 0, 1, 2 and so on.
    """
    check_regular(path)
    DataError.require(
        path.is_file(),
        f"must be an index file; {('it is a directory' if path.is_dir() else 'it does not exist')}",
        place=path,
    )
    index_of: dict[str, int] = {}
    for number, line in numbered_lines(path):
        name, tab, index = line.rpartition("\t")
        if not tab or not name or not (index.isascii() and index.isdecimal()):
            rule = "must be a name, a tab and a whole number"
            raise DataError(rule, place=path, line=number, value=line[:60])
        if name in index_of:
            raise DataError(f"names must differ; {name!r} appears twice", place=path, line=number)
        index_of[name] = int(index)
    names: list[str | None] = [None] * len(index_of)
    for name, place in index_of.items():
        if place >= len(names) or names[place] is not None:
            reason = "which appears twice" if place < len(names) else f"but it has {len(names):,} names"
            raise DataError(
                f"indices must be 0, 1, 2 and so on, each once; got {place:,}, {reason}", place=path
            )
        names[place] = name
    DataError.require(names, "must hold at least one name; it is empty", place=path)
    return [name for name in names if name is not None]


def write_index(path: Path, names: Iterable[str]) -> None:
    """Write a new index file with a line for each name, in order."""
    with path.open("xb") as file:
        file.writelines(f"{name}\t{index}\n".encode() for index, name in enumerate(names))
