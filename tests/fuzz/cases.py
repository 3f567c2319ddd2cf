"""The cases of the fuzzer: each a changed world and a command line over it, which follow from a number
alone.
"""

import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.forks import PROCESSOR_SECONDS, Ended, Forks
from tests.fuzz.mutations import changed_bytes, changed_json, changed_text, changed_words

_INGEST = "data ingest {} --out out --memory 1GB"
_READERS = (
    "data describe data",
    "data verify data",
    "data split data --out out --heldout 0.2",
    "evaluate run --data data --device cpu",
)
_RUN_READERS = (
    "fingerprint run",
    "evaluate run --data data --device cpu",
    "recommend run --items 1 --json --device cpu",
    "predict run --data data --out out.parquet -k 3 --device cpu",
    "report run",
    "knn like run 1",
    "export run --out out.onnx",
    "dsstne export-model run out.nc",
    "train --data data --out run --resume --quiet --device cpu",
    "train --data data --out out --from run --quiet --device cpu",
)
SOURCES: dict[str, tuple[str, ...]] = {
    "likes.csv": (
        _INGEST,
        _INGEST + " --value rating --min-value 2",
        _INGEST + " --time time --heldout-last 1",
        _INGEST + " --skip-bad-lines 3",
    ),
    "likes.tsv": (_INGEST, _INGEST + " --sequence --time time"),
    "tildes.txt": (_INGEST + " --delimiter ~",),
    "likes.jsonl": (_INGEST, _INGEST + " --time time"),
    "likes.json": (_INGEST,),
    "sessions.txt": (_INGEST + " --format sessions", _INGEST + " --format sessions --sequence"),
    "lists.txt": (_INGEST, _INGEST + " --format adjacency"),
    "likes.dsstne": (
        _INGEST + " --format dsstne",
        "dsstne generateNetCDF -d gl -i {} -o out.nc -f out.f -s out.s -c",
    ),
    "titles.csv": ("data ingest likes.csv --out out --titles {}",),
    "users.csv": (
        "data ingest likes.csv --out out --users {} --sparse country=country --dense age=age --weight weight",
    ),
    "never.txt": ("predict run --data data --out out.csv -k 3 --device cpu --never {}",),
    "never-for.csv": ("predict run --data data --out out.jsonl -k 3 --device cpu --never-for {}",),
    "weights.csv": ("predict run --data data --out out.csv -k 3 --device cpu --weights {}",),
    "vectors.txt": (
        "knn search {} --queries vectors.txt",
        "knn search vectors.txt --queries {}",
    ),
}
"""Texts, and the commands that read them."""

BINARIES: dict[str, tuple[str, ...]] = {
    "likes.csv.gz": (_INGEST,),
    "likes.csv.zst": (_INGEST,),
    "likes.parquet": (_INGEST,),
    "likes.npz": (_INGEST,),
    "gl_input.nc": ("dsstne import-data {} --out out",),
    "run.nc": ("import {} --out out",),
    "vectors.npy": ("knn search {} --queries vectors.txt",),
}
"""Other files, and the commands that read them."""

