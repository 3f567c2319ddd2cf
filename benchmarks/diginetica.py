"""Trains presets, the default documents and plain PyTorch; prints P@20 and MRR@20 of the test cases."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import changes
from benchmarks.commands import measured, widenet
from benchmarks.neighbourhoods import count_term
from benchmarks.places import DATA, ROOT, presets, workplace
from benchmarks.usual import default_documents
from widenet import Dataset, Model, ingest
from widenet.data.manifest import Part
from widenet.plan.machine import available_threads
from widenet.runs.neighbourhood import set_terms, words_of
from widenet.spec.layers import Neighbourhood as Term

SESSIONS = DATA / "diginetica" / "train_sessions.plain.txt"
_CASES = DATA / "diginetica" / "test_prefix_target.plain.txt"
_PUBLISHED = [
    ("SR-GNN (AAAI 2019)", 50.73, 17.59),
    ("DGTN (ICDMW 2020)", 53.05, 18.07),
    ("GCE-GNN (SIGIR 2020)", 54.22, 19.04),
]
_DEFAULT, _PADDED = "default", "PyTorch"
_Numbers = tuple[float, ...]
PLACES: changes.Places = {
    "last": (0, "layers", 0, "last"),
    "units": (0, "layers", 1, "units"),
    "state": (0, "layers", 2),
    "dropout": (0, "layers", 1, "dropout"),
    "deviation": (0, "layers", 1, "initializer", "deviation"),
    "state_dropout": (0, "layers", 2, "dropout"),
    "state_deviation": (0, "layers", 2, "initializer", "deviation"),
    "heads": (0, "layers", 2, "heads"),
    "cosine": (0, "layers", 3, "cosine"),
    "temperature": (0, "layers", 3, "cosine", "temperature"),
    "sample": (0, "layers", 3, "sample", "units"),
    "neighbourhood": (0, "layers", 3, "neighbourhood"),
    "weight": (0, "layers", 3, "neighbourhood", "weight"),
    **changes.TRAINING,
}
_VALIDATION = 10_000
"""Newest training sessions of which a validation asks every beginning; they are not trained on."""


def options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this benchmark."""
    names = [*presets("diginetica"), _DEFAULT, _PADDED]
    parser.add_argument("--models", nargs="+", choices=names, default=names, help="what to train")
    parser.add_argument("--epochs", type=int, help="epochs of each; default: as the documents say")
    parser.add_argument("--validation", action="store_true", help="rank for training sessions set aside")
    parser.add_argument(
        "--repeats",
        nargs="+",
        action="extend",
        type=_numbers,
        default=[],
        help="also rank with these repeats in place of the document's, such as none, 0,4,2 or =-1,4,2",
    )
    parser.add_argument(
        "--terms",
        nargs="+",
        action="extend",
        type=_term,
        default=[],
        help="also rank with these terms: none, or weight,floor,neighbours[,popularity][,order]",
    )
    parser.add_argument("--sessions", type=int, default=0, help="train on the newest only; default: on all")
    parser.add_argument(
        "--smoothing", type=float, nargs="+", default=[0.0], help="label smoothing of PyTorch"
    )
    changes.add_option(parser, PLACES)


def run(arguments: argparse.Namespace) -> None:
    """Print a row for each model, and the published ones."""
    if arguments.changes and _PADDED in arguments.models:
        raise SystemExit(f"--changes are of widenet's documents. Leave {_PADDED} out of --models.")
    with workplace() as folder:
        cases = prepare(folder, arguments.sessions, arguments.validation)
        of_part = "validation" if arguments.validation else "test"
        print(f"\nDiginetica, all items ranked, mean over {len(cases):,} {of_part} cases, percent")
        print(f"The next click is {_repeated(cases)}.\n")
        print("| model | P@20 | MRR@20 | newest first | epochs | seconds an epoch | peak GB |")
        print("|---|---|---|---|---|---|---|")
        for name in arguments.models:
            network, training = _documents(name, folder)
            training["epochs"] = arguments.epochs or training["epochs"]
            if name == _PADDED:
                _write(folder, network, training)
                for smoothing in arguments.smoothing:
                    print(_padded(name, folder, smoothing), flush=True)
                continue
            for number, change in enumerate([{}, *arguments.changes]):
                changed = deepcopy((network, training))
                changes.apply(change, changed, PLACES)
                _write(folder, *changed)
                shown = f"{name}, {changes.shown(change)}" if change else name
                run = folder / f"{name}{number}"
                print(_widenet(shown, run), flush=True)
                _print_rankings(shown, Model.load(run), folder, arguments)
        for name, precision, reciprocal in () if arguments.validation else _PUBLISHED:
            print(f"| {name} | {precision:.2f} | {reciprocal:.2f} | - | - | - | - |")


