"""Published data by name: downloaded once, then ingested."""

import csv
import hashlib
import http.client
import os
import shutil
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from widenet.data.dataset import Dataset
from widenet.data.ingest import Options, ingest_with
from widenet.data.ingest_arguments import OnRows
from widenet.data.messages import Note
from widenet.data.writer import check_free
from widenet.errors import DataError, OptionError, did_you_mean
from widenet.stores.durable import appearing

_BLOCK_BYTES = 2**20
_TIMEOUT_SECONDS = 60

OnBytes = Callable[[int, int | None], None]


def place_of(url: str, folder: Path) -> Path:
    """The file of a URL in a folder of downloads."""
    return folder / url.rsplit("/", 1)[-1]


def download(url: str, folder: Path, checksum: str | None = None, on_bytes: OnBytes | None = None) -> Path:
    """Download a file to a folder, unless it is there already.

    Args:
        url: URL of the file.
        folder: The folder.
        checksum: "md5:..." or "sha256:..."; None if it is unknown. Then the SHA-256 of the first download is
            recorded beside the file, and compared on later calls.
        on_bytes: Called with the number of bytes that are there, and the total if it is known.

    Raises:
        DataError: The file cannot be read, or has another checksum.
    """
    path = place_of(url, folder)
    recorded = path.with_name(f"{path.name}.sha256")
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        recorded.unlink(missing_ok=True)
        try:
            with appearing(path) as file:
                _fetch(url, file, on_bytes)
                if checksum is not None:
                    file.flush()
                    _compare(Path(file.name), checksum, url)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            reason = str(error) or type(error).__name__
            rule = f"cannot be read: {reason}. Run the command again, or put the file at {path}"
            raise DataError(rule, place=url) from None
    if checksum is not None:
        _compare(path, checksum, path)
        return path
    kept = recorded.read_text(encoding="utf-8", errors="replace").strip() if recorded.exists() else ""
    if kept.startswith("sha256:"):
        _compare(path, kept, path)
    else:
        with appearing(recorded) as file:
            file.write(f"{_checksum(path, 'sha256')}\n".encode())
    return path


def _fetch(url: str, file: BinaryIO, on_bytes: OnBytes | None) -> None:
    """Write what a server sends into a file; raises OSError if that ends before its length."""
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None and length.isdecimal() else None
        done = 0
        while block := answer.read(_BLOCK_BYTES):
            file.write(block)
            done += len(block)
            if on_bytes is not None:
                on_bytes(done, total)
    if total is not None and done < total:
        raise OSError(f"the connection ended after {done:,} of {total:,} bytes")


def _compare(path: Path, checksum: str, place: object) -> None:
    """Raise DataError if a file has another checksum."""
    actual = _checksum(path, checksum.partition(":")[0])
    if actual != checksum:
        rule = f"must have the checksum {checksum}; got {actual}, which is another file: remove it"
        raise DataError(rule, place=place)


def _checksum(path: Path, kind: str) -> str:
    """The checksum of a file, of a kind such as "md5"."""
    with path.open("rb") as file:
        return f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"


TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Published:
    """A published data set.

    Attributes:
        name: Its name.
        about: Description.
        licence: Licence.
        files: The URL of each file and, if it is known, its checksum.
        interactions: Name of the file with the interactions, among `files` or in an archive among them.
        ingest: Options of the ingest.
        heldout: Name of the file with the heldout part.
        titles: Name of the file with the titles, and its encoding, delimiter and columns.
    """

    name: str
    about: str
    licence: str
    files: list[dict[str, str]]
    interactions: str
    ingest: dict[str, Any]
    heldout: str | None = None
    titles: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def find(cls, name: str, table: Path | None = None) -> "Published":
        """Find published data by name; raises OptionError that suggests a name."""
        known = published(table)
        if name not in known:
            raise OptionError(f'no published data is called "{name}".{did_you_mean(name, known)}')
        return known[name]

    def with_min_value(self, min_value: float) -> "Published":
        """Return this data set with another lowest rating that counts as an interaction.

        Raises:
            OptionError: Its interactions have no ratings.
        """
        if "min_value" not in self.ingest:
            raise OptionError(f"{self.name} has no ratings, so `min_value` does not apply. Leave it out.")
        return replace(self, ingest={**self.ingest, "min_value": min_value})


