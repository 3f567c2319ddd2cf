"""Commands on trained runs: evaluate, compare, predict, fingerprint."""

import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import IncludeSeen, Run, values_of, with_flags_of
from widenet.cli.output import AsJson, print_json, print_result, say
from widenet.cli.processes import Processes, run_in_processes
from widenet.runs.run_arguments import CompareArguments, EvaluateArguments, LoadArguments, PredictArguments
from widenet.spec.metric_names import DEFAULT_KS
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from widenet.metrics.ranking import Metrics
    from widenet.predict.files import Block, Writer


Ks = Annotated[
    list[int] | None,
    typer.Option(
        "-k",
        "--k",
        help="Length of the list; may be given several times. Default: 5, 10, 20, 50 and 100.",
        min=1,
    ),
]
_COMPARED_K = 20
"""Length of the lists that a table of several methods shows, if none is named."""
_Out = Annotated[Path, IN_STORES, typer.Option(help="The file to write: .parquet, .csv, .jsonl or .dsstne.")]
_Format = Annotated[
    str | None,
    typer.Option("--format", help="parquet, csv, jsonl or dsstne. Default: recognized by the suffix."),
]


@with_flags_of(EvaluateArguments, LoadArguments)
def evaluate(
    context: typer.Context,
    k: Ks = None,
    include_seen: IncludeSeen = False,
    as_json: AsJson = False,
    processes: Processes = None,
    **words: Any,
) -> None:
    """Measure the recommendations of a run.

    Prints precision, recall, NDCG, MAP, MRR, hit rate, coverage and popularity. With --baselines or --groups,
    it prints a row for each, of lists of 20 items unless -k says otherwise.
    """
    from widenet.cli.output import methods_table, metrics_table
    from widenet.data.dataset import Dataset
    from widenet.runs.progress import counting
    from widenet.training.run_path import check_run

    ks = sorted(set(k)) if k else DEFAULT_KS
    options = values_of(EvaluateArguments, words) | {"ks": ks, "exclude_seen": not include_seen}
    EvaluateArguments(**options)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    quiet = as_json or not is_leader()
    with counting("evaluating", dataset.num_examples, quiet) as advance, warnings_as_sentences():
        metrics = model.evaluate(**options, advance=advance, say=None if quiet else say)
    if is_leader() and as_json:
        print_json(_with_more(metrics))
    elif is_leader():
        examples = dataset.manifest.words.examples
        if metrics.num_seen:
            say(f"{metrics.num_seen:,} true items cannot be found: their users had them before.")
        groups = {
            f"{name} ({own['least']:,} to {own['most']:,})": own for name, own in metrics.groups.items()
        }
        others = groups | metrics.baselines
        if others:
            compared = ks if k else [_COMPARED_K]
            typer.echo(methods_table([(shown(words["run"]), metrics), *others.items()], compared, examples))
        else:
            typer.echo(metrics_table(metrics, ks, metrics.intervals, examples))


def _with_more(metrics: "Metrics") -> dict[str, Any]:
    """Return metrics with their intervals, groups and baselines, if they have any."""
    more: dict[str, Any] = {"num_examples": int(metrics["num_examples"])}
    if metrics.num_seen is not None:
        more["num_seen"] = metrics.num_seen
    if metrics.intervals:
        more["intervals"] = metrics.intervals
    for kind, found in (("groups", metrics.groups), ("baselines", metrics.baselines)):
        if found:
            more[kind] = {name: _with_more(own) for name, own in found.items()}
    return metrics | more


@with_flags_of(CompareArguments)
def compare(
    context: typer.Context,
    k: Ks = None,
    include_seen: IncludeSeen = False,
    as_json: AsJson = False,
    processes: Processes = None,
    **words: Any,
) -> None:
    """Compare two runs on the same users.

    Prints for each metric both means, the difference, its confidence interval and a p-value. A positive
    difference means that the second run is better. Decide on one metric and one -k before you look: of 30,
    one or two have a p-value below 0.05 by chance.
    """
    from dataclasses import asdict

    from widenet.cli.output import comparison_table
    from widenet.data.dataset import Dataset
    from widenet.runs.progress import counting
    from widenet.training.run_path import check_run

    runs = [words["first"], words["second"]]
    for run in runs:
        check_run(run)
    dataset = Dataset.open(words["data"])
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.runs.model import compare as compare_runs

    run_in_processes(context, processes, words["device"])
    options = values_of(CompareArguments, words) | {"data": dataset, "exclude_seen": not include_seen}
    options["ks"] = sorted(set(k)) if k else DEFAULT_KS
    quiet = as_json or not is_leader()
    with counting("evaluating", 2 * dataset.num_examples, quiet) as advance, warnings_as_sentences():
        comparison = compare_runs(**options, advance=advance)
    if is_leader():
        names = [shown(run) for run in runs]
        table = comparison_table(comparison, names, dataset.manifest.words.examples)
        print_result(as_json, asdict(comparison), table)


@with_flags_of(PredictArguments, LoadArguments)
def predict(
    context: typer.Context,
    out: _Out,
    file_format: _Format = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier file of recommendations.")
    ] = False,
    include_seen: IncludeSeen = False,
    as_json: AsJson = False,
    processes: Processes = None,
    **words: Any,
) -> None:
    """Write the best items for every user of a dataset, best first, with their scores.

    A .parquet or .csv file has a row for each: user, item, score, rank. A .jsonl or .dsstne file has a line
    for each user.

    Items that a user has in any part of the dataset are left out, unless you add --include-seen.
    To compare with a part that was set aside, name it with --part.
    """
    from widenet.data.dataset import Dataset
    from widenet.training.run_path import check_run

    options = values_of(PredictArguments, words) | {"exclude_seen": not include_seen}
    PredictArguments(**options)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.predict.files import open_results
    from widenet.runs import Model

    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    with warnings_as_sentences():
        blocks = model.predict(**options, say=say)
    if not is_leader():
        for _ in blocks:
            pass
        return
    results = open_results(out, file_format, overwrite=overwrite)
    examples = dataset.manifest.words.examples
    total = _write(blocks, results, dataset.num_examples)
    print_result(
        as_json,
        {"out": shown(out), "num_recommendations": total, "num_users": dataset.num_examples},
        f"{shown(out)}: {total:,} recommendations for {dataset.num_examples:,} {examples}.",
    )


def _write(blocks: "Iterator[Block]", opened: "AbstractContextManager[Writer]", num_users: int) -> int:
    """Write recommendations to a file; return their number."""
    from widenet.runs.progress import counting

    total = 0
    with opened as results, counting("predicting", num_users) as advance:
        for block in blocks:
            results.write(block)
            advance(len(block.users))
            total += len(block.items)
    return total


def fingerprint(run: Run, as_json: AsJson = False) -> None:
    """Print a SHA-256 of the trained weights.

    Equal weights have equal fingerprints, whatever the files and the number of processes.
    """
    from widenet.training.run_path import check_run

    check_run(run)
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.runs import Model

    model = Model.load(run, "cpu")
    digest = model.fingerprint()
    if is_leader():
        facts = {"run": shown(run), "fingerprint": digest, "shards": model.run.training.shards}
        print_result(as_json, facts, digest)


@contextmanager
def warnings_as_sentences() -> "Iterator[None]":
    """Print each warning of the library as a sentence, once for a group."""
    from widenet.parallel.group import is_leader

    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        yield
    for sentence in dict.fromkeys(str(each.message) for each in caught) if is_leader() else ():
        say(sentence)
