"""`widenet train` and `widenet demo`."""

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.declared import with_flags_of
from widenet.cli.output import AsJson, print_json, print_lines, recommendations_table, say
from widenet.cli.processes import Processes, is_one_of_several, leads, run_in_processes
from widenet.data.messages import ignore_message
from widenet.errors import reason_of
from widenet.runs.run_arguments import TrainArguments
from widenet.stores.uri import is_uri, shown

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
    from widenet.runs import Model
    from widenet.spec.network import NetworkSpec


@with_flags_of(TrainArguments)
def train(
    context: typer.Context,
    processes: Processes = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print errors only.")] = False,
    as_json: AsJson = False,
    **words: Any,
) -> None:
    """Train a network.

    Ctrl-C or SIGTERM saves a checkpoint; --resume continues from it to the same bits.

    If you omit a document, widenet uses a default and saves it in the run directory for you to edit. With
    --from, the network is that of the other run. With --resume, both documents are the run's own.
    """
    from widenet.runs.documents import prepared
    from widenet.runs.progress import TrainingReport

    arguments = TrainArguments(**words)
    out, tell = shown(words["out"]), ignore_message if quiet else say
    _start_several(context, arguments, processes)
    layout, dataset = context.with_resource(prepared(arguments, tell))
    _check_path(arguments)
    from widenet.runs.run_log import diverged  # loads torch, as the next
    from widenet.runs.training import run_training
    from widenet.training.begin import dataset_of_run
    from widenet.training.run_path import identity

    run_in_processes(context, processes, arguments.device)
    for note in (*layout.network.notes, *_default_documents(arguments, out)):
        tell(note)
    evaluation, earlier = layout.training.evaluation, identity(words["out"])
    metric, named = None if evaluation is None else evaluation.metric, dataset.manifest.words.examples
    report = TrainingReport(quiet, metric, named)
    try:
        model = run_training(layout, dataset, replace(arguments, report=report))
    except KeyboardInterrupt:
        report.stop()
        if leads():
            _say_how_to_resume(arguments, processes, earlier)
        sys.exit(130)
    finally:
        report.stop()
    dataset = dataset_of_run(dataset, model.run.path)
    written = _leave_report(model, dataset, tell)
    if leads():
        model.run.publish()
    if as_json:
        print_json(_facts(model.run.path) | {"path": out, "report": written})
    elif not quiet:
        print_lines(f"{out}: trained. Fingerprint {model.facts['fingerprint']}")
        if problem := diverged(model.run.training, model.run.records()):
            say(f"{out}: {problem}")
        if written is not None:
            say(f"Report: {written}")
        say(next_command(out, shown(words["data"]), model.run.network))


def _start_several(context: typer.Context, arguments: TrainArguments, processes: int | None) -> None:
    """Let several processes train, if they are asked for, and exit; one of them sets a part aside."""
    from widenet.plan.layout import check_processes
    from widenet.plan.machine import seems_to_have_cuda
    from widenet.runs.documents import prepared

    has_cuda = arguments.device == "cuda" or (arguments.device is None and seems_to_have_cuda())
    may_be_several = processes != 1 and (processes is not None or has_cuda)
    if may_be_several and not is_one_of_several():
        # Mistakes are seen before processes start.
        with prepared(arguments, ignore_message, cuts=False) as (layout, _):
            _check_path(arguments)
            if processes is not None:
                check_processes(layout.num_shards, processes)
        run_in_processes(context, processes, arguments.device)


def _check_path(arguments: TrainArguments) -> None:
    """Refuse a run that exists before torch is loaded; the process that makes a run checks other paths."""
    from widenet.training.run_path import check

    if not (is_one_of_several() or arguments.resume or arguments.overwrite or is_uri(arguments.out)):
        check(Path(arguments.out), (), overwrite=False)


def _facts(run: Path) -> dict[str, Any]:
    """What `widenet runs` says of a finished run, as JSON has it."""
    from widenet.report.listing import list_runs

    (facts,) = [asdict(each) for each in list_runs(run).runs]
    del facts["differences"]
    return facts


def _default_documents(arguments: TrainArguments, out: str) -> Iterator[str]:
    """Tell which documents are missing, for which a new run uses defaults."""
    given = {"network.json": arguments.network, "training.json": arguments.training}
    missing = " and no ".join(name for name, document in given.items() if document is None)
    if missing and not arguments.resume and arguments.start_from is None:
        yield f"No {missing} was named: widenet uses a default and saves it in {out}."


