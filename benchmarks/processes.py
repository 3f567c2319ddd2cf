"""One training on Gowalla by 1, 2 and 4 processes: the fingerprints, and the seconds of an epoch."""

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.places import DATA, EXAMPLES, workplace
from widenet import ingest

UNITS, EPOCHS = 64, 1


def run() -> None:
    """Print a line for each number of processes; each is a real `widenet train --processes N`."""
    with workplace() as folder:
        ingest([DATA / "gowalla" / "train.txt"], folder / "data", format="adjacency")
        network, training = (
            json.loads((EXAMPLES / "gowalla" / name).read_text())
            for name in ("network.json", "training.json")
        )
        network["layers"][1]["units"], training["epochs"] = UNITS, EPOCHS
        (folder / "network.json").write_text(json.dumps(network))
        (folder / "training.json").write_text(json.dumps(training))
        print(f"\nGowalla, {UNITS} hidden units, {EPOCHS} epoch, all processors shared by the processes\n")
        print("| processes | seconds an epoch | fingerprint |\n|---|---|---|")
        for number in (1, 2, 4):
            _widenet(
                folder,
                "train",
                "network.json",
                "training.json",
                "--data",
                "data",
                "--out",
                f"{number}",
                "--processes",
                f"{number}",
            )
            seconds = json.loads((folder / f"{number}" / "log.jsonl").read_text().splitlines()[-1])["seconds"]
            print(
                f"| {number} | {seconds:.1f} | {_widenet(folder, 'fingerprint', f'{number}')} |", flush=True
            )


def _widenet(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "widenet", *arguments]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
