"""Kills processes of trainings at random moments; checks that the others end and that bits stay the same."""

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from benchmarks.places import ROOT, workplace
from widenet import dataset_from_lists, train

WIDTH, EXAMPLES = 10_000, 128
NETWORK = {
    "layers": [
        {"name": "history", "kind": "input", "field": "items", "denoise": 0.3},
        {"name": "taste", "units": 32, "activation": "tanh", "dropout": 0.3},
        {"name": "next", "kind": "output", "field": "items"},
    ]
}
TRAINING = {
    "batch_size": 32,
    "shards": 4,
    "optimizer": "momentum",
    "evaluation": {"metric": "ndcg@20", "every_epochs": 5},
    "keep": "best",
    "checkpoints": {"every_epochs": 2, "min_seconds": 0, "every_steps": 3},
}


class Launcher(NamedTuple):
    """A launcher with its number of processes and restarts.

    `module` is the command, empty for widenet's; `words` are options of `widenet train`.
    """

    processes: int
    restarts: int
    module: list[str]
    words: tuple[str, ...] = ()


LAUNCHERS = {
    "widenet train --processes 2": Launcher(2, 0, []),
    "widenet train --processes 4": Launcher(4, 0, []),
    "widenet train --processes 2 --weights-in disk": Launcher(2, 0, [], ("--weights-in", "disk")),
    "torchrun --max-restarts 3": Launcher(
        2, 3, ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=3", "-m"]
    ),
}
TRAININGS, KILLS = (
    2,
    {
        "widenet train --processes 2": 11,
        "widenet train --processes 4": 5,
        "widenet train --processes 2 --weights-in disk": 6,
        "torchrun --max-restarts 3": 10,
    },
)
"""Trainings of each launcher, and the kills in each."""

LIMIT_SECONDS = 30
"""Limit for processes to end after another one was killed."""
_PATIENCE_SECONDS, _LOOK_SECONDS = 120, 0.002


def run() -> None:
    """Print for every launcher the kills, how long others lived on, and whether bits are the same."""
    print(
        "\n| started by | trainings | kills | of the launcher | during a checkpoint | seconds until all had"
        " ended, at most | same bits |"
    )
    print("|---|---|---|---|---|---|---|")
    with workplace() as folder:
        expected = prepare(folder, epochs=40)
        for launcher, kills in KILLS.items():
            tallies = [disturbed(folder, launcher, kills, seed) for seed in range(TRAININGS)]
            killed = sum(tally.kills for tally in tallies)
            of_launcher, saving = (
                sum(tally.of_launcher for tally in tallies),
                sum(tally.saving for tally in tallies),
            )
            longest = max(tally.longest_seconds for tally in tallies)
            same = [tally.fingerprint for tally in tallies].count(expected)
            print(
                f"| {launcher} | {TRAININGS} | {killed} | {of_launcher} | {saving} | {longest:.1f} | {same}"
                f" of {TRAININGS} |",
                flush=True,
            )


def prepare(folder: Path, epochs: int) -> str:
    """Write documents and dataset, and return the fingerprint of an undisturbed training in one process."""
    write(folder, epochs)
    return train(
        folder / "network.json", folder / "training.json", folder / "data", folder / "undisturbed"
    ).fingerprint()


def write(folder: Path, epochs: int) -> None:
    """Write the documents and a dataset."""
    chance = random.Random(0)
    rows = [sorted({int(WIDTH * chance.random() ** 2) for _ in range(10)}) for _ in range(EXAMPLES)]
    dataset_from_lists(
        folder / "data", [row[1:] for row in rows], validation=[row[:1] for row in rows], width=WIDTH
    )
    (folder / "network.json").write_text(json.dumps(NETWORK))
    (folder / "training.json").write_text(json.dumps({**TRAINING, "epochs": epochs}))


@dataclass
class Tally:
    """Counts of a training: kills, kills of the launcher, and kills while a checkpoint was written."""

    kills: int = 0
    of_launcher: int = 0
    saving: int = 0
    longest_seconds: float = 0.0
    fingerprint: str | None = None


def disturbed(folder: Path, launcher: str, kills: int, seed: int) -> Tally:
    """Run a training, kill processes one at a time, and let torchrun or `--resume` continue it each time.

    Raises:
        AssertionError: A process outlives the killed one by LIMIT_SECONDS, the training does not continue, or
            no message names the killed process. torchrun may name a process that ended because of it, whose
            message must then name it.
    """
    chance, tally = random.Random(f"{launcher} {seed}"), Tally()
    while tally.kills < kills or tally.fingerprint is None:
        with started(folder, launcher, out=f"{launcher} {seed}") as command:
            while tally.kills < kills and (workers := command.workers()):
                _kill_one(command, workers, chance, tally)
            tally.fingerprint = command.end()
    return tally


