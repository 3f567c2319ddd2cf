"""`widenet plan` and `widenet schema`."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from heapq import nlargest
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import pairs, whole_number
from widenet.cli.output import AsJson, aligned, print_result, say
from widenet.errors import OptionError
from widenet.plan.layout import Job
from widenet.plan.memory import NAMES, WORDS
from widenet.plan.numbers import amount, bytes_of, duration
from widenet.spec.training import TrainingSpec

if TYPE_CHECKING:
    from widenet.spec.network import NetworkSpec

_DOES_NOT_FIT = 1
_RARE = ("snapshot", "window")
"""Parts of the memory that are shown where a training needs them."""

_Place = Literal["device", "host", "disk"]
_Kind = Literal["cpu", "cuda"]


def plan(
    network: Annotated[
        Path | None,
        typer.Argument(
            metavar="NETWORK",
            help="network.json: the layers. Default: those of widenet train --no-validation.",
        ),
    ] = None,
    training: Annotated[
        Path | None,
        typer.Argument(
            metavar="TRAINING",
            help="training.json: optimizer, batch, shards. Default: that of widenet train --no-validation.",
        ),
    ] = None,
    data: Annotated[
        Path | None, IN_STORES, typer.Option(help="The dataset directory, which has the widths.")
    ] = None,
    width: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD=N", help="Width of a field, if there is no dataset yet; once per field."),
    ] = None,
    device_memory: Annotated[
        str | None,
        typer.Option(
            help="Memory of each GPU, such as 141GB; of each process with --device cpu. Default: this"
            " machine's memory, divided by the processes."
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(help="Number of processes, one per device, at most the number of shards.", min=1)
    ] = 1,
    device: Annotated[
        _Kind | None, typer.Option(help="cpu or cuda. Default: cuda with --device-memory, else cpu.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option("--measure", help="Time a few steps here, and print how long training takes."),
    ] = False,
    weights_in: Annotated[
        _Place | None,
        typer.Option(
            help="Where wide weights and their optimizer state lie; as of widenet train. Default: device if"
            " they fit, else host for CUDA or disk for a CPU."
        ),
    ] = None,
    scratch: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the file of weights on a disk, with --measure. Default: beside the dataset."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tell what a training needs before it starts.

    Prints memory, traffic, and the smallest number of devices; with --measure also how long it takes. --json
    also tells which rows each process holds. The exit status is 1 if the training does not fit, and 0 if it
    fits or the memory is unknown.
    """
    from widenet.plan.binding import check_evaluation
    from widenet.plan.machine import available_threads
    from widenet.plan.memory import report, with_place

    require = OptionError.require
    require(not measure or data is not None, "needs `data`", option="measure")
    require(not measure or processes == 1, "must be 1 with `measure`", option="processes", value=processes)
    require(not (measure and device_memory), "must not stand beside `measure`", option="device_memory")
    documents = _documents(network, training, data)
    check_evaluation(*documents)
    for note in documents[0].notes:
        say(note)
    layout, entries, num_examples = _facts(data, width or [], *documents)
    is_on_cuda = weights_in == "disk" and device == "cuda"
    require(not is_on_cuda, 'must be "device" or "host" on CUDA', option="weights_in", value="disk")
    # Memory is named for GPUs, unless the weights lie on a disk.
    kind = device or ("cuda" if device_memory and weights_in != "disk" else "cpu")
    device_bytes = _memory(kind, processes, device_memory)
    threads = available_threads(processes) if kind == "cpu" else 1
    job = Job(layout, entries, num_examples, processes, kind, threads)
    if weights_in is None and device_bytes is not None:
        job = with_place(job, device_bytes)
    elif weights_in is not None and (weights_in, kind) != ("host", "cpu"):  # a CPU is its own host
        job = replace(job, weights_in=weights_in)
    is_on_disk = job.weights_in == "disk"
    require(
        scratch is None or (measure and is_on_disk),
        "needs `measure`, and weights on a disk",
        option="scratch",
    )
    planned = report(job, device_bytes, more=device_memory is not None)
    if measure and data is not None and planned.get("fits", True):
        from widenet.data.dataset import Dataset
        from widenet.runs.measuring import measure as measured

        planned["measured"] = asdict(measured(layout, Dataset.open(data), device, job.weights_in, scratch))
    print_result(as_json, planned, plan_table(job, planned, assumed=data is None))
    if not planned.get("fits", True):
        raise typer.Exit(_DOES_NOT_FIT)


