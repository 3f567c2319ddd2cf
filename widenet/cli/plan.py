"""`widenet plan`."""

import json
import re
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from widenet.errors import OptionError, did_you_mean

if TYPE_CHECKING:
    from widenet.spec.network import NetworkSpec

_DOES_NOT_FIT = 1
_NUMBER = re.compile(r"[0-9]+(_[0-9]+)*|[0-9]+(\.[0-9]+)?[eE][0-9]{1,2}")


_Width = Annotated[
    list[str] | None,
    typer.Option(metavar="FIELD=N", help="Width of a field, if there is no dataset yet; once per field."),
]
_DeviceMemory = Annotated[
    str | None,
    typer.Option(
        help="Memory of each device, such as 141GB. Default: this machine's memory, divided by the processes."
    ),
]


class _Kind(StrEnum):
    cpu = "cpu"
    cuda = "cuda"


def plan(
    network: Annotated[Path, typer.Argument(metavar="NETWORK", help="network.json: the layers.")],
    training: Annotated[
        Path, typer.Argument(metavar="TRAINING", help="training.json: optimizer, batch, shards.")
    ],
    data: Annotated[Path | None, typer.Option(help="The dataset directory, which has the widths.")] = None,
    width: _Width = None,
    device_memory: _DeviceMemory = None,
    processes: Annotated[
        int, typer.Option(help="Number of processes, one per device, at most the number of shards.", min=1)
    ] = 1,
    device: Annotated[
        _Kind | None, typer.Option(help="cpu or cuda. Default: cuda with --device-memory, else cpu.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Tell what a training needs before it starts.

    Prints how many rows each process holds, memory, traffic, work, and the smallest number of devices.
    The exit status is 1 if the training does not fit, and 0 if it fits or the memory is unknown.
    """
    from widenet.cli.plan_table import plan_table
    from widenet.plan.binding import bind
    from widenet.plan.evaluation import check_evaluation
    from widenet.plan.job import Job
    from widenet.plan.machine import available_memory, available_threads
    from widenet.plan.numbers import bytes_of
    from widenet.plan.report import report
    from widenet.spec.network import NetworkSpec
    from widenet.spec.training import TrainingSpec

    documents = NetworkSpec.read(network), TrainingSpec.read(training)
    check_evaluation(*documents)
    for note in documents[0].notes:
        typer.echo(note, err=True)
    fields, *sizes = _facts(data, width or [], documents[0])
    kind = device or (_Kind.cuda if device_memory else _Kind.cpu)
    threads = available_threads(processes) if kind == _Kind.cpu else 1
    job = Job.of(
        bind(*documents, fields),
        *sizes,
        num_processes=processes,
        device=kind.value,
        num_threads=threads,
    )
    available = None if kind == _Kind.cuda else available_memory()
    memory = (
        bytes_of(device_memory, "--device-memory") if device_memory else available and available // processes
    )
    planned = report(job, memory, more=device_memory is not None)
    typer.echo(json.dumps(planned, indent=2) if as_json else plan_table(job, planned, assumed=data is None))
    if not planned.get("fits", True):
        raise typer.Exit(_DOES_NOT_FIT)


def _facts(data: Path | None, widths: list[str], network: "NetworkSpec") -> tuple[Any, ...]:
    """The fields, and of a dataset also its entries per example and number of examples.

    Without a dataset, inputs with a shape are dense, and the network tells which fields are sequences.
    """
    if data is None and not widths:
        raise OptionError("plan needs either --data DIR or --width FIELD=N.")
    if data is not None and widths:
        raise OptionError(
            "--width must not stand beside --data: the dataset knows the widths. Leave one out."
        )
    if data is not None:
        from widenet.data.manifest import Manifest

        manifest = Manifest.read(data)
        return manifest.fields, manifest.entries_per_example, manifest.num_examples
    from widenet.plan.layout import Width
    from widenet.plan.positions import sequences_of

    pairs, fields = [_width(text) for text in widths], network.fields
    if unknown := next((name for name, _ in pairs if name not in fields), None):
        raise OptionError(
            "--width must name a field that the network reads; got"
            f' "{unknown}".{did_you_mean(unknown, fields)}'
        )
    kinds = dict.fromkeys(sequences_of(network), "sequence")
    kinds |= {layer.field: "dense" for layer in network.inputs if layer.shape is not None}
    widths_by_field = {name: Width(number, kinds.get(name, "sparse")) for name, number in pairs}
    missing = [name for name in fields if name not in widths_by_field]
    if missing:
        named = ", ".join(missing)
        raise OptionError(
            f"--width must name every field that the network reads; missing: {named}. Add --width"
            f" {missing[0]}=N."
        )
    for name, _ in pairs:
        if [known for known, _ in pairs].count(name) > 1:
            raise OptionError(
                f"--width must name each of {', '.join(fields)} once; got"
                f" {', '.join(known for known, _ in pairs)}."
            )
    return (widths_by_field,)


def _width(text: str) -> tuple[str, int]:
    from widenet.data.manifest import MAX_WIDTH

    name, _, number = text.rpartition("=")
    width = Decimal(number if _NUMBER.fullmatch(number) else 0)
    if not name or not 1 <= width <= MAX_WIDTH or width != int(width):
        raise OptionError(f'--width must be FIELD=N with N from 1 to {MAX_WIDTH:,}; got "{text}".')
    return name, int(width)
