"""Searches Gowalla by `widenet.tune` with a worker that is killed, beside a whole grid."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.places import DATA, workplace
from widenet import Dataset, ingest, split, tune
from widenet.tuning.results import StudyReport, StudyResult, TrialResult
from widenet.tuning.study import DATABASE

_OTHERS = 8
"""Settings for each learning rate: two each of denoising, popularity damping and temperature."""
_RATES = (0.02, 0.01, 0.04, 0.005)
_JOINS_AT, _KILLED_AT = 2, 4
_CHOSEN = ("learning_rate", "denoise", "popularity_damping", "temperature")
_COLUMNS = ("search", "epochs", "share", "seconds", "best NDCG@20", "below the grid's", ", ".join(_CHOSEN))


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this measurement."""
    parser.add_argument("--settings", type=int, choices=(8, 16, 32), default=32, help="size of the grid")
    parser.add_argument("--epochs", type=int, default=27, help="epochs of a whole training")
    parser.add_argument("--units", type=int, default=64, help="units of the hidden layer")
    parser.add_argument(
        "--users", type=int, default=29_858, help="number of users, the first ones of the file"
    )
    parser.add_argument(
        "--folder", type=Path, help="keep the studies here; a second run with it resumes what was cut short"
    )


def run(asked: argparse.Namespace) -> None:
    """Print epochs, seconds and best metric of a whole grid, and of a search with a killed worker."""
    with workplace() as temporary:
        folder = temporary if asked.folder is None else asked.folder
        data = _dataset(folder, asked.users)
        space = _space(asked)
        print(
            f"Gowalla, {data.num_examples:,} users, {data.field('items').width:,} items, {asked.units} units,"
            f" {asked.settings} settings of {asked.epochs} epochs, NDCG@20 on a fifth of each user's items\n"
        )
        print(f"| {' | '.join(_COLUMNS)} |\n{'|---' * len(_COLUMNS)}|")

        def study(name: str, **words: Any) -> tuple[StudyResult, str]:
            out, started = folder / name, time.perf_counter()
            resumed = (out / DATABASE).exists()
            result = tune(space, data, out, trials=asked.settings, resume=resumed, **words)
            return result, "resumed" if resumed else f"{time.perf_counter() - started:.0f}"

        (folder / "space.json").write_text(json.dumps(space))
        words = [
            "tune",
            str(folder / "space.json"),
            "--data",
            str(data.path),
            "--out",
            str(folder / "search"),
        ]
        words += ["--trials", str(asked.settings), "--resume", "--quiet"]
        killer = _Killer([sys.executable, "-m", "widenet", *words])
        grid = _row("whole grid", None, *study("grid", rungs=1))
        found = _row("three rungs", grid, *study("search", report=killer))
        print(f"\nthree rungs: {_checked(found, grid)}")
        print(f"one worker was killed; trials counted twice: {killer.repeated}")


def _dataset(folder: Path, num_users: int) -> Dataset:
    """Make a dataset of the first users; a fifth of each user's items is the validation part."""
    if (folder / "data").exists():
        dataset = Dataset.open(folder / "data")
        if dataset.num_examples != num_users:
            raise SystemExit(f"{folder} has studies of {dataset.num_examples:,} users; name another --folder")
        return dataset
    folder.mkdir(parents=True, exist_ok=True)
    with (DATA / "gowalla" / "train.txt").open() as file:
        lines = [line for line, _ in zip(file, range(num_users), strict=False)]
    (folder / "train.txt").write_text("".join(lines))
    ingest([folder / "train.txt"], folder / "whole", format="adjacency")
    return split(folder / "whole", folder / "data", validation=0.2)


def _space(asked: argparse.Namespace) -> dict[str, Any]:
    history = {"name": "history", "kind": "input", "field": "items"}
    taste = {"name": "taste", "units": asked.units, "activation": "linear", "bias": False}
    output = {"name": "next", "kind": "output", "field": "items"}
    layers = [
        {**history, "denoise": {"from": [0.4, 0.2]}, "popularity_damping": {"from": [0.5, 0.0]}},
        {**taste, "initializer": {"kind": "gaussian", "deviation": 0.1}},
        {
            **output,
            "loss": {"kind": "cross_entropy", "targets": "sum"},
            "cosine": {"temperature": {"from": [0.1, 0.2]}},
            "weights": {"layer": "taste", "transposed": True},
        },
    ]
    rates = list(_RATES[: asked.settings // _OTHERS])
    training = {
        "epochs": asked.epochs,
        "optimizer": {"kind": "adam", "learning_rate": {"from": rates} if len(rates) > 1 else rates[0]},
        "schedule": "cosine",
        "evaluation": {"metric": "ndcg@20"},
        "keep": "best",
    }
    return {"network": {"layers": layers}, "training": training}


def _row(name: str, grid: StudyResult | None, result: StudyResult, seconds: str) -> StudyResult:
    best = result.best
    assert best is not None
    assert best.value is not None
    most = best.value if grid is None or grid.best is None or grid.best.value is None else grid.best.value
    values = {place.rpartition(".")[2]: value for place, value in best.choices.items()}
    chosen = [values.get(name, "fixed") for name in _CHOSEN]
    print(
        f"| {name} | {result.total_epochs:,} | {result.share_of_epochs:.1%} | {seconds} |"
        f" {best.value:.5f} |"
        f" {1 - best.value / most:.2%} | {', '.join(map(str, chosen))} |",
        flush=True,
    )
    return result


def _checked(result: StudyResult, grid: StudyResult) -> str:
    """Say whether all settings were tried once, and finished ones have the grid's fingerprints."""
    whole = {str(sorted(trial.choices.items())): trial.fingerprint for trial in grid.trials}
    tried = [str(sorted(trial.choices.items())) for trial in result.trials]
    ended = [trial for trial in result.trials if trial.fingerprint is not None]
    same = sum(whole[str(sorted(trial.choices.items()))] == trial.fingerprint for trial in ended)
    states = [trial.state for trial in result.trials]
    return (
        f"{len(set(tried))} of {len(whole)} settings tried, {len(tried) - len(set(tried))} twice;"
        f" {len(ended)} finished, {same} of them with the fingerprint of the grid's uninterrupted training;"
        f" {states.count('stopped')} stopped at a rung, {states.count('failed')} failed"
    )


class _Killer(StudyReport):
    """Starts a second worker when the second trial begins, and kills it at the fourth.

    Args:
        command: The command of the second worker.
    """

    def __init__(self, command: list[str]) -> None:
        self.command, self.repeated = command, 0
        self.begun: list[int] = []
        self.ended: set[int] = set()
        self.worker: subprocess.Popen[bytes] | None = None

    def begin(self, trial: int) -> None:
        """Start or kill the worker."""
        self.begun.append(trial)
        if len(self.begun) == _JOINS_AT:
            self.worker = subprocess.Popen(self.command)
        if len(self.begun) == _KILLED_AT and self.worker is not None:
            self.worker.kill()
            self.worker.wait()

    def end(self, trial: TrialResult) -> None:
        """Count what ends twice."""
        self.repeated += trial.number in self.ended
        self.ended.add(trial.number)
