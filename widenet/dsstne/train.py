"""DSSTNE's command `train`, which makes a run and a trained network from a document and data sets."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.manifest import Manifest
from widenet.dsstne.data import FACTS, Attribute, import_data
from widenet.dsstne.model_export import write_network
from widenet.dsstne.netcdf import check_places
from widenet.dsstne.spec.network import (
    Layers,
    Translation,
    is_dsstne,
    separated,
    sources_of,
    translation,
)
from widenet.dsstne.spec.settings import lowered
from widenet.errors import DocumentError, OptionError
from widenet.model.network import Network
from widenet.parallel.exchange import Exchange
from widenet.parallel.group import by_leader, device_for, exchange_for, join
from widenet.runs import Model, Silence
from widenet.runs import train as train_run
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.state import Report


def joined() -> Exchange:
    """Join the process group that a launcher announced, and return this process's exchange."""
    device = device_for(None)
    join(device)
    return exchange_for(TrainingSpec().shards, device)


@contextmanager
def shared_folder(exchange: Exchange, out: Path) -> Iterator[Path]:
    """Share one temporary folder between all processes; the leader creates and removes it.

    Args:
        exchange: The exchange of this process.
        out: A file to write; the folder is created beside it.

    Raises:
        OptionError: The file is a directory, or its folder does not exist.
    """
    check_places([out])
    with ExitStack() as stack:
        made = (
            stack.enter_context(TemporaryDirectory(dir=out.parent, prefix=f".{out.name}."))
            if exchange.leads
            else ""
        )
        yield Path(exchange.collect(made, "folder")[0])


SEED = 12134
"""DSSTNE's seed; no flag changes it."""


def train(
    config: Path,
    data: Sequence[Path],
    out: Path,
    settings: Mapping[str, Any],
    report: Report,
    *,
    checkpoint: Path | None = None,
) -> Model:
    """Train DSSTNE's network on its data sets, and write the trained network as DSSTNE would.

    Every process that a launcher has started must call this. The run is kept in `out`.run, and an interrupted
    training resumes from it.

    Args:
        config: The network document.
        data: NetCDF files with the data sets that the layers name.
        out: The NetCDF file to write; must be new.
        settings: Values of a training document.
        report: Receives the progress.
        checkpoint: Prefix of the files that get the network at every checkpoint: NAME10.nc after ten epochs.
            Earlier files are replaced. The default is `out`.

    Raises:
        DocumentError, DataError, OptionError: A file or option is wrong.
        WidenetError: The training fails.
    """
    OptionError.require(not out.exists(), "exists already", place=out)
    prefix = out if checkpoint is None else checkpoint
    OptionError.require(
        checkpoint is None or checkpoint.parent.is_dir(),
        "must be in a folder that exists",
        place=checkpoint,
    )
    values = NetworkSpec.read_values(config)
    sets, targets = sets_of(values, config)
    run, exchange = out.with_name(f"{out.name}.run"), joined()
    leader_report = report if exchange.leads else Silence()
    with shared_folder(exchange, out) as folder:
        sources = list(dict.fromkeys(data))
        by_leader(exchange, lambda: import_data(sources, folder / "data", targets=targets, only=sets), "data")
        dataset = Dataset.open(folder / "data")
        network, document = network_of(values, config, dataset.manifest)
        for note in document.notes:
            leader_report.say(note)
        training = TrainingSpec.of(
            {
                "seed": SEED,
                "checkpoints": {"every_epochs": 10},
                **document.training,
                **settings,
            },
            str(config),
        )
        resumes = exchange.collect(run.exists(), "run")[0]
        if resumes:
            leader_report.say(f"{run} exists; resuming.")
        kinds = {name: field.kind for name, field in dataset.fields.items()}

        def write_checkpoint(net: Network, epoch: int) -> None:
            if epoch % training.checkpoints.every_epochs == 0:
                write_network(net, training, kinds, prefix.parent / f"{prefix.name}{epoch}.nc", str(run))

        model = train_run(
            network, training, dataset, run, resume=resumes, report=report, after_epoch=write_checkpoint
        )
        write_network(model.network, training, kinds, out, str(run))
    return model


