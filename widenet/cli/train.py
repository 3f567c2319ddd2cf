"""`widenet train`."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.cli.declared import with_flags_of
from widenet.cli.output import AsJson, print_json, say
from widenet.cli.processes import Processes, is_one_of_several, run_in_processes, speaks
from widenet.cli.report import leave_interim_report, leave_report
from widenet.runs.run_arguments import TrainArguments
from widenet.stores.uri import is_uri, shown

if TYPE_CHECKING:
    from widenet.data.dataset import Dataset
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

    arguments = _with_documents(TrainArguments(**words))
    out = words["out"]
    with _interrupted_early():
        _start_several(context, arguments, processes)
        layout, dataset = context.with_resource(prepared(arguments, _say_nothing if quiet else say))
        _check_path(arguments)
        from widenet.parallel.group import is_leader
        from widenet.runs.run_log import diverged
        from widenet.runs.training import run_training
        from widenet.tracking.follow import add_report
        from widenet.training.begin import dataset_of_run
        from widenet.training.run_path import identity

        run_in_processes(context, processes, arguments.device)
    if is_leader() and not quiet:
        _print_lines(*layout.network.notes)
        _print_default_documents(arguments, out)
    evaluation, earlier = layout.training.evaluation, identity(out)
    metric, named = None if evaluation is None else evaluation.metric, dataset.manifest.words.examples
    report = TrainingReport(quiet, metric, named)
    try:
        model = run_training(layout, dataset, replace(arguments, report=report))
    except KeyboardInterrupt:
        report.stop()
        if is_leader():
            _print_resume_command(arguments, dataset, processes, earlier)
        sys.exit(130)
    finally:
        report.stop()
    dataset = dataset_of_run(dataset, model.run.path)
    written = leave_report(model, dataset, quiet or not is_leader())
    if is_leader():
        track = arguments.track or layout.training.track
        if track is not None and written is not None:
            add_report(track, model.run, written, lambda text: typer.echo(text, err=True))
        model.run.publish()
    if as_json and is_leader():
        _print_facts(model.run.path, shown(out), written)
    elif not quiet and is_leader():
        typer.echo(f"{shown(out)}: trained. Fingerprint {model.facts['fingerprint']}")
        problem = diverged(model.run.training, model.run.records())
        _print_lines(
            None if problem is None else f"{shown(out)}: {problem}",
            None if written is None else f"Report: {written}",
            next_command(shown(out), shown(words["data"]), model.run.network),
        )


def _with_documents(arguments: TrainArguments) -> TrainArguments:
    """Take a training document that stands alone for what it is."""
    from widenet.errors import DocumentError
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    network, fields = arguments.network, TrainingSpec.model_fields.keys()
    if isinstance(network, Path) and arguments.training is None:
        with suppress(DocumentError):
            values = NetworkSpec.read_values(network)
            if isinstance(values, dict) and "layers" not in values and not fields.isdisjoint(values):
                return replace(arguments, network=None, training=network)
    return arguments


@contextmanager
def _interrupted_early() -> Iterator[None]:
    """Say what Ctrl-C or SIGTERM leaves if it comes before the training begins."""
    try:
        yield
    except KeyboardInterrupt:
        if speaks():
            say("Stopped before the first step: nothing new is saved. Run the same command again.")
        sys.exit(130)


def _start_several(context: typer.Context, arguments: TrainArguments, processes: int | None) -> None:
    """Let several processes train, if they are asked for, and exit; one of them sets a part aside."""
    from widenet.plan.layout import check_processes
    from widenet.runs.documents import prepared

    may_be_several = processes != 1 and (processes is not None or not _is_on_cpu(arguments))
    if may_be_several and not is_one_of_several():
        # Mistakes are seen before processes start.
        with prepared(arguments, _say_nothing, cuts=False) as (layout, _):
            _check_path(arguments)
            if processes is not None:
                check_processes(layout.num_shards, processes)
        run_in_processes(context, processes, arguments.device)


def _check_path(arguments: TrainArguments) -> None:
    """Refuse a run that exists before torch is loaded; the process that makes a run checks other paths."""
    from widenet.training.run_path import check

    if not (is_one_of_several() or arguments.resume or arguments.overwrite or is_uri(arguments.out)):
        check(Path(arguments.out), (), overwrite=False)


def _is_on_cpu(arguments: TrainArguments) -> bool:
    from widenet.plan.machine import seems_to_have_cuda

    return arguments.device == "cpu" or (arguments.device is None and not seems_to_have_cuda())


def _say_nothing(_: str) -> None:
    """Leave a sentence out."""


def _print_facts(run: Path, out: str, written: Path | None) -> None:
    """Print as JSON what `widenet runs` says of a finished run, and where its report is."""
    from dataclasses import asdict

    from widenet.report.listing import list_runs

    (facts,) = [asdict(each) for each in list_runs(run).runs]
    del facts["differences"]
    print_json(facts | {"path": out, "report": written})


def _print_default_documents(arguments: TrainArguments, out: Path) -> None:
    """Print which documents are missing, for which a new run uses defaults."""
    given = {"network.json": arguments.network, "training.json": arguments.training}
    missing = " and no ".join(name for name, document in given.items() if document is None)
    if missing and not arguments.resume and arguments.start_from is None:
        _print_lines(f"No {missing} was named: widenet uses a default and saves it in {shown(out)}.")


def next_command(run: str, data: str, network: "NetworkSpec") -> str:
    """Return the line with the command that uses a trained run."""
    words = ["widenet", "predict", run, "--data", data, "--out", "recommendations.parquet"]
    of_several = ["--output", network.outputs[0].name] if len(network.outputs) > 1 else []
    return f"Next: {shlex.join([*words, *of_several])}"


def _print_lines(*lines: str | None) -> None:
    for line in lines:
        if line is not None:
            typer.echo(line, err=True)


def _print_resume_command(
    arguments: TrainArguments, dataset: "Dataset", processes: int | None, earlier: tuple[int, int] | None
) -> None:
    """Print the command that resumes an interrupted training; write its report, without recommendations.

    Args:
        arguments: The arguments of the training.
        dataset: Its dataset.
        processes: Number of its processes, if it was given.
        earlier: Identity of the directory that was at the path before.
    """
    from widenet.runs.documents import run_of
    from widenet.tracking.tracker_uri import TrackingUri
    from widenet.training.begin import dataset_of_run
    from widenet.training.run_path import identity

    out, mirror = run_of(arguments.out, resume=False)
    if arguments.overwrite and earlier is not None and identity(out) == earlier:
        typer.echo(f"Stopped before the first checkpoint: {out} is the earlier run again.", err=True)
        return
    if not (out / "checkpoints" / "latest").exists():
        typer.echo(
            "Stopped before the first checkpoint, so there is nothing to resume. Run the same command again.",
            err=True,
        )
        return
    documents = [str(path) for path in (arguments.network, arguments.training) if path is not None]
    again = ["widenet", "train", *documents, "--data", shown(arguments.data), "--out", shown(arguments.out)]
    flags = {
        "--processes": processes,
        "--device": arguments.device,
        "--weights-in": arguments.weights_in,
        "--scratch": arguments.scratch,
        "--track": None if arguments.track is None else TrackingUri.of(arguments.track).shown,
    }
    again += [f"{word}" for each in flags.items() if each[1] is not None for word in each]
    typer.echo(
        f"Stopped; {shown(arguments.out)} holds a checkpoint. Resume with:\n"
        f"  {shlex.join([*again, '--resume'])}",
        err=True,
    )
    leave_interim_report(out, dataset_of_run(dataset, out))
    if mirror is not None:
        mirror.publish()