def published(table: Path | None = None) -> dict[str, Published]:
    """All published data that widenet knows, by name."""
    return {
        name: Published(name, **facts)
        for name, facts in tomllib.loads((table or TABLE).read_text(encoding="utf-8")).items()
    }


def cache_folder() -> Path:
    """The folder for downloads: WIDENET_CACHE, or .cache/widenet in the home folder."""
    return Path(os.environ.get("WIDENET_CACHE") or Path.home() / ".cache" / "widenet")


def fetch(
    data: Published,
    out: Path,
    *,
    overwrite: bool = False,
    say: Callable[[str], None],
    on_bytes: OnBytes | None = None,
    on_rows: OnRows | None = None,
) -> Dataset:
    """Download published data, whose licence the user has accepted, and ingest it.

    Args:
        data: The published data.
        out: The dataset directory to make.
        overwrite: Whether to replace an earlier dataset at `out`, once the new one is whole.
        say: Called with a sentence on each step, and on each file that could not be checked.
        on_bytes: As in `download`.
        on_rows: As in `ingest`.

    Returns:
        The dataset, opened.

    Raises:
        DataError: A download failed, a file is wrong, or `out` exists and may not be replaced.
        OptionError: An option of the ingest is wrong.
    """
    check_free(out, overwrite)
    folder = cache_folder() / data.name
    files = []
    for facts in data.files:
        cached = place_of(facts["url"], folder)
        say(f"reading {cached}" if cached.exists() else f"downloading {facts['url']}")
        files.append(download(facts["url"], folder, facts.get("checksum"), on_bytes))
        if "checksum" not in facts:
            checksum = files[-1].with_name(f"{files[-1].name}.sha256").read_text(encoding="utf-8").strip()
            say(
                Note(
                    f"{files[-1]}: its published checksum is unknown, so the file could not be checked. It"
                    f" has {checksum}."
                )
            )
    with TemporaryDirectory(dir=folder) as scratch:
        sources = {
            name: _find_file(files, name, Path(scratch))
            for name in (data.interactions, data.heldout, data.titles.get("file"))
            if name
        }
        options: dict[str, Any] = dict(data.ingest)
        if data.heldout is not None:
            options["heldout"] = sources[data.heldout]
        if data.titles:
            options["titles"] = _titles(
                sources[data.titles["file"]], data.titles, Path(scratch) / "titles.csv"
            )
        ingest_with(
            sources[data.interactions],
            out,
            Options(name=data.name, overwrite=overwrite, on_progress=say, on_rows=on_rows, **options),
        )
    return Dataset.open(out)


def _find_file(files: list[Path], name: str, scratch: Path) -> Path:
    """Find a file by name among some files, or extract it from an archive among them."""
    for path in files:
        if path.name == name:
            return path
        if path.suffix != ".zip":
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    if Path(member.filename).name == name:
                        with archive.open(member) as source, (scratch / name).open("wb") as target:
                            shutil.copyfileobj(source, target)
                        return scratch / name
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(
                f"{path}: must be a zip archive; {error}. Remove it, and run the command again."
            ) from None
    raise DataError(f"{files[0]}: must hold {name}; it does not. Remove it, and run the command again.")


def _titles(path: Path, how: Mapping[str, Any], out: Path) -> Path:
    """Write a CSV file of ids and titles.

    Args:
        path: The file with titles.
        how: Its encoding, delimiter and columns.
        out: The file to write.
    """
    with (
        path.open(encoding=how.get("encoding", "utf-8"), newline="") as source,
        out.open("w", encoding="utf-8", newline="") as target,
    ):
        writer = csv.writer(target)
        writer.writerow(("id", "title"))
        writer.writerows(_pairs(source, how, path))
    return out


def _pairs(lines: Iterator[str], how: Mapping[str, Any], path: Path) -> Iterator[tuple[str, str]]:
    rows = (
        csv.reader(lines)
        if how["delimiter"] == ","
        else (line.rstrip("\r\n").split(how["delimiter"]) for line in lines)
    )
    places = [how["id"], how["title"]]
    try:
        if isinstance(places[0], str):
            [header] = islice(rows, 1)
            places = [header.index(name) for name in places]
        for row in rows:
            yield row[places[0]], row[places[1]]
    except (ValueError, IndexError, csv.Error) as error:
        raise DataError(
            f"{path.name}: must have the columns {how['id']} and {how['title']}; {error}. Remove it from the"
            " cache."
        ) from None
