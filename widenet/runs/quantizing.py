"""Makes runs in 8 bits of trained ones."""

import shutil
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from widenet.arguments import typed
from widenet.data.known import RUN_FIELDS
from widenet.errors import CheckpointError, OptionError
from widenet.model.network import Network
from widenet.model.weight import QuantizedPart, fits_in_8_bits
from widenet.parallel.group import by_leader
from widenet.runs.cutting import Cut
from widenet.runs.model import Model
from widenet.training.run_directory import RunDirectory, WeightsFacts, with_network_of
from widenet.training.run_path import DATA, FITTED, START, WHOLE, begun, check, replaced

_COPIED = (
    "network.json",
    FITTED,
    "training.json",
    RUN_FIELDS,
    "vocabulary",
    "attributes",
    "log.jsonl",
    START,
)


@typed
def quantize(run: str | Path, out: str | Path, overwrite: bool = False) -> Model:
    """Make a run in 8 bits of a trained one.

    The vectors of sparse inputs and outputs become whole numbers, with a scale for each. All else stays.
    Scores then come from exact products of whole numbers, so that neither batches nor threads nor processes
    change them.

    Args:
        run: The trained run.
        out: The run directory to make.
        overwrite: Replace an earlier run at `out`.

    Returns:
        The model of the new run, on the CPU.

    Raises:
        CheckpointError: The run has not ended, or `out` is taken or cannot be written.
        OptionError: The run is in 8 bits already, or has no weights that could be; or `out` lies in it.
    """
    path, source = Path(out), RunDirectory.open(Path(run))
    if not (source.path / "model").is_dir():
        raise CheckpointError("has not ended", place=source.path)
    if overwrite and any((each / DATA).is_dir() for each in (path, replaced(path))):
        raise CheckpointError("holds a dataset, which would go with it", place=path)
    if path.resolve().is_relative_to(source.path.resolve()):
        raise OptionError(
            f"must not lie in {source.path}, which it is made of", option="out", value=str(path)
        )
    check(path, [source.path], overwrite)
    model = Model.load(source.path, device="cpu")
    network = model.network
    if WeightsFacts.of(model.facts).in_8_bits:
        raise OptionError("is in 8 bits already", place=source.path)
    if not any(map(fits_in_8_bits, network.layout.weights.values())):
        rule = "has no vectors of sparse inputs, or of outputs after hidden layers, to put into 8 bits"
        raise OptionError(rule, place=source.path)
    own = {name: fact for name, fact in model.facts.items() if name not in ("documents", "fingerprint")}
    own |= {"made_of": str(source.path.resolve()), "in_8_bits": True}
    with ExitStack() as stack:
        copied = begun(path, partial(_copy, source), [source.path], overwrite, is_whole=True)
        by_leader(network.exchange, lambda: stack.enter_context(copied), "run directory")
        put_in_8_bits(network)
        saved = RunDirectory.open(path).save_model("model", network, own)
    return Model(with_network_of(RunDirectory.open(path), saved), network, saved.facts)


def put_in_8_bits(network: Network) -> None:
    """Put the matrices of sparse inputs and outputs into 8 bits, one at a time."""
    for name, weight in network.wide.items():
        if fits_in_8_bits(network.layout.weights[name]):
            parts = weight.parts
            made = network.exchange.each(lambda shard: QuantizedPart.of(parts[shard]))  # noqa: B023 at once
            weight.parts = dict(zip(network.exchange.shards, made, strict=True))


def num_bytes(run: str | Path) -> int:
    """Return the bytes of a run's weights on disk."""
    return sum(file["bytes"] for file in RunDirectory.open(Path(run)).model().files.values())


def _copy(run: RunDirectory, new: Path) -> None:
    """Copy what a run has beside its weights to a new folder; raises CheckpointError, OSError."""
    for name in _COPIED:
        if (run.path / name).is_dir():
            shutil.copytree(run.path / name, new / name)
        elif (run.path / name).exists():
            shutil.copyfile(run.path / name, new / name)
    own_data = {"data": str((run.path / DATA).resolve())} if (run.path / DATA).is_dir() else {}
    if (cut := Cut.read(run.path)) is not None:
        own_data[WHOLE] = cut.examples
    RunDirectory.open(new).note_machine({**run.machine, **own_data})