DOCUMENTS: dict[str, tuple[str, ...]] = {
    "network.json": (
        "plan {} training.json --data data",
        "plan {} training.json --width items=1000 --device cpu",
    ),
    "training.json": ("plan network.json {} --data data",),
    "config.json": (
        "dsstne translate {} --out out",
        "plan {} training.json --width gl_input=9 --width gl_output=9 --device cpu",
    ),
}
TRAININGS: dict[str, tuple[str, ...]] = dict.fromkeys(
    ("network.json", "training.json"),
    ("train network.json training.json --data data --out out --quiet --device cpu",),
)
LINES = (
    _INGEST.format("likes.csv"),
    "data split data --out out --heldout 0.2 --seed 1",
    "data describe data --json",
    "data verify data",
    "data ingest likes.csv --out out --user user --item item --value rating --time time --duplicates last"
    " --min-user-items 2",
    "data ingest likes.csv --out out --columns user,item,rating,time",
    "schema network",
    "report run",
    "fingerprint run",
    "plan network.json training.json --width items=1000 --processes 2 --device-memory 1GB",
    "evaluate run --data data -k 3 --json",
    "recommend run --items 1 2 -k 3 --json",
    "recommend run --user u1 --data data",
    "knn like run 1 -k 2",
    "export run --out out.onnx",
    "predict run --data data --out out.csv -k 3 --part heldout",
    "knn search vectors.txt --queries vectors.txt -k 2 --measure l2",
    "import run.nc --out out",
    "dsstne translate config.json",
    "data ingest likes.npz --out out",
    "schema training",
    "dsstne predict -d gl -n run.nc -i features.txt -o features.txt -r likes.dsstne -f likes.dsstne -s out"
    " -k 2",
)
"""Command lines that succeed, for their words to be changed."""

# fmt: off
PLACES = (
    "/dev/zero", "/dev/full", "/dev/null", "/dev/stdin", "fifo", "loop", "sparse", ".", "nowhere",
    "/proc/self/mem", "/proc/self/fd/0", "unreadable",
)
# fmt: on
"""What is no ordinary file, in place of one."""


@dataclass(frozen=True)
class Case:
    """A command line, and the files of the world that are replaced."""

    kind: str
    words: list[str]
    files: dict[str, bytes]


def case(number: int, world: Path) -> Case:
    """Case `number` of all."""
    random = Random(f"case {number}")
    kind = random.choices(list(_KINDS), [share for share, _ in _KINDS.values()])[0]
    return _KINDS[kind][1](kind, random, world)


def _file(kind: str, random: Random, world: Path) -> Case:
    """A file with changes, and a command that reads it."""
    tables: dict[str, dict[str, tuple[str, ...]]] = {
        "texts": SOURCES,
        "other files": BINARIES,
        "documents": DOCUMENTS,
        "trainings": TRAININGS,
    }
    table = tables[kind]
    name = random.choice(list(table))
    content = (world / name).read_bytes()
    if kind == "other files":
        changed = changed_bytes(random, content)
    else:
        changed = (changed_text if kind == "texts" else changed_json)(random, content.decode())
    return Case(kind, random.choice(table[name]).format(name).split(), {name: changed})


def _folder(kind: str, random: Random, world: Path) -> Case:
    """A dataset or a run with one file changed."""
    folder, lines = ("data", _READERS) if kind == "datasets" else ("run", _RUN_READERS)
    paths = [
        path for path in (world / folder).rglob("*") if path.is_file() and "tensorboard" not in path.parts
    ]
    path = random.choice(sorted(paths))
    content = path.read_bytes()
    is_document = path.suffix == ".json" and random.random() < 0.7
    changed = changed_json(random, content.decode()) if is_document else changed_bytes(random, content)
    return Case(kind, random.choice(lines).split(), {str(path.relative_to(world)): changed})


def _words(kind: str, random: Random, world: Path) -> Case:
    del world
    return Case(kind, changed_words(random, random.choice(LINES).split()), {})


def _place(kind: str, random: Random, world: Path) -> Case:
    del world
    place = random.choice(PLACES)
    name, lines = random.choice(
        [*SOURCES.items(), *BINARIES.items(), *DOCUMENTS.items(), ("data", _READERS), ("run", _RUN_READERS)]
    )
    words = random.choice(lines).format(place).split()
    return Case(kind, [place if word == name else word for word in words], {})


_KINDS: dict[str, tuple[int, Callable[[str, Random, Path], Case]]] = {
    "texts": (30, _file),
    "other files": (25, _file),
    "documents": (12, _file),
    "trainings": (3, _file),
    "datasets": (8, _folder),
    "runs": (10, _folder),
    "command lines": (12, _words),
    "devices, pipes, folders": (6, _place),
}


