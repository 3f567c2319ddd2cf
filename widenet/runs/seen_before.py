"""Held-out parts of a dataset that a run, or a run that it started from, has trained on."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.manifest import Part
from widenet.data.overlap import trained_on
from widenet.errors import WidenetError
from widenet.evaluate import output_name
from widenet.model.network import Network
from widenet.training.checkpoint import Checkpoint
from widenet.training.cut import Cut
from widenet.training.existing_run import WHOLE
from widenet.training.run_directory import RunDirectory
from widenet.training.saved_facts import WeightsFacts, facts_of

Held = Sequence[tuple[str, Part]]
"""Fields and parts of a dataset that are held out."""


def held_of(run: RunDirectory, data: Dataset) -> Held:
    """All that a dataset holds out of the fields that a run's outputs ask for."""
    fields = dict.fromkeys(output.field for output in run.network.outputs)
    return [(field, part) for field in fields for part in data.field(field).parts if part != "train"]


def seen_in_part(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    data: Dataset,
    part: Part,
    output: str | None,
) -> list[str]:
    """As `seen_before`, for the part of an output's field that an evaluation reads.

    `facts` are those of the checkpoint of the network.
    """
    field = network.outputs[output_name(network, output)].spec.field
    return seen_before(run, facts_of(facts).examples, data, [(field, part)])


def warn_of_seen(
    run: RunDirectory,
    network: Network,
    facts: Mapping[str, Any],
    data: Dataset,
    part: Part,
    output: str | None,
) -> None:
    """Warn of `seen_in_part`, in the leader, on behalf of the caller of a checked method."""
    if network.exchange.leads:
        for sentence in seen_in_part(run, network, facts, data, part, output):
            # Frames: here, the method, its two wrappers, the caller.
            warnings.warn(sentence, stacklevel=5)


def seen_before(run: RunDirectory, examples: object, data: Dataset, held: Held) -> list[str]:
    """Return sentences about entries that a dataset holds out, but a run was trained on.

    Runs whose weights the run began with count too. If the dataset of a training, or such a run, is missing
    or has changed, the sentence says that this cannot be known. Dense fields hold nothing out.

    Args:
        run: The run.
        examples: Digest of the examples it was trained on; None if it has none.
        data: The dataset.
        held: Fields and parts that the dataset holds out.
    """
    held = [(field, part) for field, part in held if data.field(field).kind != "dense"]
    if not held:
        return []
    sentences = [] if examples is None else _sentences(str(run.path), run, examples, data, held)
    for path, start in _starts(run):
        if start is None:
            gone = f"{path}, with whose weights {run.path} began, is not at hand"
            sentences.append(f"{gone}: what {data.path} holds out may have been trained on.")
            continue
        each, its_examples = start
        if its_examples is not None:
            sentences += _sentences(
                f"{path}, with whose weights {run.path} began,", each, its_examples, data, held
            )
    return sentences


def _starts(run: RunDirectory) -> Iterator[tuple[Path, tuple[RunDirectory, object] | None]]:
    """Yield the runs whose weights a run began with, and their digests of examples; None for a lost one."""
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


def _sentences(name: str, run: RunDirectory, examples: object, data: Dataset, held: Held) -> list[str]:
    cut = Cut.read(run.path)
    whole = run.machine.get(WHOLE) if cut is None else cut.examples
    if data.digest in (examples, whole):
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
