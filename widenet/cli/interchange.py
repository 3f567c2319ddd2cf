"""Commands that exchange networks with other programs: export, import."""

from pathlib import Path
from typing import Annotated

import typer

from widenet.cli.declared import IndexFiles, Run, index_files, pairs
from widenet.cli.output import AsJson, print_result, say
from widenet.errors import OptionError


def export(
    run: Run,
    out: Annotated[Path, typer.Option(help="The file to write: .onnx.")],
    top_k: Annotated[
        int | None, typer.Option(help="Return the best units and their scores instead of all scores.", min=1)
    ] = None,
    include_seen: Annotated[
        bool, typer.Option("--include-seen", help="With --top-k, also return units that the example has.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier network that widenet wrote.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a trained network for other programs, and the names of its items beside it."""
    from widenet.interop.formats import writer_of

    OptionError.require(top_k is not None or not include_seen, "needs `top_k`", option="include_seen")
    written = writer_of(out).export_model(run, out, top_k, not include_seen, overwrite)
    sizes = {path: path.stat().st_size for path in written}
    facts = [{"path": path, "num_bytes": size} for path, size in sizes.items()]
    print_result(as_json, facts, *(f"{path}: {size:,} bytes" for path, size in sizes.items()))


def import_network(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="Keras (.keras, .h5), Caffe (.caffemodel, .prototxt with --weights) or DSSTNE's .nc.",
        ),
    ],
    out: Annotated[Path, typer.Option(help="The run directory to make.")],
    weights: Annotated[Path | None, typer.Option(help="The .caffemodel of a .prototxt.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="A dataset with the fields of the network's inputs and outputs.")
    ] = None,
    features: IndexFiles = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FIELD: the dataset's field of an input or output; may be given several times."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make a run from a network that another program trained.

    It can predict at once; `widenet train --from` trains it further.

    widenet recognizes the format by the suffix of the file. For DSSTNE's network documents, which have no
    weights, see `widenet dsstne translate`; for its data, `widenet dsstne import-data`.
    """
    from widenet.interop.import_network import import_network as run

    named, names = index_files(features or []), pairs("field", "NAME=FIELD", field or [])
    model = run(
        file,
        out,
        weights=weights,
        data=data,
        features=named,
        fields=names,
        overwrite=overwrite,
        say=say,
    )
    units = model.network.layout.units
    fields = {name: {"kind": kept.kind, "width": kept.width} for name, kept in model.run.fields.items()}
    layers = {layer.name: units[layer.name] for layer in model.run.network.layers}
    print_result(
        as_json,
        {"run": out, "units": layers, "fields": fields},
        f"{out}: {', '.join(f'{name} {size:,}' for name, size in layers.items())}",
        *(f'  field "{name}": {kept["kind"]}, {kept["width"]:,}' for name, kept in fields.items()),
    )
