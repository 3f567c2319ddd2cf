"""DSSTNE's command `train`: its network and data sets in, a run and its trained network out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from widenet.data.dataset import Dataset
from widenet.data.manifest import Manifest
from widenet.dsstne.data import FACTS, import_data, is_listed_only
from widenet.dsstne.model_export import write_network
from widenet.dsstne.shared_folder import joined, shared_folder
from widenet.dsstne.spec.network import Translation, is_dsstne, translation
from widenet.dsstne.spec.settings import lowered
from widenet.errors import DocumentError, OptionError
from widenet.model.build import build
from widenet.model.network import Network
from widenet.parallel.group import by_leader, device_for, exchange_for
from widenet.plan.layout import Layout
from widenet.runs import Model, Silence
from widenet.runs import train as train_run
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.check import check_training
from widenet.training.reports import Report

SEED = 12134
"""DSSTNE's own, which no flag changes."""


def train(
    config: Path,
    data: Sequence[Path],
    out: Path,
    settings: Mapping[str, Any],
    report: Report,
    *,
    initial: Path | None = None,
    checkpoint: Path | None = None,
) -> Model:
    """Train DSSTNE's network on its data sets, and write the trained network as DSSTNE would.

    Every process that a launcher has started must call this. The run stays in `out`.run; a training that was
    cut short is resumed from there.

    Args:
        config: The network document.
        data: NetCDF files with the data sets that the layers name.
        out: The NetCDF file to write; must be new.
        settings: Values of a training document.
        report: Receives the progress.
        initial: A file to write the network to before the first step; replaced.
        checkpoint: Beginning of the names of the files to which the network is written whenever the training
            saves: NAME10.nc after ten epochs. Earlier files are replaced. Unset: `out`.

    Raises:
        DocumentError, DataError, OptionError: And what a training raises.
    """
    if out.exists():
        raise OptionError(f"-n must be a new file; {out} exists. Name another, or move it away.")
    begins = out if checkpoint is None else checkpoint
    if checkpoint is not None and not checkpoint.parent.is_dir():
        raise OptionError(
            f"{checkpoint}: checkpoints must be in a folder that exists. Make {checkpoint.parent} first."
        )
    values = NetworkSpec.read_values(config)
    targets = outputs_of(values, config)
    run, exchange = out.with_name(f"{out.name}.run"), joined()
    teller = report if exchange.leads else Silence()
    with shared_folder(exchange, out, "-n") as folder:
        by_leader(
            exchange, lambda: import_data(list(dict.fromkeys(data)), folder / "data", targets=targets), "data"
        )
        dataset = Dataset.open(folder / "data")
        network, found = network_of(values, config, dataset.manifest)
        for note in found.notes:
            teller.say(note)
        training = TrainingSpec.of(
            {"seed": SEED, "brake": True, "checkpoints": {"every_epochs": 10}, **found.training, **settings},
            str(config),
        )
        goes_on = exchange.collect(run.exists(), "run")[0]
        if goes_on:
            teller.say(f"{run} holds a training that {_state(run, out)}.")
        elif initial is not None:
            write_initial(check_training(network, training, dataset), dataset, initial)
        kinds = {name: field.kind for name, field in dataset.fields.items()}

        def write_checkpoint(net: Network, epoch: int) -> None:
            if epoch % training.checkpoints.every_epochs == 0:
                write_network(net, training, kinds, begins.parent / f"{begins.name}{epoch}.nc", str(run))

        model = train_run(
            network, training, dataset, run, resume=goes_on, report=report, after_epoch=write_checkpoint
        )
        write_network(model.network, training, kinds, out, str(run))
    return model


def _state(run: Path, out: Path) -> str:
    """What became of the training of a run, for the sentence that resumes it."""
    if (run / "model").exists():
        return f"has ended; {out} is written again"
    return "was cut short; going on"


def outputs_of(values: dict[str, Any], config: Path) -> list[str]:
    """The data sets of the outputs of a DSSTNE network; raises DocumentError for another document."""
    if not is_dsstne(values):
        raise DocumentError(
            f'{config} must be a DSSTNE network, of which a layer has a "DataSet"; use `widenet train` for'
            " others."
        )
    found = translation(_with_dimensions(values, {}, unknown=1), str(config))
    return [layer["field"] for layer in found.network["layers"] if layer.get("kind") == "output"]


def network_of(values: dict[str, Any], config: Path, manifest: Manifest) -> tuple[NetworkSpec, Translation]:
    """A DSSTNE network over its data sets, and what its translation says besides; raises DocumentError."""
    known: Any = manifest.source.get(FACTS) or {}
    dense = {
        name: facts
        for name, facts in known.items()
        if name in manifest.fields and manifest.fields[name].kind == "dense"
    }
    found = translation(_with_dimensions(values, dense), str(config))
    for layer in found.network["layers"]:
        if layer.get("kind") == "output" and is_listed_only(manifest, layer["field"]):
            layer["others"] = "ignore"
    return NetworkSpec.of(found.network, f"{config}, in widenet's words"), found


def write_initial(layout: Layout, dataset: Dataset, out: Path) -> None:
    """Write the network that a training begins with, for DSSTNE; raises FitError as `export_model` does.

    Every process that a launcher has started must call it, and builds its own shards alone.
    """
    device, kinds = device_for(None), {name: field.kind for name, field in dataset.fields.items()}
    counts = {field: dataset.counts(field) for field in layout.network.counted_fields}
    built = build(layout, exchange_for(layout.num_shards, device), device, counts)
    write_network(built, layout.training, kinds, out, str(out))


def _with_dimensions(
    values: dict[str, Any], sets: Mapping[str, Any], unknown: int | None = None
) -> dict[str, Any]:
    """The same network, its dense inputs, and outputs that convolve, given the dimensions of their data sets
    where those have several.

    sets: what is known of the dense ones. unknown: filters of the outputs that convolve over another set.
    """
    found = lowered(values, "network")
    layers = found["layers"] if isinstance(found["layers"], list) else [found["layers"]]
    spelled = []
    for position, layer in enumerate(layers):
        given = lowered(layer, "layer")
        dimensions = sets.get(str(given.get("dataset")), {}).get("dimensions", [])
        kind = str(given.get("kind", "Hidden" if position else "Input")).lower()
        convolves = (
            str(given.get("type")).lower() == "convolutional" and str(given.get("n")).lower() == "auto"
        )
        if len(dimensions) > 1 and (kind == "input" or convolves):
            given["n"] = dimensions
        elif convolves and unknown is not None:
            given["n"] = unknown
        spelled.append(given)
    return {**found, "layers": spelled}
