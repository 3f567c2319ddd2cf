"""`widenet plan` and `widenet schema`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from widenet.arguments import IN_STORES
from widenet.cli.declared import pairs, whole_number
from widenet.cli.output import AsJson, aligned, print_result
from widenet.errors import OptionError
from widenet.plan.layout import Job
from widenet.plan.memory import NAMES, WORDS
from widenet.plan.numbers import amount, bytes_of, duration
from widenet.spec.training import TrainingSpec

if TYPE_CHECKING:
    from widenet.plan.layout import WeightsIn
    from widenet.spec.network import NetworkSpec

_DOES_NOT_FIT = 1

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
        typer.Option(
            "--measure", help="Time a few steps here, and print how long training and recommending take."
        ),
    ] = False,
    weights_in: Annotated[
        _Place | None,
        typer.Option(
            help="Where wide weights and their optimizer state lie; as of widenet train. Default: device if"
            " they fit, else host for CUDA or disk for a CPU."
        ),
    ] = None,
    disk_bandwidth: Annotated[
        str | None,
        typer.Option(
            help="Bytes a second that a disk reads while it writes as many, such as 1.5GB; tells how long a"
            " step takes at least with --weights-in disk. Processes share it."
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

    Prints how many rows each process holds, memory, traffic, work, and the smallest number of devices; with
    --measure also how long it takes. The exit status is 1 if the training does not fit, and 0 if it
    fits or the memory is unknown.
    """
    from widenet.plan.binding import check_evaluation
    from widenet.plan.machine import available_threads
    from widenet.plan.memory import report, with_place

    if measure:
        _check_measurable(data, processes, device_memory)
    documents = _documents(network, training, data)
    check_evaluation(*documents)
    for note in documents[0].notes:
        typer.echo(note, err=True)
    layout, entries, num_examples = _facts(data, width or [], *documents)
    if weights_in == "disk" and device == "cuda":
        raise OptionError('must be "device" or "host" on CUDA', option="weights_in", value="disk")
    # Memory is named for GPUs, unless the weights lie on a disk.
    kind = device or ("cuda" if device_memory and weights_in != "disk" else "cpu")
    device_bytes = _memory(kind, processes, device_memory)
    threads = available_threads(processes) if kind == "cpu" else 1
    job = Job(layout, entries, num_examples, processes, kind, threads)
    if weights_in is None and device_bytes is not None:
        job = with_place(job, device_bytes)
    elif weights_in is not None and (weights_in, kind) != ("host", "cpu"):  # a CPU is its own host
        job = replace(job, weights_in=weights_in)
    if scratch is not None and not (measure and job.weights_in == "disk"):
        raise OptionError("needs measure and weights_in=disk", option="scratch")
    planned = report(job, device_bytes, more=device_memory is not None)
    if disk_bandwidth is not None:
        if job.weights_in != "disk":
            raise OptionError("needs weights_in=disk", option="disk_bandwidth")
        moved = max(planned["work"]["read_bytes"], planned["work"]["written_bytes"])
        planned["disk_seconds"] = processes * moved / bytes_of(disk_bandwidth, "disk_bandwidth")
    if measure and data is not None and planned.get("fits", True):
        planned["measured"] = _measured(*documents, data, device, job.weights_in, scratch)
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
    if data is None:
        raise OptionError(
            "must be given where no dataset is", option="network" if network is None else "training"
        )
    from widenet.data.dataset import Dataset
    from widenet.runs.documents import documents

    return documents(network, training, Dataset.open(data))


def _check_measurable(data: Path | None, processes: int, device_memory: str | None) -> None:
    if data is None:
        raise OptionError("needs data, a dataset to train on", option="measure")
    if processes != 1:
        raise OptionError("must be 1 with measure", option="processes", value=processes)
    if device_memory is not None:
        raise OptionError("must not stand beside measure", option="device_memory", value=device_memory)


