"""`widenet compare`."""

import warnings
from typing import Any

import typer

from widenet.cli.declared import values_of, with_flags_of
from widenet.cli.json_output import AsJson, print_json
from widenet.cli.model import Ks, warn
from widenet.cli.options import IncludeSeen
from widenet.cli.processes import Processes, run_in_processes
from widenet.runs.arguments import CompareArguments
from widenet.spec.metric_names import DEFAULT_KS
from widenet.stores.uri import shown


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

    from widenet.cli.progress import Counter
    from widenet.cli.tables import comparison_table
    from widenet.data.dataset import Dataset
    from widenet.training.existing_run import check_run

    runs = [words["first"], words["second"]]
    for run in runs:
        check_run(run)
    dataset = Dataset.open(words["data"])
    from widenet.parallel.group import is_leader  # loads torch, as the next
    from widenet.runs.comparing import compare as compare_runs

    run_in_processes(context, processes, words["device"])
    options = values_of(CompareArguments, words) | {"data": dataset, "exclude_seen": not include_seen}
    options["ks"] = sorted(set(k)) if k else DEFAULT_KS
    with (
        Counter("evaluating", 2 * dataset.num_examples, quiet=as_json or not is_leader()) as counter,
        warnings.catch_warnings(record=True, action="always", category=UserWarning) as caught,
    ):
        comparison = compare_runs(**options, advance=counter.advance)
    warn([str(each.message) for each in caught])
    if is_leader() and as_json:
        print_json(asdict(comparison))
    elif is_leader():
        typer.echo(
            comparison_table(comparison, [shown(run) for run in runs], dataset.manifest.words.examples)
        )
