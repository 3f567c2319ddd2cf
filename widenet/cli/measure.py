"""Commands that measure, compare and list runs: evaluate, compare, report, runs."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import IncludeSeen, values_of, with_flags_of
from widenet.cli.output import (
    AsJson,
    aligned,
    print_json,
    print_lines,
    print_result,
    say,
    warnings_as_sentences,
)
from widenet.cli.processes import Processes, leads, run_in_processes
from widenet.errors import OptionError, in_one_line
from widenet.runs.run_arguments import CompareArguments, EvaluateArguments, LoadArguments
from widenet.spec.metric_names import DEFAULT_KS
from widenet.stores.uri import shown

if TYPE_CHECKING:
    from widenet.metrics.comparison import Comparison
    from widenet.metrics.ranking import Metrics
    from widenet.report.listing import ListedRun

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
    from widenet.data.dataset import Dataset
    from widenet.runs.progress import counting
    from widenet.training.run_path import check_run

    ks = sorted(set(k)) if k else DEFAULT_KS
    options = values_of(EvaluateArguments, words) | {"ks": ks, "exclude_seen": not include_seen}
    EvaluateArguments(**options)
    check_run(words["run"])
    options["data"] = dataset = Dataset.open(words["data"])
    from widenet.runs import Model  # loads torch

    run_in_processes(context, processes, words["device"])
    model = Model.load(**values_of(LoadArguments, words))
    quiet = as_json or not leads()
    with counting("evaluating", dataset.num_examples, quiet) as advance, warnings_as_sentences():
        metrics = model.evaluate(**options, advance=advance, say=None if quiet else say)
    if as_json:
        print_json(_with_more(metrics))
        return
    examples = dataset.manifest.words.examples
    if metrics.num_seen:
        say(f"{metrics.num_seen:,} true items cannot be found: their users had them before.")
    groups = {f"{name} ({own['least']:,} to {own['most']:,})": own for name, own in metrics.groups.items()}
    if others := groups | metrics.baselines:
        methods = {shown(words["run"]): metrics, **others}
        print_lines(
            "\n\n".join(methods_table(methods, each, examples) for each in (ks if k else [_COMPARED_K]))
        )
    else:
        print_lines(metrics_table(metrics, ks, examples))


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


def metrics_table(metrics: "Metrics", ks: Sequence[int], examples: str) -> str:
    """A table with a row for each metric and a column for each k; `examples`: what was evaluated."""
    names = dict.fromkeys(name.partition("@")[0] for name in metrics if "@" in name)
    rows = [["", *(f"@{k}" for k in ks)]]
    for name in names:
        rows += _rows_of(metrics, name, [f"{name}@{k}" for k in ks])
    return "\n".join([*aligned(rows), f"over {int(metrics['num_examples']):,} {examples}"])


def methods_table(methods: Mapping[str, "Metrics"], k: int, examples: str) -> str:
    """A table with a row for each method or group, and a column for each metric and for its examples."""
    first, *_ = methods.values()
    names = [name for name in first if name.endswith(f"@{k}")]
    rows = [[f"@{k}", *(name.partition("@")[0] for name in names), examples]]
    for method, metrics in methods.items():
        counts = [f"{int(metrics['num_examples']):,}", "", ""]
        own = _rows_of(metrics, method, names)
        rows += [[*row, count] for row, count in zip(own, counts, strict=False)]
    return "\n".join(aligned(rows))


def _rows_of(metrics: "Metrics", label: str, names: Sequence[str]) -> list[list[str]]:
    """A row of metrics after a label, and if they have intervals, rows with their bounds."""
    rows = [[label, *(_number(metrics.get(name)) for name in names)]]
    bounds = [metrics.intervals.get(name, (None, None)) for name in names]
    if not metrics.intervals.keys().isdisjoint(names):
        rows += [[word, *map(_number, ends)] for word, *ends in zip(("  from", "  to"), *bounds, strict=True)]
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


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
    from widenet.data.dataset import Dataset
    from widenet.runs.progress import counting
    from widenet.training.run_path import check_run

    runs = [words["first"], words["second"]]
    for run in runs:
        check_run(run)
    dataset = Dataset.open(words["data"])
    from widenet.runs.model import compare as compare_runs  # loads torch

    run_in_processes(context, processes, words["device"])
    options = values_of(CompareArguments, words) | {"data": dataset, "exclude_seen": not include_seen}
    options["ks"] = sorted(set(k)) if k else DEFAULT_KS
    quiet = as_json or not leads()
    with counting("evaluating", 2 * dataset.num_examples, quiet) as advance, warnings_as_sentences():
        comparison = compare_runs(**options, advance=advance)
    table = comparison_table(comparison, [shown(run) for run in runs], dataset.manifest.words.examples)
    print_result(as_json, asdict(comparison), table)


def comparison_table(comparison: "Comparison", names: Sequence[str], examples: str) -> str:
    """A table with a row for each metric; `names` are those of the runs."""
    from widenet.metrics.comparison import cells

    header = ["", *names, "difference", f"{comparison.level * 100:g} % interval", "p"]
    rows = [header, *([name, *cells(each)] for name, each in comparison.metrics.items())]
    return "\n".join([*aligned(rows), f"over {comparison.num_examples:,} {examples}"])


def report(
    runs: Annotated[
        list[Path],
        IN_STORES,
        typer.Argument(metavar="RUN", help="Run directories; the page compares several."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write. Default: RUN/report.html, or ./report.html for several runs."),
    ] = None,
    data: Annotated[
        Path | None,
        IN_STORES,
        typer.Option(help="The dataset directory. Default: the one that the training used."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier report.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write an HTML page about a run, or a comparison of several.

    It shows curves, the network, the data, recommendations, time and documents.
    """
    from widenet.report.write import write_report

    if data is not None and len(runs) > 1:
        raise OptionError("is for the report of one run", option="data")
    with warnings_as_sentences():
        written = write_report(runs, out, data, overwrite=overwrite)
    print_result(as_json, {"report": written}, str(written))