def _measured(
    network: "NetworkSpec",
    training: "TrainingSpec",
    data: Path,
    device: str | None,
    weights_in: "WeightsIn",
    scratch: Path | None,
) -> dict[str, Any]:
    """Measure a training on this machine; return its seconds as plain values."""
    from widenet.data.dataset import Dataset
    from widenet.runs.measuring import measure
    from widenet.training.check import check_training

    dataset = Dataset.open(data)
    layout = check_training(network, training, dataset.path, dataset.manifest)
    return asdict(measure(layout, dataset, device, weights_in, scratch))


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
    if (data is None) == (not widths):
        raise OptionError("or data must be named, and not both", option="width")
    if data is not None:
        from widenet.data.manifest import Manifest
        from widenet.stores.fetch import readable
        from widenet.training.check import check_training

        path = readable(data, "dataset")
        manifest = Manifest.read(path)
        layout = check_training(network, training, path, manifest)
        return layout, manifest.entries_per_example, manifest.num_examples
    from widenet.data.manifest import MAX_WIDTH
    from widenet.plan.binding import bind, sequences_of
    from widenet.plan.layout import Width

    fields = network.fields
    numbers = pairs("width", "FIELD=N", widths)
    if numbers.keys() != set(fields):
        rule = f"must name each field that the network reads: {', '.join(fields)}"
        raise OptionError(rule, option="width", value=", ".join(numbers))
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
    held = " or ".join(
        str(number) for number in sorted({job.num_held(job.num_processes - 1), job.num_held(0)})
    )
    batch = (
        f"batch {job.num_examples:,}, {job.training.optimizer.kind}, {job.training.shards} shards, {held} per"
        " process"
    )
    parts = [
        (WORDS.get(name, name), amount(size))
        for name, size in report["memory_bytes"].items()
        if size or name not in ("snapshot", "window")
    ]
    work, wide = report["work"], [f"rows of {name}" for name in report["processes"][0]["rows"]]
    lines = [
        *_aligned(
            ("weight", "rows", "columns", "bytes", "held"),
            [_weight(name, row) for name, row in report["weights"].items()],
        ),
        "",
        *_aligned(("process", "shards", *wide, "memory"), [_process(row) for row in report["processes"]]),
        "",
        *_aligned(("each process", "bytes"), parts),
        "",
        (
            f"{batch}. A step, each process: {amount(work['operations'], 'FLOP')};"
            f" {amount(work['sent_bytes'])} sent, as much received."
        ),
        (
            f"A checkpoint: {amount(report['checkpoint_bytes'])} on disk; a run keeps"
            f" {job.training.checkpoints.keep_last}."
        ),
    ]
    if report["scratch_bytes"]:
        lines.append(_elsewhere(report))
    if assumed:
        lines.append(
            f"Assumed: {next(iter(job.entries.values())):g} stored entries per example and field. With --data"
            " widenet counts them."
        )
    if "measured" in report:
        lines += _measured_lines(report["measured"], job.training)
    if "fits" in report:
        lines.append(_verdict(job, report))
    return "\n".join(lines)


def _measured_lines(seconds: Mapping[str, Any], training: TrainingSpec) -> list[str]:
    """Sentences about how long a training and its recommendations take."""
    stops_early = training.evaluation is not None and training.evaluation.stop_after is not None
    beside = [
        f"{name} of {duration(taken)}"
        for name, taken in (
            ("evaluations", seconds["evaluation_seconds"]),
            ("checkpoints", seconds["checkpoint_seconds"]),
        )
        if taken is not None
    ]
    lines = [
        f"A step takes {duration(seconds['step_seconds'])} (measured: {seconds['source']}).",
        f"An epoch of {_count(seconds['steps_per_epoch'], 'step')}: {duration(seconds['epoch_seconds'])}."
        f" Training, {_count(training.epochs, 'epoch')}: {duration(seconds['training_seconds'])}"
        f"{', if it does not stop early' if stops_early else ''}"
        f"{', with ' + ' and '.join(beside) + ' each' if beside else ''}.",
    ]
    if seconds["recommendation_seconds"] is not None:
        lines.append(f"Recommendations for all: {duration(seconds['recommendation_seconds'])}.")
    return lines


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def _elsewhere(report: Mapping[str, Any]) -> str:
    """Sentences about weights on a disk or in the host's memory."""
    work, window = report["work"], report["memory_bytes"]["window"]
    read, written = amount(work["read_bytes"]), amount(work["written_bytes"])
    held = f"{amount(report['scratch_bytes'])} of weights and optimizer state"
    if report["weights_in"] == "host":
        return (
            f"In the host's memory, each process: {held}, of which the device holds {amount(window)}. A step"
            f" copies {read} to the device and {written} back."
        )
    seconds = report.get("disk_seconds")
    return (
        f"On disk, each process: {held}, of which memory holds {amount(window)}. A step reads {read} and"
        f" writes {written}" + ("." if seconds is None else f", at least {seconds:.3g} s.")
    )