def _documents(
    network: Path | None, training: Path | None, data: Path | None
) -> "tuple[NetworkSpec, TrainingSpec]":
    """Return the documents of a training; without them, the default ones for a dataset."""
    if network is not None and training is not None:
        from widenet.spec.network import NetworkSpec

        return NetworkSpec.read(network), TrainingSpec.read(training)
    missing = "network" if network is None else "training"
    if data is None:
        raise OptionError("must be given where no dataset is", option=missing)
    from widenet.data.dataset import Dataset
    from widenet.runs.documents import documents

    return documents(network, training, Dataset.open(data))


def _memory(kind: _Kind, processes: int, device_memory: str | None) -> int | None:
    """Return the memory of each process; None if it is unknown."""
    from widenet.plan.machine import available_memory

    if device_memory:
        return bytes_of(device_memory, "device_memory")
    available = None if kind == "cuda" else available_memory()
    return available and available // processes


def _facts(
    data: Path | None,
    widths: list[str],
    network: "NetworkSpec",
    training: "TrainingSpec",
) -> tuple[Any, ...]:
    """The layout, the entries per example, and the number of examples; the last two may be None.

    Without a dataset, inputs with a shape are dense, and the network tells which fields are sequences.
    """
    OptionError.require(
        (data is None) != (not widths), "or `data` must be named, and not both", option="width"
    )
    if data is not None:
        from widenet.data.manifest import Manifest
        from widenet.stores.folders import readable
        from widenet.training.check import check_training

        path = readable(data, "dataset")
        manifest = Manifest.read(path)
        layout = check_training(network, training, path, manifest)
        return layout, manifest.entries_per_example, manifest.num_examples
    from widenet.data.manifest import MAX_WIDTH
    from widenet.plan.binding import bind, sequences_of
    from widenet.plan.layout import Width

    numbers = pairs("width", "FIELD=N", widths)
    rule = f"must name each field that the network reads: {', '.join(network.fields)}"
    is_named = numbers.keys() == set(network.fields)
    OptionError.require(is_named, rule, option="width", value=", ".join(numbers))
    kinds = dict.fromkeys(sequences_of(network), "sequence")
    kinds |= {layer.field: "dense" for layer in network.inputs if layer.shape is not None}
    widths_by_field = {
        name: Width(whole_number("width", text, MAX_WIDTH), kinds.get(name, "sparse"))
        for name, text in numbers.items()
    }
    return bind(network, training, widths_by_field), None, None


def plan_table(job: Job, report: Mapping[str, Any], assumed: bool) -> str:
    """Format a report of `widenet.plan.memory.report`.

    Args:
        job: The planned training.
        report: The report.
        assumed: Whether the number of entries per example is assumed, because there is no dataset.
    """
    training, work = job.training, report["work"]
    held = sorted({job.num_held(job.num_processes - 1), job.num_held(0)})
    sizes = {name: size for name, size in report["memory_bytes"].items() if size or name not in _RARE}
    tables: list[list[tuple[str, ...]]] = [
        [("weight", "rows", "columns", "bytes", "held"), *starmap(_weight, report["weights"].items())],
        [("each process", "bytes"), *((WORDS.get(name, name), amount(size)) for name, size in sizes.items())],
    ]
    lines = [line for rows in tables for line in (*aligned(rows), "")]
    lines += [
        f"batch {job.num_examples:,}, {training.optimizer.kind}, {training.shards} shards,"
        f" {' or '.join(map(str, held))} per process. A step, each process:"
        f" {amount(work['sent_bytes'])} sent, as much received.",
        f"A checkpoint: {amount(report['checkpoint_bytes'])} on disk; a run keeps"
        f" {training.checkpoints.keep_last}.",
    ]
    if report["scratch_bytes"]:
        lines.append(_elsewhere(report))
    if assumed:
        entries = next(iter(job.entries.values()))
        lines.append(
            f"Assumed: {entries:g} stored entries per example and field. With --data widenet counts them."
        )
    if "measured" in report:
        lines += _measured_lines(report["measured"], training)
    if "fits" in report:
        lines.append(_verdict(job, report))
    return "\n".join(lines)