def _documents(name: str, folder: Path) -> changes.Documents:
    """Return the documents of a model; PyTorch has those of the preset "full"."""
    if name != _DEFAULT:
        paths = presets("diginetica")["full" if name == _PADDED else name]
        network, training = (json.loads(path.read_text("utf-8")) for path in paths)
        return network, training
    return default_documents(Dataset.open(folder / "train"))


def _write(folder: Path, network: dict[str, Any], training: dict[str, Any]) -> None:
    """Write the documents of the next training."""
    for name, document in (("network.json", network), ("training.json", training)):
        (folder / name).write_text(json.dumps(document), "utf-8")


def _numbers(text: str) -> _Numbers | None:
    return None if text == "none" else tuple(map(float, text.split(",")))


def _term(text: str) -> Term | None:
    numbers, order = text.removesuffix(",order"), text.endswith(",order")
    settings = _numbers(numbers)
    if settings is None and not order:
        return None
    if settings is None or len(settings) not in (3, 4):
        rule = "must be none, or weight,floor,neighbours[,popularity][,order]"
        raise argparse.ArgumentTypeError(f"{rule}; got {text!r}")
    if min(settings[:3]) <= 0:
        raise argparse.ArgumentTypeError(f"must be numbers above 0; got {text!r}")
    weight, floor, neighbours, popularity = *settings, *([0.0] * (4 - len(settings)))
    kept = {"weight": weight, "floor": floor, "neighbours": int(neighbours), "popularity": popularity}
    return Term.model_validate({**kept, "order": "use" if order else "ignore"})


def _print_rankings(name: str, model: Model, folder: Path, asked: argparse.Namespace) -> None:
    """Print a row for each other "repeats" and each other "neighbourhood" of a trained model's output."""
    [output] = model.network.outputs.values()
    repeats = output.spec.repeats

    def show(setting: str) -> None:
        cells = _ranked(model, folder)
        print(f"| widenet, {name}, {setting} | {cells} | - | - | - |", flush=True)

    for numbers in asked.repeats:
        set_terms(model.network, output.spec.name, repeats=numbers)
        show("repeats none" if numbers is None else f"repeats {', '.join(f'{each:g}' for each in numbers)}")
    set_terms(model.network, output.spec.name, repeats=repeats)
    for other in asked.terms:
        count_term(model.network, Dataset.open(folder / "train"), other)
        show("term none" if other is None else words_of(other))


def prepare(folder: Path, num_sessions: int, is_validation: bool) -> list[tuple[list[str], str]]:
    """Make the datasets "train", "test" and "newest" in a folder.

    They have sessions, cases with the clicks so far, and the same cases as if the newest item came again.

    Args:
        folder: The folder.
        num_sessions: How many of the newest sessions to train on; 0: all. The items are always those of all.
        is_validation: Whether the cases are beginnings of training sessions set aside.

    Returns:
        The cases: the clicks so far, and the next.
    """
    ingest([SESSIONS], folder / "all", format="sessions", sequence=True)
    sessions = SESSIONS.read_text("utf-8").splitlines()
    lines = (line.split("\t") for line in _CASES.read_text("utf-8").splitlines())
    cases = [(before.split(), following) for before, following in lines]
    if is_validation:
        aside = [line.split() for line in sessions[-_VALIDATION:]]
        sessions = sessions[:-_VALIDATION]
        cases = [(row[:end], row[end]) for row in aside for end in range(1, len(row))]
    make = partial(ingest, format="adjacency", sequence=True, vocabulary=folder / "all")
    make([_written(folder / "sessions.txt", sessions[-num_sessions:])], folder / "train")
    prefixes = _written(folder / "prefixes.txt", [" ".join(before) for before, _ in cases])
    for name, targets in {
        "test": [following for _, following in cases],
        "newest": [before[-1] for before, _ in cases],
    }.items():
        make([prefixes], folder / name, heldout=_written(folder / f"{name}.txt", targets))
    return cases