def next_command(run: str, data: str, network: "NetworkSpec") -> str:
    """Return the line with the command that uses a trained run."""
    words = ["widenet", "predict", run, "--data", data, "--out", "recommendations.parquet"]
    of_several = ["--output", network.outputs[0].name] if len(network.outputs) > 1 else []
    return f"Next: {shlex.join([*words, *of_several])}"


def _leave_report(model: "Model", dataset: "Dataset", tell: Callable[[str], None]) -> Path | None:
    """Write the report of a training and return its path; tell of a failure and return None."""
    from widenet.report.write import write_report

    try:
        return write_report(model, data=dataset)
    except Exception as error:
        tell(f"The training is saved, but its report could not be written: {reason_of(error)}.")
        return None


def _say_how_to_resume(
    arguments: TrainArguments, processes: int | None, earlier: tuple[int, int] | None
) -> None:
    """Print the command that resumes an interrupted training.

    Args:
        arguments: The arguments of the training.
        processes: Number of its processes, if it was given.
        earlier: Identity of the directory that was at the path before.
    """
    from widenet.runs.documents import run_of
    from widenet.tracking import shown as shown_tracker
    from widenet.training.run_path import identity

    out, _ = run_of(arguments.out, resume=False)
    is_earlier = arguments.overwrite and earlier is not None and identity(out) == earlier
    if is_earlier or not (out / "checkpoints" / "latest").exists():
        say("Stopped before the first checkpoint, so there is nothing to resume. Run the same command again.")
        return
    words = {
        "--data": shown(arguments.data),
        "--out": shown(arguments.out),
        "--processes": processes,
        "--device": arguments.device,
        "--weights-in": arguments.weights_in,
        "--scratch": arguments.scratch,
        "--track": None if arguments.track is None else shown_tracker(arguments.track),
    }
    documents = [arguments.network, arguments.training]
    say(f"Stopped; {shown(arguments.out)} holds a checkpoint. Resume with:")
    say(f"  {resume_command('train', documents, words)}")


def resume_command(command: str, first: Sequence[Any], options: Mapping[str, Any]) -> str:
    """Return the line of a command that resumes; values that are None are left out."""
    words = [word for word in first if word is not None]
    words += [word for each in options.items() if each[1] is not None for word in each]
    return shlex.join(["widenet", command, *map(str, words), "--resume"])


def demo(
    data: Annotated[
        Path | None,
        typer.Option(
            help="A folder with interactions and titles, such as goodbooks-10k. Default: generated books."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="The folder to work in. It replaces an earlier demonstration there.")
    ] = Path("runs/demo"),
) -> None:
    """Train a recommender, measure it, and show what it recommends, in under three minutes."""
    from widenet.demo import Demo
    from widenet.runs.progress import TrainingReport

    steps = Demo(data, out, typer.echo)
    dataset = steps.ingest()
    field = dataset.field("items")
    typer.echo(
        f"{dataset.num_examples:,} users, {field.width:,} items, {sum(field.num_entries.values()):,}"
        " interactions."
    )
    typer.echo("\nTraining: predict what was hidden from a user's history, over the whole catalogue.")
    report = TrainingReport()
    try:
        model = steps.train(dataset, report)
    finally:
        report.stop()
    typer.echo(f"\n{'On the held-out items':24}{'recall@20':>12}{'ndcg@20':>12}{'coverage@20':>14}")
    for name, metrics in steps.compare(model, dataset).items():
        typer.echo(
            f"{name:24}{metrics['recall@20']:>12.4f}{metrics['ndcg@20']:>12.4f}{metrics['coverage@20']:>14.4f}"
        )
    examples = steps.examples(model, dataset)
    for liked, recommended in examples:
        typer.echo(f"\nTo somebody who had, among others: {'; '.join(liked)}")
        typer.echo(recommendations_table(recommended))
    written = _leave_report(model, dataset, say)
    if written is not None:
        typer.echo(f"\nThe same as a page, with curves: {written}")
    command = ["widenet", "recommend", str(out / "run"), "--items", *examples[0][0][:2]]
    typer.echo(f"Try your own, by titles: {shlex.join(command)}")
