"""What a run has trained on of what a dataset holds out; so too the runs with whose weights it began."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from widenet.checkpoint import Checkpoint
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.overlap import trained_on
from widenet.errors import WidenetError
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts

Held = Sequence[tuple[str, Part]]
"""Fields and parts of a dataset that are held out."""


def held_of(run: RunDirectory, data: Dataset) -> Held:
    """All that a dataset holds out of the fields that a run's outputs ask for."""
    fields = dict.fromkeys(output.field for output in run.network.outputs)
    return [(field, part) for field in fields for part in data.field(field).parts if part != "train"]


def seen_before(run: RunDirectory, examples: object, data: Dataset, held: Held) -> list[str]:
    """A sentence where a run, or one with whose weights it began, was trained on something that a dataset
    holds out; none otherwise.

    examples: the digest of the run's own examples; None where it has none. Where the dataset of a training,
    or the run itself, is gone or another by now, the sentence says that nobody can tell. Of dense fields
    nothing is held out.
    """
    held = [(field, part) for field, part in held if data.field(field).kind != "dense"]
    if not held:
        return []
    found = [] if examples is None else _said(str(run.path), run, examples, data, held)
    for path, start in _starts(run):
        if start is None:
            gone = f"{path}, with whose weights {run.path} began, is not at hand"
            found.append(f"{gone}: what {data.path} holds out may have been trained on.")
            continue
        each, its_examples = start
        if its_examples is not None:
            found += _said(f"{path}, with whose weights {run.path} began,", each, its_examples, data, held)
    return found


def _starts(run: RunDirectory) -> Iterator[tuple[Path, tuple[RunDirectory, object] | None]]:
    """Where the runs are with whose weights a run began, each with the digest of its examples; the last is
    None if it is gone.
    """
    seen = {run.path.resolve()}
    while (path := run.start) is not None and path not in seen:
        seen.add(path)
        try:
            run = RunDirectory.open(path)
            examples = WeightsFacts.of(Checkpoint.open(path / "model").facts).examples
        except (WidenetError, OSError):
            yield path, None
            return
        yield path, (run, examples)


def _said(name: str, run: RunDirectory, examples: object, data: Dataset, held: Held) -> list[str]:
    if examples == data.digest:
        return []
    other = f"{data.path} does not hold the examples that {name} was trained on"
    training = run.dataset()
    if training is None or training.digest != examples:
        return [f"{other}, which are not at hand to compare: what it holds out may have been trained on."]
    number = sum(trained_on(data, field, part, training) for field, part in held)
    total = sum(data.field(field).num_entries[part] for field, part in held)
    parts = list(dict.fromkeys(part for _, part in held))
    where = f"{' and '.join(parts)} part{'s' if len(parts) > 1 else ''}"
    return (
        [f"{other}: of the {total:,} entries of its {where}, {number:,} were trained on."] if number else []
    )
