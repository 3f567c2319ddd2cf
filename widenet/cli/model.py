"""Commands on a trained run: evaluate, predict, fingerprint."""

import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from widenet.cli.options import Device, IncludeSeen, Output, Run
from widenet.cli.processes import Processes, Timeout, run_in_processes
from widenet.cli.wording import say
from widenet.parallel.heartbeat import TIMEOUT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from widenet.predict.rows import Block


_Never = Annotated[Path | None, typer.Option(help="File of item ids, one a line, that nobody is shown.")]
_NeverFor = Annotated[
    Path | None, typer.Option(help="CSV file (user,item) of what single users are not shown.")
]
_Weights = Annotated[
    Path | None,
    typer.Option(help="CSV file (item,weight) of factors on scores of at least 0; weight 0: never shown."),
]


class _Part(StrEnum):
    validation = "validation"
    heldout = "heldout"


def evaluate(
    context: typer.Context,
    run: Run,
    data: Annotated[Path, typer.Option(help="The dataset directory.")],
    part: Annotated[_Part, typer.Option(help="The part that was set aside.")] = _Part.heldout,
    k: Annotated[
        list[int] | None,
        typer.Option(
            "-k",
            "--k",
            help="Length of the list; may be given several times. 5, 10, 20, 50 and 100 if not given.",
            min=1,
        ),
    ] = None,
    output: Output = None,
    include_seen: IncludeSeen = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    device: Device = None,
    processes: Processes = None,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Measure a run: precision, recall, NDCG, MAP, MRR, hit rate, coverage and popularity of its
    recommendations.
    """
    from widenet.cli.progress import Counter
    from widenet.cli.tables import metrics_table
    from widenet.data.dataset import Dataset
    from widenet.evaluate import DEFAULT_KS
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    run_in_processes(context, processes, device)
    model, dataset = Model.load(run, device, timeout=timeout), Dataset.open(data)
    ks = sorted(set(k)) if k else DEFAULT_KS
    with Counter("evaluating", dataset.num_examples, quiet=as_json or not is_leader()) as counter:
        found = model.evaluate(dataset, part.value, ks, output, not include_seen, counter.advance)
    warn(model.ignored(dataset) + model.caveats(dataset, part.value, output))
    if is_leader():
        typer.echo(json.dumps(found) if as_json else metrics_table(found, ks))


def predict(
    context: typer.Context,
    run: Run,
    data: Annotated[Path, typer.Option(help="The dataset directory; every user in it gets recommendations.")],
    out: Annotated[Path, typer.Option(help="The file to write: .parquet, .csv, .jsonl or .dsstne.")],
    k: Annotated[
        int,
        typer.Option("-k", "--k", help="Recommendations for each user, up to the whole catalogue.", min=1),
    ] = 100,
    file_format: Annotated[
        str | None, typer.Option("--format", help="parquet, csv, jsonl or dsstne. Known by the suffix.")
    ] = None,
    part: Annotated[
        _Part | None,
        typer.Option(
            help=(
                "Recommend as evaluate does on this part: nothing of it, or of what comes after it, is known."
            )
        ),
    ] = None,
    output: Output = None,
    include_seen: IncludeSeen = False,
    never: _Never = None,
    never_for: _NeverFor = None,
    weights: _Weights = None,
    device: Device = None,
    processes: Processes = None,
    timeout: Timeout = TIMEOUT_SECONDS,
) -> None:
    """Write the best items for every user of a dataset: user, item, score, rank.

    What a user is known to have, in whatever part of the dataset, is left out; --include-seen lets it appear.
    To compare with a part that was set aside, name it as --part.
    """
    from widenet.data.dataset import Dataset
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    run_in_processes(context, processes, device)
    model, dataset = Model.load(run, device, timeout=timeout), Dataset.open(data)
    filters = {"never": never, "never_for": never_for, "weights": weights}
    speak = partial(typer.echo, err=True)
    blocks = model.predict(
        dataset,
        k,
        output=output,
        exclude_seen=not include_seen,
        say=speak,
        part=None if part is None else part.value,
        **filters,
    )
    warn(
        model.ignored(dataset)
        + (model.caveats() if part is None else model.caveats(dataset, part.value, output))
    )
    if not is_leader():
        for _ in blocks:
            pass
        return
    _write(blocks, out, file_format, dataset.num_examples)


def _write(blocks: "Iterator[Block]", out: Path, file_format: str | None, num_users: int) -> None:
    """Write recommendations to a file, and say how many they are."""
    from widenet.cli.progress import Counter
    from widenet.predict.files import open_results

    total = 0
    with open_results(out, file_format) as results, Counter("predicting", num_users) as counter:
        for block in blocks:
            results.write(block.users, block.counts, block.items, block.scores)
            counter.advance(len(block.users))
            total += len(block.items)
    typer.echo(f"{out}: {total:,} recommendations for {num_users:,} users.")


def fingerprint(run: Run) -> None:
    """Print a SHA-256 of the trained weights alone: equal for equal weights, whatever the files and the
    layout.
    """
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    model = Model.load(run, "cpu")
    warn(model.caveats())
    found = model.fingerprint()
    if is_leader():
        typer.echo(found)
        typer.echo(
            f"{run}: {model.run.training.shards} shards. Another number of shards gives other weights.",
            err=True,
        )


def warn(sentences: list[str]) -> None:
    """Say something on standard error, once for a group."""
    from widenet.parallel.group import is_leader

    for sentence in sentences if is_leader() else ():
        say(sentence)