def _measured_lines(seconds: Mapping[str, Any], training: TrainingSpec) -> Iterator[str]:
    """Sentences about how long a training takes."""
    names = ("step", "epoch", "evaluation", "training")
    took = [(name, seconds[f"{name}_seconds"]) for name in names]
    listed = ", ".join(f"{name} {duration(each)}" for name, each in took if each is not None)
    yield f"Measured ({seconds['source']}): {listed}."
    stops_early = training.evaluation is not None and training.evaluation.stop_after is not None
    early = ", if it does not stop early" if stops_early else ""
    yield f"Training has {training.epochs:,} epochs of {seconds['steps_per_epoch']:,} steps{early}."


def _elsewhere(report: Mapping[str, Any]) -> str:
    """Sentences about weights on a disk or in the host's memory."""
    work, window = report["work"], report["memory_bytes"]["window"]
    read, written = amount(work["read_bytes"]), amount(work["written_bytes"])
    place = "On disk" if report["weights_in"] == "disk" else "In the host's memory"
    return (
        f"{place}, each process: {amount(report['scratch_bytes'])} of weights and optimizer state, of which"
        f" the device holds {amount(window)}. A step reads {read} and writes {written}."
    )


def _verdict(job: Job, report: Mapping[str, Any]) -> str:
    """Return sentences on whether the training fits, and on how many devices it would."""
    verdict = "Fits" if report["fits"] else "Does not fit"
    if report["weights_in"] != "device":
        verdict += f" with {NAMES[report['weights_in']].lower()}"
    sizes = {WORDS.get(name, name): size for name, size in report["memory_bytes"].items()}
    total = sizes.pop("total")
    mostly = ", ".join(f"{name} {amount(sizes[name])}" for name in nlargest(2, sizes, key=sizes.__getitem__))
    need = (
        f"{verdict}: a process needs {amount(total)} ({mostly}) of {amount(report['device_memory_bytes'])}."
    )
    if "fewest" not in report:
        return f"{need} Processes share this machine's memory." if job.num_processes > 1 else need
    fewest = report["fewest"]
    if fewest is None:
        return f"{need} No number of devices of that size holds all of it."
    shards = "" if fewest["shards"] == job.training.shards else f' with "shards": {fewest["shards"]}'
    each = amount(fewest["memory_bytes"])
    return f"{need} The fewest devices that hold all of it: {fewest['processes']}{shards}, {each} each."


def _weight(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    columns = "" if row["columns"] is None else f"{row['columns']:,}"
    held = "in shards of rows" if row["wide"] else "whole by every process"
    return name, f"{row['rows']:,}", columns, amount(row["bytes"]), held


def schema(
    document: Annotated[Literal["network", "training"], typer.Argument(help="The document.")],
) -> None:
    """Print the JSON Schema of a document, which lets editors complete and check it."""
    from widenet.spec.network import NetworkSpec

    model: type[NetworkSpec | TrainingSpec] = NetworkSpec if document == "network" else TrainingSpec
    dialect = "https://json-schema.org/draft/2020-12/schema"
    typer.echo(json.dumps({"$schema": dialect, **model.model_json_schema()}, indent=2))
