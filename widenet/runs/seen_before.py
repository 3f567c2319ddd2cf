"""What a run has trained on of what a dataset holds out; so too the runs with whose weights it began."""

from collections.abc import Iterator, Sequence

from widenet.checkpoint import Checkpoint
from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.overlap import trained_on
from widenet.errors import WidenetError
from widenet.training.run_directory import RunDirectory

Held = Sequence[tuple[str, Part]]
"""Fields and parts of a dataset that are held out."""


def held_of(run: RunDirectory, data: Dataset) -> Held:
    """All that a dataset holds out of the fields that a run's outputs ask for."""
    fields = dict.fromkeys(output.field for output in run.network.outputs)
    return [(field, part) for field in fields for part in data.field(field).parts if part != "train"]


def seen_before(run: RunDirectory, examples: object, data: Dataset, held: Held) -> list[str]:
    """A sentence where a run, or one with whose weights it began, was trained on something that a dataset holds out; none otherwise.

    examples: the digest of the run's own examples; None where it has none. Where the dataset of a training is gone or another by now,
    the sentence says that nobody can tell.
    """
    found = [] if examples is None else _said(str(run.path), run, examples, data, held)
    for each, its_examples in _starts(run):
        found += _said(f"{each.path}, with whose weights {run.path} began,", each, its_examples, data, held)
    return found


def _starts(run: RunDirectory) -> Iterator[tuple[RunDirectory, object]]:
    """The runs with whose weights a run began, each with the digest of its examples, as far back as they are there."""
    seen = {run.path.resolve()}
    while run.start is not None and run.start not in seen:
        seen.add(run.start)
        try:
            run = RunDirectory.open(run.start)
            examples = Checkpoint.open(run.path / "model").facts.get("examples")
        except (WidenetError, OSError):
            return
        if examples is not None:
            yield run, examples


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
    return [f"{other}: of the {total:,} entries of its {where}, {number:,} were trained on."] if number else []