_SHORT = 12
"""Digits of a fingerprint in the table."""
_HEADER = ("run", "state", "epochs", "kept metric", "fingerprint", "time")
_ABSENT = "-"


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds the runs, at any depth.")
    ] = Path("runs"),
    sort: Annotated[
        Literal["metric", "name", "state", "epochs", "time", "newest"],
        typer.Option(help="metric, epochs and time begin with the largest."),
    ] = "metric",
    as_json: AsJson = False,
) -> None:
    """List the runs below a folder, and how their documents differ.

    Each run has a line with its state, epochs, the metric of the epoch that it keeps and the part that this
    was measured on, the beginning of its fingerprint, and the time of its steps. The lines below it show its
    values where the documents of the listed runs differ.
    """
    from widenet.report.listing import as_text, list_runs

    listing = list_runs(folder, sort)
    if as_json:
        problems = [{"path": path, "problem": text} for path, text in listing.problems.items()]
        print_json({"runs": [asdict(run) for run in listing.runs], "problems": problems})
        return
    header, *lines = aligned([_HEADER, *map(_cells, listing.runs)])
    for run, line in zip(listing.runs, lines, strict=True):
        more = [] if run.form is None else [f"{run.form}, made of {run.made_of}"]
        more += [f"{place}={as_text(value)}" for place, value in run.differences.items()]
        print_lines(*([header] if run is listing.runs[0] else []), line)
        if more:
            width = max(20, get_terminal_size().columns - 4)
            below = wrap(in_one_line(", ".join(more)), width, break_long_words=False, break_on_hyphens=False)
            print_lines(*(f"    {line}" for line in below))
    if not listing.runs:
        say(f"{folder} holds no run.")
    warnings = [f"{run.name}: {run.warning}" for run in listing.runs if run.warning is not None]
    for sentence in (*warnings, *listing.problems.values()):
        say(sentence)


def _cells(run: "ListedRun") -> tuple[str, ...]:
    from widenet.plan.numbers import duration

    return (
        in_one_line(run.name),
        run.state,
        f"{run.epochs}/{run.epochs_asked}",
        _ABSENT if run.value is None else f"{run.metric} {run.value:.4f} on {run.part}",
        _ABSENT if run.fingerprint is None else run.fingerprint[:_SHORT],
        duration(run.seconds) if run.seconds else _ABSENT,
    )