def _verdict(job: Job, report: Mapping[str, Any]) -> str:
    """Return sentences on whether the training fits, and on how many devices it would."""
    memory_each = amount(report["device_memory_bytes"])
    verdict = "Fits" if report["fits"] else "Does not fit"
    if report["weights_in"] != "device":
        verdict += f" with {NAMES[report['weights_in']].lower()}"
    sizes = {WORDS.get(name, name): size for name, size in report["memory_bytes"].items()}
    total = sizes.pop("total")
    mostly = ", ".join(
        f"{name} {amount(sizes[name])}" for name in sorted(sizes, key=lambda name: -sizes[name])[:2]
    )
    need = f"{verdict}: a process needs {amount(total)} ({mostly}) of {memory_each}."
    if "fewest" not in report:
        shared = " That is this machine's, shared by its processes." if job.num_processes > 1 else ""
        return f"{need}{shared}"
    fewest = report["fewest"]
    held = "it" if job.weights_in == "device" else "the weights themselves"
    if fewest is None:
        return f"{need} No number of devices of that size holds {held}."
    each = f"{amount(fewest['memory_bytes'])} each"
    if job.weights_in != "device":
        return f"{need} The fewest devices that hold {held}: {fewest['processes']}, {each}."
    if fewest["processes"] == job.num_processes and fewest["shards"] == job.training.shards:
        return f"{need} No fewer would do." if job.num_processes > 1 else need
    more = "" if fewest["shards"] == job.training.shards else f' with "shards": {fewest["shards"]}'
    return f"{need} The fewest that hold it: {fewest['processes']}{more}, {each}."


def _weight(name: str, row: Mapping[str, Any]) -> tuple[str, ...]:
    columns = "" if row["columns"] is None else f"{row['columns']:,}"
    return (
        name,
        f"{row['rows']:,}",
        columns,
        amount(row["bytes"]),
        "in shards of rows" if row["wide"] else "whole by every process",
    )


def _process(row: Mapping[str, Any]) -> tuple[str, ...]:
    first, stop = row["shards"]
    shards = f"{first}" if stop == first + 1 else f"{first}-{stop - 1}"
    rows = [f"{number:,}" for number in row["rows"].values()]
    return f"{row['process']}", shards, *rows, amount(row["memory_bytes"])


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns of text: the first column and words to the left, numbers to the right."""
    right = [
        column
        for column in range(1, len(header))
        if all(row[column][:1].isdigit() or not row[column] for row in rows)
    ]
    return aligned([header, *rows], right)


def schema(
    document: Annotated[Literal["network", "training"], typer.Argument(help="The document.")],
) -> None:
    """Print the JSON Schema of a document, which lets editors complete and check it."""
    from widenet.spec.document import Document
    from widenet.spec.network import NetworkSpec

    models: dict[str, type[Document]] = {"network": NetworkSpec, "training": TrainingSpec}
    typer.echo(
        json.dumps(
            {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **models[document].model_json_schema(),
            },
            indent=2,
        )
    )
