"""Published data by name: downloaded once, then ingested."""

import csv
import os
import shutil
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.download import OnBytes, download
from widenet.data.ingest import ingest_with
from widenet.data.ingest_arguments import OnRows
from widenet.data.options import Options
from widenet.errors import DataError, OptionError, did_you_mean

TABLE = Path(__file__).with_name("published.toml")


@dataclass(frozen=True)
class Published:
    """A published data set.

    about, licence: for people. files: of each its URL and, where one is known, its checksum.
    interactions, heldout, titles: names of files among them, or within an archive; of titles also how they
    are written.
    ingest: options that read the interactions.
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
        """The one of a name; raises OptionError."""
        known = published(table)
        if name not in known:
            raise OptionError(f'no published data is called "{name}".{did_you_mean(name, known)}')
        return known[name]


def published(table: Path | None = None) -> dict[str, Published]:
    """All that is known, by name."""
    return {
        name: Published(name, **facts)
        for name, facts in tomllib.loads((table or TABLE).read_text(encoding="utf-8")).items()
    }


def cache_folder() -> Path:
    """Where downloads stay: WIDENET_CACHE, or .cache/widenet in the home folder."""
    return Path(os.environ.get("WIDENET_CACHE") or Path.home() / ".cache" / "widenet")


def fetch(
    data: Published,
    out: Path,
    *,
    say: Callable[[str], None],
    on_bytes: OnBytes | None = None,
    on_rows: OnRows | None = None,
) -> Dataset:
    """Publish the dataset of published data, whose licence somebody has accepted; gives it, opened.

    Raises DataError, OptionError.

    say: is told what happens, and which files could not be checked. on_bytes, on_rows: as in `download` and
    `ingest`.
    """
    if out.exists():
        raise DataError(
            f"{out}: already exists, and a dataset is never overwritten. Choose another `out`, or remove it"
            " first."
        )
    folder = cache_folder() / data.name
    files = []
    for facts in data.files:
        say(f"reading {facts['url']}")
        files.append(download(facts["url"], folder, facts.get("checksum"), on_bytes))
        if "checksum" not in facts:
            has = files[-1].with_name(f"{files[-1].name}.sha256").read_text(encoding="utf-8").strip()
            say(
                f"{files[-1]}: no checksum of it is known; that it is the right file could not be checked. It"
                f" has {has}."
            )
    with TemporaryDirectory(dir=folder) as scratch:
        found = {
            name: _found(files, name, Path(scratch))
            for name in (data.interactions, data.heldout, data.titles.get("file"))
            if name
        }
        options: dict[str, Any] = dict(data.ingest)
        if data.heldout is not None:
            options["heldout"] = found[data.heldout]
        if data.titles:
            options["titles"] = _titles(found[data.titles["file"]], data.titles, Path(scratch) / "titles.csv")
        ingest_with(
            found[data.interactions],
            out,
            Options(name=data.name, on_progress=say, on_rows=on_rows, **options),
        )
    return Dataset.open(out)


def _found(files: list[Path], name: str, scratch: Path) -> Path:
    """The file of a name, among some or taken out of an archive among them."""
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
    """A CSV file of id and title, from one that is written in some way."""
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
