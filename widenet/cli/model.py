"""Commands on a trained run: evaluate, predict, fingerprint."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.declared import values_of, with_flags_of
from widenet.cli.json_output import AsJson, print_json
from widenet.cli.options import IncludeSeen, Run
from widenet.cli.processes import Processes, run_in_processes
from widenet.cli.wording import say
from widenet.runs.arguments import EvaluateArguments, LoadArguments, PredictArguments
from widenet.spec.metric_names import DEFAULT_KS
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from widenet.metrics.ranking import Metrics
    from widenet.predict.files import Writer
    from widenet.predict.rows import Block
    from widenet.runs import Model


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
_Out = Annotated[Path, typer.Option(help="The file to write: .parquet, .csv, .jsonl or .dsstne.")]
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
    from widenet.cli.progress import Counter
    from widenet.cli.tables import methods_table, metrics_table
    from widenet.data.dataset import Dataset
    from widenet.training.existing_run import check_run

    ks, output = sorted(set(k)) if k else DEFAULT_KS, words["output"]
    options = values_of(EvaluateArguments, words) | {"ks": ks, "exclude_seen": not include_seen}
    EvaluateArguments(**options)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.baselines.measure import omitted  # loads torch, as the next
    from widenet.parallel.group import is_leader
    from widenet.runs import Model

    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    warn_of_length(model, max(ks) if k else 0, output)
    with (
        Counter("evaluating", dataset.num_examples, quiet=as_json or not is_leader()) as counter,
        warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught,
    ):
        told = say if is_leader() and not as_json else None
        metrics = model.evaluate(**options, advance=counter.advance, say=told)
    warn(model.ignored(dataset) + model.caveats() + [str(each.message) for each in caught])
    if metrics.baselines:
        warn(omitted(metrics.baselines, _width(model, output)))
    if is_leader() and as_json:
        print_json(_with_more(metrics))
    elif is_leader():
        examples = dataset.manifest.words.examples
        if not metrics[f"recall@{ks[-1]}"]:
            said = f"Every recall is 0: nobody's list of {ks[-1]:,} has anything of the {words['part']} part."
            reachable = "" if metrics.baselines else "; `baselines` shows what is reachable"
            say(f"{said} Train longer{reachable}.")
        if metrics.num_seen:
            why = "their users had them before, so that the lists leave them out"
            say(f"{metrics.num_seen:,} true items cannot be found: {why}. Rank them with `include_seen`.")
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
    from widenet.training.existing_run import check_run

    options = values_of(PredictArguments, words) | {"exclude_seen": not include_seen}
    arguments = PredictArguments(**options)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.predict.files import open_results
    from widenet.runs import Model
    from widenet.runs.rules import notes_on_rules

    notes = notes_on_rules(words["run"], arguments)
    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    if is_named(context, "k"):
        warn_of_length(model, words["k"], words["output"])
    with warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught:
        blocks = model.predict(**options, say=say)
    part, output = words["part"], words["output"]
    caveats = model.caveats() if part is None else model.caveats(dataset, part, output)
    noted = model.ignored(dataset) + caveats + model.strangers(dataset, part=part) + notes
    warn([*dict.fromkeys([*noted, *(str(each.message) for each in caught)])])
    if not is_leader():
        for _ in blocks:
            pass
        return
    results = open_results(out, file_format, overwrite=overwrite)
    examples = dataset.manifest.words.examples
    total, num_short = _write(blocks, results, dataset.num_examples, words["k"])
    if num_short and words["k"] <= _width(model, words["output"]):
        number = f"{num_short:,} of {dataset.num_examples:,} {examples}"
        say(f"{number} have fewer than {words['k']:,} recommendations: nothing else is left for them.")
    if as_json:
        print_json({"out": shown(out), "num_recommendations": total, "num_users": dataset.num_examples})
    else:
        typer.echo(f"{shown(out)}: {total:,} recommendations for {dataset.num_examples:,} {examples}.")


def warn_of_length(model: "Model", k: int, output: str | None, option: str = "-k") -> None:
    """Say that lists are longer than the catalogue."""
    width = _width(model, output)
    if k > width:
        warn([f"{option} asks for {k:,} items; there are {width:,}."])


def warn_of_short(context: typer.Context, k: int, number: int, what: str) -> None:
    """Say that a list has fewer items than the command line asks for."""
    if number < k and is_named(context, "k"):
        say(f"-k asks for {k:,} items; only {number:,} {'is' if number == 1 else 'are'} {what}.")


def is_named(context: typer.Context, option: str) -> bool:
    """Whether the command line names an option, whose value is not just the default."""
    source = context.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _width(model: "Model", output: str | None) -> int:
    """Number of items that an output can recommend."""
    from widenet.evaluate import output_name

    name = output_name(model.network, output)
    return model.run.fields[model.network.outputs[name].spec.field].width


def _write(
    blocks: "Iterator[Block]", opened: "AbstractContextManager[Writer]", num_users: int, k: int
) -> tuple[int, int]:
    """Write recommendations to a file; return their number, and that of users with fewer than k of them."""
    from widenet.cli.progress import Counter

    total = num_short = 0
    with opened as results, Counter("predicting", num_users) as counter:
        for block in blocks:
            results.write(block.users, block.counts, block.items, block.scores)
            counter.advance(len(block.users))
            total += len(block.items)
            num_short += int((block.counts < k).sum())
    return total, num_short


def fingerprint(run: Run, as_json: AsJson = False) -> None:
    """Print a SHA-256 of the trained weights.

    Equal weights have equal fingerprints, whatever the files and the number of processes.
    """
    from widenet.training.existing_run import check_run

    check_run(run)
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.runs import Model

    model = Model.load(run, "cpu")
    warn(model.caveats())
    digest = model.fingerprint()
    if is_leader() and as_json:
        print_json({"run": shown(run), "fingerprint": digest, "shards": model.run.training.shards})
    elif is_leader():
        typer.echo(digest)
        say(_again(model, shown(run)))


def _again(model: "Model", run: str) -> str:
    """How to come by the same weights again."""
    from widenet.training.saved_facts import WeightsFacts, in_8_bits, made_of

    if in_8_bits(model.facts):
        return f"{run} is in 8 bits: widenet quantize gives this fingerprint of {made_of(model.facts)} again."
    facts = WeightsFacts.of(model.facts)
    if "state" not in model.facts and facts.other_term:
        command = "widenet neighbourhood, with the same options,"
        return f"{run} has another term: {command} gives this fingerprint of {facts.made_of} again."
    if "state" not in model.facts and facts.epochs is None:
        return f"{run} was imported: the same file gives this fingerprint again."
    shards = f'"shards": {model.run.training.shards} as in training.json of {run}'
    return f"The same data and documents give this fingerprint again, with {shards}."


def warn(sentences: list[str]) -> None:
    """Print sentences to standard error, once for a group."""
    from widenet.parallel.group import is_leader

    for sentence in sentences if is_leader() else ():
        say(sentence)
