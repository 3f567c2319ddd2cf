"""Published data by name: downloaded once, then ingested."""

import hashlib
import http.client
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from widenet.data.columns import literal, quoted
from widenet.data.dataset import Dataset
from widenet.data.ingest import Options, ingest_with
from widenet.data.ingest_arguments import OnRows
from widenet.data.messages import Note
from widenet.data.writer import check_free
from widenet.errors import DataError, OptionError, did_you_mean, reason_of
from widenet.stores import cache
from widenet.stores.durable import appearing

_BLOCK_BYTES = 2**20
_TIMEOUT_SECONDS = 60

OnBytes = Callable[[int, int | None], None]


def download(url: str, folder: Path, checksum: str | None = None, on_bytes: OnBytes | None = None) -> Path:
    """Download a file to a folder, unless it is there already.

    Args:
        url: URL of the file.
        folder: The folder.
        checksum: "md5:..." or "sha256:..."; None if it is unknown.
        on_bytes: Called with the number of bytes that are there, and the total if it is known.

    Raises:
        DataError: The file cannot be read, or has another checksum.
    """
    path = folder / url.rsplit("/", 1)[-1]
    is_new = not path.exists()
    if is_new:
        _fetch(url, path, on_bytes)
    if checksum is not None:
        kind = checksum.partition(":")[0]
        with path.open("rb") as file:
            actual = f"{kind}:{hashlib.file_digest(file, kind).hexdigest()}"
        if actual != checksum:
            if is_new:
                path.unlink()
            raise DataError(f"must have the checksum {checksum}", place=path, value=actual)
    return path


def _fetch(url: str, path: Path, on_bytes: OnBytes | None) -> None:
    """Write what a server sends into a new file; raises DataError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with appearing(path) as file, urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310
            total, done = answer.length, 0
            while block := answer.read(_BLOCK_BYTES):
                done += file.write(block)
                if on_bytes is not None:
                    on_bytes(done, total)
            if answer.length:
                raise OSError(f"the connection ended after {done:,} of {total:,} bytes")
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = f"cannot be read: {reason_of(error)}; the file may be put at {path}"
        raise DataError(reason, place=url) from None


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
    def find(cls, name: str) -> "Published":
        """Find published data by name; raises OptionError that suggests a name."""
        known = published()
        if name not in known:
            raise OptionError(f'no published data is called "{name}".{did_you_mean(name, known)}')
        return known[name]

    def with_min_value(self, min_value: float) -> "Published":
        """Return this data set with another lowest rating that counts as an interaction.

        Raises:
            OptionError: Its interactions have no ratings.
        """
        has_ratings = "min_value" in self.ingest
        OptionError.require(has_ratings, f"{self.name} has no ratings", option="min_value")
        return replace(self, ingest={**self.ingest, "min_value": min_value})


TABLE = Path(__file__).with_name("published.toml")


def published() -> dict[str, Published]:
    """All published data that widenet knows, by name."""
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    return {name: Published(name, **facts) for name, facts in table.items()}


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
    folder = cache.root() / data.name
    files = []
    for facts in data.files:
        say(f"reading {facts['url']}")
        files.append(download(facts["url"], folder, facts.get("checksum"), on_bytes))
        if "checksum" not in facts:
            say(Note(f"{files[-1]}: its checksum is not known, so the file could not be checked."))
    with TemporaryDirectory(dir=folder) as scratch:
        options: dict[str, Any] = {**data.ingest, "on_progress": say, "on_rows": on_rows}
        if data.heldout is not None:
            options["heldout"] = _find_file(files, data.heldout, scratch)
        if data.titles:
            path = _find_file(files, data.titles["file"], scratch)
            options["titles"] = _titles(path, data.titles, Path(scratch) / "titles.csv")
        source = _find_file(files, data.interactions, scratch)
        ingest_with(Options(source, out, name=data.name, overwrite=overwrite, **options))
    return Dataset.open(out)


def _find_file(files: list[Path], name: str, scratch: str) -> Path:
    """Find a file by name among some files, or extract it from an archive among them."""
    for path in files:
        if path.name == name:
            return path
        if path.suffix != ".zip":
            continue
        try:
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    if Path(member).name == name:
                        return Path(archive.extract(member, scratch))
        except (zipfile.BadZipFile, OSError) as error:
            raise DataError(f"must be a zip archive; remove it: {error}", place=path) from None
    raise DataError(f"must hold {name}; remove it", place=files[0])


def _titles(path: Path, how: Mapping[str, Any], out: Path) -> Path:
    """Write a CSV file of the ids and titles in a file, whose encoding, delimiter and columns are given."""
    is_named, quote = isinstance(how["id"], str), '"' if how["delimiter"] == "," else ""
    reading = f"header = {is_named}, delim = {literal(how['delimiter'])}, quote = {literal(quote)}"
    encoding = literal(how.get("encoding", "utf-8"))
    read = f"FROM read_csv({literal(path)}, {reading}, encoding = {encoding}, all_varchar = true)"
    try:
        with duckdb.connect() as database:
            names = database.sql(read).columns
            columns = [quoted(how[role] if is_named else names[how[role]]) for role in ("id", "title")]
            titles = f"SELECT {columns[0]} AS id, {columns[1]} AS title {read}"
            database.execute(f"COPY ({titles}) TO {literal(out)} (HEADER)")
    except (duckdb.Error, IndexError) as error:
        rule = f"must have the columns {how['id']} and {how['title']}: {reason_of(error)}"
        raise DataError(rule, place=path.name) from None
    return out