def outcome(number: int, world: Path, folder: Path, forks: Forks) -> tuple[Case, Ended, list[str]]:
    """Run a case in a new folder: what it was, how it ended, and what is wrong with that."""
    found = case(number, world)
    folder.mkdir()
    _copy(world, folder, found)
    before = _listing(folder)
    ended = forks.run(found.words, folder)
    return found, ended, list(broken_rules(found, ended, before, folder))


@cache
def _contents(world: Path) -> tuple[list[str], list[str], list[str]]:
    """The folders of the datasets and the run, the files in them, and all else in the world."""
    folders, files = ["data", "run"], list[str]()
    for path in sorted(path for name in ("data", "run") for path in (world / name).rglob("*")):
        (folders if path.is_dir() else files).append(str(path.relative_to(world)))
    return folders, files, [path.name for path in world.iterdir() if path.name not in folders]


def _copy(world: Path, folder: Path, found: Case) -> None:
    """Links to the files of the world and to those of the datasets and the run, and what the case changes.

    Only a training writes into a file that exists; it gets copies.
    """
    folders, files, others = _contents(world)
    copy = shutil.copy2 if "train" in found.words else os.link
    for name in folders:
        (folder / name).mkdir()
    for name in files:
        copy(world / name, folder / name)
    for name in others:
        (folder / name).symlink_to("loop" if name == "loop" else world / name)
    (folder / "unreadable").mkdir(mode=0)
    for name, content in found.files.items():
        (folder / name).unlink()
        (folder / name).write_bytes(content)


def broken_rules(found: Case, ended: Ended, before: dict[str, object], folder: Path) -> Iterable[str]:
    """Yield every rule that the end of a case breaks. before: the listing of its folder when it began."""
    if ended.hung:
        yield "it hangs"
        return
    if ended.processor_seconds > PROCESSOR_SECONDS:
        yield f"it takes {ended.processor_seconds:.0f} seconds of the processor"
    if ended.status < 0:
        yield f"signal {-ended.status}"
    for sign in (
        "Traceback (most recent call last)",
        "Warning: ",
        "HDF5-DIAG",
        "terminate called",
        "Exception ignored",
    ):
        if sign in ended.err:
            yield f"{sign!r} on standard error"
    allowed = (0, 1, 2) if "plan" in found.words else (0, 2)
    if ended.status >= 0 and ended.status not in allowed:
        yield f"status {ended.status}"
    if ended.status == 2 and not ended.err.rstrip().rpartition("\n")[2].startswith("widenet"):
        yield "its last line is no sentence of widenet"
    after = _listing(folder)
    left = [name for name in after if _BESIDE.fullmatch(Path(name).name) and name not in before]
    if left:
        yield f"left behind: {left[:5]}"
    if ended.status == 2 and not _began(found, folder):
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        if changed:
            yield f"refused, and yet changed: {changed[:5]}"


_BESIDE = re.compile(r"\..+\.(old|[0-9a-f]+|[0-9a-f]+\.partial)")
"""How files and folders are called while they are written, before they get their names."""


def _began(found: Case, folder: Path) -> bool:
    """Whether the command was a training that had begun: its run then stays, to be gone on with or begun
    again.
    """
    return "train" in found.words and (
        (folder / "out" / "network.json").is_file() or "--resume" in found.words
    )


def _listing(folder: Path) -> dict[str, object]:
    """What is in a folder: sizes and times of files, by their paths."""
    found: dict[str, object] = {}
    within = [""]
    while within:
        beside = within.pop()
        with os.scandir(folder / beside) as entries:
            for entry in entries:
                name, facts = beside + entry.name, entry.stat(follow_symlinks=False)
                is_file = stat.S_ISREG(facts.st_mode)
                found[name] = (facts.st_size, facts.st_mtime_ns) if is_file else stat.S_IFMT(facts.st_mode)
                if stat.S_ISDIR(facts.st_mode):
                    within.append(f"{name}/")
    return found
