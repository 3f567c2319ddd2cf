"""Whether this working tree trains, recommends, measures and ingests to the same bits as an old commit.

`python -m tests.same` runs the small form, `--whole` all of it; beginnings of names run these cases alone.
"""

import argparse
import copy
import hashlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import islice, zip_longest
from pathlib import Path

from tests.same.cases import DATASETS, TRAININGS, Training
from tests.same.differences import DIFFERENCES, OLD, REMOVED_FIELDS, REMOVED_TRAININGS
from tests.same.sides import KEPT, ROOT, NoComparisonError, Side, old_side
from tests.same.sources import write_sources

SHARED = Path(os.environ.get("WIDENET_DATA", ROOT.parent / "shared" / "data"))
EPOCHS, LONG = 6, 40
"""Epochs at least of a training that is interrupted, and those of a golden one."""
ASKED = 1000
"""Recommendations of each training, at least."""
FIRST = "first"
"""Label of the run of the first training that others begin with, each on its side."""
ASKED_OF = {"points": "test-points", "all-sets": "sets"}
"""The datasets that are asked in place of those without a part that is set aside."""


class Guard:
    """Runs cases on both sides; what the old side gives is kept."""

    def __init__(self, old, new, drawn, is_whole):
        self.old, self.new, self.drawn, self.is_whole = old, new, drawn, is_whole

    def give(self, case):
        """The outputs of a case on the old side."""
        kept = self.old.work / "outputs" / f"{_folder(case)}.json"
        if not kept.exists():
            outputs = self._outputs(case, self.old)
            failed = [name for name, text in outputs.items() if name.startswith("status") and text != "0"]
            if failed and isinstance(case, Training):
                raise NoComparisonError(f"{case.name}: {failed[0]} of the old side is {outputs[failed[0]]}")
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(json.dumps(outputs))
        return json.loads(kept.read_text())

    def compare(self, case):
        """Print what differs in a case; returns whether anything does."""
        began, expected = time.monotonic(), self.give(case)
        lines = _compared(case, "", expected, self._outputs(case, self.new))
        if isinstance(case, Training):
            for number in case.processes[1:]:
                found = self.train(case, self.new, f"{number} processes", ["--processes", str(number)])
                lines += _compared(case, f", {number} processes", expected, found)
            if case.is_interrupted:
                lines += _compared(case, ", interrupted", expected, self._interrupted(case))
            for path in (
                ()
                if lines or case.name == TRAININGS[0].name
                else (self.new.work / "runs").glob(f"{_folder(case)}[.@]*")
            ):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        print("\n".join(lines) or f"{_name(case)}: the same, {time.monotonic() - began:.0f} s", flush=True)
        return bool(lines)

    def _outputs(self, case, side):
        return self.train(case, side) if isinstance(case, Training) else self._dataset(case, side)

    def _dataset(self, case, side):
        """Exit statuses of the commands, and digests of all files of the datasets."""
        outputs = {}
        for text in case[1].split(";"):
            words = shlex.split(text.format(drawn=self.drawn, shared=SHARED))
            words = [_beginning(word, self.drawn) if "@" in word else word for word in words]
            names = [words[place + 1] for place, word in enumerate(words) if word in ("--out", "--test-out")]
            for name in names:
                shutil.rmtree(side.work / name, ignore_errors=True)
            words = words if words[0] == "dsstne" else ["data", *words]
            outputs[f"status of {text}"] = str(side.run(words, side.work / f"{names[0]}.printed"))
            for path in sorted(path for name in names for path in (side.work / name).rglob("*")):
                outputs[str(path.relative_to(side.work))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return outputs

    def train(self, case, side, label="", several=()):
        """Fingerprint, recommendations with scores, and metrics of a training, and what comes after it."""
        run, words = self._begin(case, side, label)
        status = side.run([*words, *several], f"{run}.train")
        return self._asked(case, side, run, status, several if self.is_whole else ())

    def _interrupted(self, case):
        """The same of one that is stopped after its first checkpoint, killed after the next, and resumed."""
        run, words = self._begin(case, self.new, "interrupted")
        latest = run / "checkpoints" / "latest"
        if self.new.stop(signal.SIGTERM, words, f"{run}.train", latest.is_file) != 130:
            return {"status of train": "not 130: it ended before the signal"}
        known = latest.read_text()
        words = ["train", "--data", self.old.work / case.data, "--out", run, "--quiet", "--resume"]
        self.new.stop(signal.SIGKILL, words, f"{run}.train", lambda: latest.read_text() != known)
        return self._asked(case, self.new, run, self.new.run(words, f"{run}.train"))

    def _begin(self, case, side, label):
        """A new run directory, and the command that trains it on the old side's dataset."""
        run = side.work / "runs" / f"{_folder(case)}@{label.replace(' ', '-')}"
        for path in run, Path(f"{run}-8"):
            shutil.rmtree(path, ignore_errors=True)
        run.parent.mkdir(exist_ok=True)
        paths = []
        for kind, document in _documents(case, self.old.tree).items():
            paths.append(Path(f"{run}.{kind}.json"))
            paths[-1].write_text(json.dumps(document, indent=1))
        options = shlex.split(case.options.format(demo=side.work / "runs" / f"demo@{FIRST}"))
        return run, ["train", *paths, "--data", self.old.work / case.data, "--out", run, "--quiet", *options]

    def _asked(self, case, side, run, status, several=()):
        """The outputs of a run, as far as its commands end well."""
        found = {"status of train": str(status)}
        if status:
            return found
        data = self.old.work / ASKED_OF.get(case.data, case.data)
        facts = json.loads((data / "dataset.json").read_text())
        part = "heldout" if "heldout" in json.dumps(facts["fields"]) else "validation"
        layers = json.loads((run / "network.json").read_text()).get("layers", ())
        outputs = [layer["name"] for layer in layers if layer.get("kind") == "output"]
        asked = [
            "--data",
            data,
            "--part",
            part,
            *(["--output", outputs[0]] if len(outputs) > 1 else []),
            *several,
        ]
        number, listed = -(-ASKED // facts["num_examples"]), Path(f"{run}.csv")
        commands = {
            "fingerprint": ["fingerprint", run],
            "evaluate": ["evaluate", run, *asked, *shlex.split(case.evaluate), "--json"],
            "predict": ["predict", run, *asked, "-k", max(5, number), "--out", listed, "--overwrite"],
        } | {text: shlex.split(text.format(run=run)) for text in case.then}
        for name, words in commands.items():
            printed = Path(f"{run}.{name.split()[0]}")
            found[f"status of {name}"] = str(side.run(words, printed))
            text = (listed if name == "predict" else printed).read_text()
            found[name] = text.replace(str(run), "RUN")
        return found


def _name(case):
    return case.name if isinstance(case, Training) else f"data {case[0]}"


def _folder(case):
    return re.sub(r"\W+", "-", _name(case))


def _beginning(word, folder):
    """The path of a new file with the first lines of another."""
    path, number = word.rsplit("@", 1)
    made = folder / f"{number}-lines-{Path(path).parent.name}-{Path(path).name}"
    if not made.exists():
        with Path(path).open() as file:
            made.write_text("".join(islice(file, int(number))))
    return str(made)


def _documents(case, tree):
    """The documents of a case, changed and without removed fields; none for defaults."""
    if case.documents is None:
        return {}
    if isinstance(case.documents, str):
        places = [tree / f"{case.documents}{kind}.json" for kind in ("network", "training")]
        network, training = (json.loads(place.read_text()) for place in places)
    else:
        network, training = copy.deepcopy(case.documents)
    training |= {"checkpoints": {"min_seconds": 0}} if case.is_interrupted else {}
    layers = {layer["name"]: layer for layer in network.get("layers", ())}
    for name, value in case.changes.items():
        *layer, key = name.split(".")
        (layers[layer[0]] if layer else training)[key] = value
    for layer in layers.values():
        for kind, key in REMOVED_FIELDS:
            if layer.get("kind") == kind:
                layer.pop(key, None)
    return {"network": network, "training": training}


def _compared(case, label, expected, found):
    """A line for each output that differs and may not."""
    lines = []
    for name in {**expected, **found}:
        one, other = expected.get(name, ""), found.get(name, "")
        for (of_case, of_output, key), _ in DIFFERENCES.items() if one != other else ():
            if fnmatchcase(_name(case), of_case) and fnmatchcase(name, of_output):
                one, other = (json.loads(text or "{}") if key else {} for text in (one, other))
                one, other = (
                    json.dumps({k: v for k, v in each.items() if k != key}) for each in (one, other)
                )
        if one != other:
            rows = zip_longest(one.splitlines(), other.splitlines())
            first, second = next((a, b) for a, b in rows if a != b)
            lines.append(f"{_name(case)}{label}: {name}: {first!s:.200} became {second!s:.200}")
    return lines


def _cases(old, is_whole):
    """The cases of a form. The first training is one whose run others begin with."""
    for line in re.sub(r"\n +", " ", DATASETS).strip().splitlines():
        name, commands = line.split(" | ")
        if "{shared}" in commands and not SHARED.is_dir():
            print(f"data {name}: left out, for {SHARED} is missing")
        elif is_whole or not name.startswith("whole "):
            yield name, commands
    for case in TRAININGS:
        is_of_whole = case.name.startswith("whole ")
        if not is_whole and (is_of_whole or not case.is_small):
            continue
        if is_of_whole and not SHARED.is_dir() and "golden" not in case.data:
            continue
        if is_whole and not is_of_whole:
            epochs = (
                {"epochs": max(EPOCHS, case.changes.get("epochs", 0))} if case.changes.get("epochs") else {}
            )
            yield replace(case, processes=(1, 2, 3), is_interrupted=True, changes=case.changes | epochs)
        else:
            yield case
    listed = old.work / "golden.json"
    if not listed.exists():
        words = [old.python, Path(__file__).with_name("golden.py"), old.work / "golden", listed]
        subprocess.run(words, cwd=old.tree, env=old.environment | {"PYTHONPATH": str(old.tree)}, check=True)
    for golden in json.loads(listed.read_text()):
        if golden["name"] not in REMOVED_TRAININGS:
            case = Training(**golden | {"name": f"golden {golden['name']}"})
            yield replace(case, processes=(1, 2, 3)) if is_whole else case
            if is_whole:
                yield replace(case, name=f"{case.name}, long", changes={"epochs": LONG}, is_interrupted=True)


def main():
    """Compare; returns 1 if something differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.same", description=__doc__)
    parser.add_argument(
        "--whole", action="store_true", help="all cases, numbers of processes and interruptions"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at once")
    parser.add_argument("names", nargs="*", help="beginnings of names of cases; default: all")
    words, began = parser.parse_args(), time.monotonic()
    processor = re.findall("model name.*", Path("/proc/cpuinfo").read_text())[:1]
    files = [Path(__file__).with_name(f"{name}.py") for name in ("cases", "differences", "golden", "sources")]
    known = [*(path.read_text() for path in files), *processor]
    work = (
        KEPT
        / f"{'whole' if words.whole else 'small'}-{hashlib.sha256(''.join(known).encode()).hexdigest()[:12]}"
    )
    for earlier in set(KEPT.glob(f"{work.name.split('-')[0]}-*")) - {work}:
        shutil.rmtree(earlier)
    KEPT.mkdir(parents=True, exist_ok=True)
    variables = {"OMP_WAIT_POLICY": "PASSIVE"} | ({} if words.whole else {"WIDENET_THREADS": "1"})
    old, new = old_side(work / "old", variables), Side(Path(sys.executable), ROOT, work / "new", variables)
    guard = Guard(old, new, work, words.whole)
    write_sources(work)
    try:
        cases = list(_cases(old, words.whole))
        with ThreadPoolExecutor(words.jobs) as pool:
            # Trainings read the old side's datasets, and one begins with the first training's run.
            list(pool.map(guard.give, [case for case in cases if not isinstance(case, Training)]))
            chosen = [case for case in cases if not words.names or _name(case).startswith(tuple(words.names))]
            if any(isinstance(case, Training) and case.options for case in chosen):
                for side in (old, new):
                    guard.train(TRAININGS[0], side, FIRST)
            differing = sum(pool.map(guard.compare, chosen))
    finally:
        old.close()
        new.close()
    print(f"{differing} of {len(chosen)} cases differ from {OLD[:8]}; {time.monotonic() - began:.0f} s")
    return int(differing > 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except NoComparisonError as error:
        sys.exit(f"The guard cannot compare: {error}")