def _repeated(cases: Sequence[tuple[list[str], str]]) -> str:
    """Return in how many of the cases the next click is an item that the session has already."""
    newest = sum(before[-1] == following for before, following in cases)
    older = sum(following in before for before, following in cases) - newest
    shares = [f"{100 * count / len(cases):.1f} %" for count in (newest, older)]
    return f"the newest item again in {shares[0]} of the cases, and an older one in {shares[1]}"


def _written(path: Path, rows: Sequence[str]) -> Path:
    path.write_text("".join(f"{number} {row}\n" for number, row in enumerate(rows)), "utf-8")
    return path


def _widenet(name: str, run: Path) -> str:
    """Train with the command line, and return the row."""
    folder = run.parent
    ran = measured(
        widenet("train", "network.json", "training.json", "--data", "train", "--out", run, "--quiet"), folder
    )
    records = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    ranked = _ranked(Model.load(run), folder)
    return _row(f"widenet, {name}", ranked, [record["seconds"] for record in records], ran.peak_bytes)


def _padded(name: str, folder: Path, smoothing: float) -> str:
    """Train the network of plain PyTorch in a process of its own, and return its row."""
    train, test = Dataset.open(folder / "train"), Dataset.open(folder / "test")
    cases = {
        "width": train.field("items").width,
        "sessions": _rows(train, "train"),
        "prefixes": _rows(test, "train"),
        "targets": [target for (target,) in _rows(test, "heldout")],
    }
    (folder / "cases.json").write_text(json.dumps(cases), "utf-8")
    paths = [folder / f"{name}.json" for name in ("network", "training", "cases", "figures")]
    program = [sys.executable, "-m", "benchmarks.padded_sessions", *map(str, paths)]
    ran = measured([*program, str(available_threads()), str(smoothing)], ROOT)
    figures = json.loads((folder / "figures.json").read_text("utf-8"))
    smooth = f", label smoothing {smoothing:g}" if smoothing else ""
    return _row(
        f"{name}, padded, same widths{smooth}", f"{_cells(figures)} | -", figures["seconds"], ran.peak_bytes
    )


def _rows(dataset: Dataset, part: Part) -> list[list[int]]:
    found = dataset.sparse("items", slice(0, dataset.num_examples), part)
    indices, ends = found.indices.tolist(), found.indptr.tolist()
    return [indices[start:stop] for start, stop in pairwise(ends)]


def _row(name: str, ranked: str, seconds: Sequence[float], peak_bytes: int) -> str:
    cost = f"{len(seconds)} | {sum(seconds) / len(seconds):.0f} | {peak_bytes / 1e9:.2f}"
    return f"| {name} | {ranked} | {cost} |"


def _ranked(model: Model, folder: Path) -> str:
    """Return the metrics of a model, and in how many cases it ranks the newest item first."""
    metrics = model.evaluate(folder / "test", ks=(20,), exclude_seen=False)
    newest = model.evaluate(folder / "newest", ks=(1,), exclude_seen=False)
    return f"{_cells(metrics)} | {100 * newest['recall@1']:.1f}"


def _cells(metrics: Mapping[str, Any]) -> str:
    return f"{100 * metrics['recall@20']:.2f} | {100 * metrics['mrr@20']:.2f}"