def sets_of(values: dict[str, Any], config: Path) -> tuple[list[str], list[str]]:
    """Return the data sets that a DSSTNE network's layers name, and of these its outputs'.

    Raises:
        DocumentError: The document is not a DSSTNE network.
    """
    DocumentError.require(
        is_dsstne(values),
        'must be a DSSTNE network: at least one layer needs a "DataSet"',
        place=config,
    )
    document = translation(_with_dimensions(values, {}, unknown=1), str(config))
    named = [layer for layer in document.network["layers"] if "field" in layer]
    return [layer["field"] for layer in named], [
        layer["field"] for layer in named if layer["kind"] == "output"
    ]


def network_of(values: dict[str, Any], config: Path, manifest: Manifest) -> tuple[NetworkSpec, Translation]:
    """Translate a DSSTNE network for its data sets.

    Returns:
        The network, and the translation with its training settings and notes.

    Raises:
        DocumentError: The document breaks a rule.
    """
    facts: Any = manifest.source[FACTS]
    dense = {
        name: each["dimensions"] for name, each in facts.items() if manifest.fields[name].kind == "dense"
    }
    document = translation(_with_dimensions(values, dense), str(config))
    layers = document.network["layers"]
    for place, layer in enumerate(layers):
        attributes = facts.get(layer.get("field"), {"attributes": ()})["attributes"]
        if layer.get("kind") == "output" and Attribute.SPARSE_IGNORE_ZERO.name in attributes:
            layer["others"] = "ignore"  # DSSTNE then counts only the listed features in the loss
        if layer.get("kind") == "output" and _shares_small(layers, layer, manifest):
            if layer["units"] == "auto" and layer["field"] in manifest.fields:
                layer["units"] = manifest.fields[layer["field"]].width
            layers[place : place + 1] = separated(layer)
    return NetworkSpec.of(document.network, f"{config}, translated"), document


def _shares_small(layers: Layers, output: dict[str, Any], manifest: Manifest) -> bool:
    """Return whether an output shares weights that are not in shards, such as those of a dense input."""
    sparse = [layer["name"] for layer in layers if layer.get("kind") == "input"]
    fields = {layer["name"]: manifest.fields.get(layer["field"]) for layer in layers if "field" in layer}
    sparse = [name for name in sparse if (field := fields[name]) is None or field.kind != "dense"]
    shares = output.get("weights", [])
    for share in shares if isinstance(shares, list) else [shares]:
        place = next((place for place, layer in enumerate(layers) if layer["name"] == share["layer"]), 0)
        source = share.get("layer_source") or sources_of(layers, place)[0]
        if layers[place].get("kind") != "output" and source not in sparse:
            return True
    return False


def _with_dimensions(
    values: dict[str, Any], sets: Mapping[str, list[int]], unknown: int | None = None
) -> dict[str, Any]:
    """Copy a network, and set N of dense inputs and of convolutional outputs to their data set's dimensions.

    Args:
        values: The network document.
        sets: Dimensions of the dense data sets.
        unknown: Filters of convolutional outputs whose data set is not among `sets`.
    """
    network = lowered(values, "network")
    layers = network["layers"] if isinstance(network["layers"], list) else [network["layers"]]
    resized = []
    for position, layer in enumerate(layers):
        settings = lowered(layer, "layer")
        dimensions = sets.get(str(settings.get("dataset")), [])
        kind = str(settings.get("kind", "Hidden" if position else "Input")).lower()
        convolves = (
            str(settings.get("type")).lower() == "convolutional" and str(settings.get("n")).lower() == "auto"
        )
        if len(dimensions) > 1 and (kind == "input" or convolves):
            settings["n"] = dimensions
        elif convolves and unknown is not None:
            settings["n"] = unknown
        resized.append(settings)
    return {**network, "layers": resized}