def _kill_one(command: "Command", workers: dict[int, int], chance: random.Random, tally: Tally) -> None:
    """Kill a random process at a random moment: at the start, after some epochs, or in a checkpoint.

    Does nothing if the processes end first.
    """
    moment = chance.choice(("start", "training", "saving", "saving"))
    epochs, delay_seconds = command.epochs() + chance.randrange(1, 6), chance.random()
    victim = chance.choice([None, *workers, *workers])
    if moment == "start":
        command.comes_true(lambda: False, 2 * delay_seconds)
    elif not command.comes_true(lambda: command.epochs() >= epochs):
        return
    elif moment == "training":
        command.comes_true(lambda: False, 0.1 * delay_seconds)
    elif not command.comes_true(command.is_saving):
        return
    since = time.monotonic()
    if not command.kill(victim, workers):
        return
    tally.kills += 1
    tally.of_launcher += victim is None
    tally.saving += moment != "start" and command.is_saving()
    command.wait_for_others(victim, workers, since + LIMIT_SECONDS)
    tally.longest_seconds = max(tally.longest_seconds, time.monotonic() - since)


@contextmanager
def started(folder: Path, launcher: str, out: str) -> Iterator["Command"]:
    """A training that was started: a new one, or an earlier one that resumes.

    Nothing of it is left running.
    """
    size, _, module, options = LAUNCHERS[launcher]
    words = ["widenet", "train", "network.json", "training.json", "--data", "data", "--out", out, *options]
    words += [] if module else ["--processes", str(size)]
    words += ["--resume"] if (folder / out / "network.json").exists() else []
    environment = {name: value for name, value in os.environ.items() if name != "WIDENET_THREADS"} | {
        "PYTHONPATH": str(ROOT)
    }
    with (folder / "said").open("wb") as said, (folder / "complained").open("wb") as complained:
        process = subprocess.Popen(
            [sys.executable, "-m", *module, *words],
            cwd=folder,
            env=environment,
            stdout=said,
            stderr=complained,
        )
        try:
            yield Command(process, folder, folder / out, LAUNCHERS[launcher])
        finally:
            process.kill()
            process.wait()


class Command:
    """A training that runs, in processes that can be killed."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path, out: Path, launcher: Launcher) -> None:
        self.process, self.folder, self.out, self.restarts, self.launcher = (
            process,
            folder,
            out,
            launcher.restarts,
            launcher,
        )
        self.root, self.ends, self.lost = os.pidfd_open(process.pid), False, list[str]()

    def complained(self) -> str:
        """Return the standard error of the processes so far."""
        return (self.folder / "complained").read_text()

    def epochs(self) -> int:
        """Return the number of epochs that have ended since the command was started."""
        return len(re.findall(r"^epoch ", self.complained(), re.MULTILINE))

    def is_saving(self) -> bool:
        """Return whether a checkpoint or the best weights are being written."""
        found = [*self.out.glob(".best.*"), *(self.out / "checkpoints").glob(".epoch-*")]
        return any(path.suffix != ".old" for path in found)

    def comes_true(self, condition: Callable[[], bool], seconds: float | None = None) -> bool:
        """Wait for a condition up to a limit; return whether it came true before the command ended."""
        deadline = time.monotonic() + (_PATIENCE_SECONDS if seconds is None else seconds)
        while not condition():
            if select.select([self.root], [], [], _LOOK_SECONDS)[0]:
                return False
            if time.monotonic() > deadline:
                assert seconds is not None, f"nothing happens:\n{self.complained()}"
                return False
        return True

    def workers(self) -> dict[int, int]:
        """Wait for all processes of the group; descriptors by rank, empty if the command has ended."""
        if not self.comes_true(lambda: len(_children(self.process.pid)) == self.launcher.processes):
            return {}
        return {rank: os.pidfd_open(pid) for rank, pid in _children(self.process.pid).items()}

    def kill(self, victim: int | None, workers: dict[int, int]) -> bool:
        """Kill a process of the group, or the launcher for None; False if it has ended already."""
        killed = self.root if victim is None else workers[victim]
        if select.select([killed], [], [], 0)[0]:
            return False
        signal.pidfd_send_signal(killed, signal.SIGKILL)
        self.ends = victim is None or self.restarts == 0
        self.restarts -= not self.ends
        if victim is not None:
            own = rf"process {victim} of {self.launcher.processes} was lost \(signal SIGKILL\)"
            by_torchrun = rf"exitcode: -9\) local_rank: {victim} |another process of the group was lost"
            self.lost.append(by_torchrun if self.launcher.module else own)
        return True

    def wait_for_others(self, victim: int | None, workers: dict[int, int], deadline: float) -> None:
        """Wait for the other processes to end; the launcher may go on where it is to start them again."""
        for process in [*workers.values(), *([self.root] if self.ends else [])]:
            ended, _, _ = select.select([process], [], [], max(0.0, deadline - time.monotonic()))
            assert ended, (
                "a process lives on after"
                f" {'the launcher' if victim is None else victim}:\n{self.complained()}"
            )

    def end(self) -> str | None:
        """Return the fingerprint of the finished training; None if a kill has ended the command."""
        status = self.process.wait(_PATIENCE_SECONDS)
        assert self.ends or status == 0, f"status {status}:\n{self.complained()}"
        for message in self.lost:
            assert re.search(message, self.complained()), f"no {message} in:\n{self.complained()}"
        found = re.search(r"Fingerprint (\w+)", (self.folder / "said").read_text())
        return found and found[1]


def _children(pid: int) -> dict[int, int]:
    """Return the process ids of a process's children in a group, by rank."""
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with suppress(OSError):
            rank = re.search(rb"\0RANK=(\d+)\0", b"\0" + Path(f"/proc/{child}/environ").read_bytes())
            if rank:
                found[int(rank[1])] = int(child)
    return found
