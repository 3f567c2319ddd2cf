"""widenet's training loop without log and checkpoints: a `train_step` for each batch of a dataset."""

from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing
from time import perf_counter
from typing import Any

import torch

from benchmarks.worker import status_bytes
from widenet.data.dataset import Dataset
from widenet.data.stream import Batch, Stream, ahead
from widenet.devices import Ahead
from widenet.kernels.native import Bits, choose_bits
from widenet.model.build import build
from widenet.model.network import Network
from widenet.model.optimizers import Optimizer, StepNumbers
from widenet.model.preparation import Prepared
from widenet.model.product import own_examples
from widenet.model.storage import HostMemory
from widenet.parallel.exchange import Exchange, one_thread_an_operation
from widenet.parallel.group import exchange_for
from widenet.plan.binding import bind
from widenet.spec.network import NetworkSpec
from widenet.spec.training import TrainingSpec
from widenet.training.checkpoint import fingerprint
from widenet.training.schedules import rates
from widenet.training.step import train_step

_EPOCHS = 10_000


def train(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    threads: int,
    precision: str = "float32",
    device: str = "cpu",
    target: str = "items",
    bits: Bits = "native",
    tied: bool = False,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of a network built as `widenet.train` builds it.

    Args:
        folder: Folder of the data.
        hidden: Units of the hidden layers.
        softmax: Whether the output is a softmax.
        batch: Batch size.
        optimizer: Name of the optimizer.
        threads: Ignored; widenet uses all available processors.
        precision: Precision of the weights.
        device: The device.
        target: Field of the output.
        bits: Native or portable bits.
        tied: Whether the network is that of the default documents.
    """
    choose_bits(bits, torch.device(device))
    del threads
    training = TrainingSpec.of(
        {"epochs": _EPOCHS, "batch_size": batch, "optimizer": optimizer, "precision": precision}
    )
    exchange = exchange_for(training.shards, torch.device(device))
    return steps_of(
        folder,
        usual(*hidden) if tied else document(hidden, softmax, target),
        training,
        exchange,
        one_thread_an_operation,
        device,
    )


def steps_of(
    folder: str,
    spec: NetworkSpec,
    training: TrainingSpec,
    exchange: Exchange,
    threading: Callable[[], AbstractContextManager[None]],
    device: str = "cpu",
    host: HostMemory | None = None,
    named_after: int = 0,
) -> Callable[[int], dict[str, Any]]:
    """Return steps of a network over the dataset in a folder.

    Args:
        folder: The folder.
        spec: The network document.
        training: The training document.
        exchange: Has the shards of this process.
        threading: The steps are inside this context.
        device: The device.
        host: Takes wide weights and their state.
        named_after: The number of the step whose fingerprint is told.
    """
    dataset = Dataset.open(f"{folder}/dataset")
    base = status_bytes("VmRSS")
    with threading():
        counts = {field: dataset.counts(field) for field in spec.counted_fields}
        network = build(bind(spec, training, dataset.fields), exchange, device, counts=counts, elsewhere=host)
        rule = Optimizer(training.optimizer)
        network.prepare_training(rule)
    own = own_examples(network.layout, exchange)
    stream = Stream(dataset, network.spec.fields, training.batch_size, training.seed, own=own)
    table = rates(training, stream.steps_per_epoch)
    kept: dict[str, Any] = {"base_bytes": base, **_kept(network)}
    done = 0

    def steps(number: int) -> dict[str, Any]:
        nonlocal done
        loss, waited, started = 0.0, 0.0, perf_counter()
        with threading(), closing(_following(stream, network, done)) as following:
            for _ in range(number):
                begin = perf_counter()
                _, prepared = next(following)
                waited += perf_counter() - begin
                done += 1
                loss = train_step(network, rule, prepared, StepNumbers(done, table))
                if done == named_after:
                    kept["fingerprint"] = fingerprint(network)
        return {"loss": loss, "waiting": waited / (perf_counter() - started), **kept}

    return steps


def document(hidden: Sequence[int], softmax: bool, target: str = "items") -> NetworkSpec:
    """Return a network from the field "items" to itself or to another field."""
    trunk = [{"name": f"hidden {number}", "units": units} for number, units in enumerate(hidden, 1)]
    output = {
        "name": "next",
        "kind": "output",
        "field": target,
        "activation": "softmax" if softmax else "sigmoid",
    }
    return NetworkSpec.of(
        {"layers": [{"name": "history", "kind": "input", "field": "items"}, *trunk, output]}
    )


def usual(units: int) -> NetworkSpec:
    """Return the network of the default documents, whose losses can be compared.

    No input is hidden, and an example's targets share a weight of 1.
    """
    history = {"name": "history", "kind": "input", "field": "items"}
    initializer = {"kind": "gaussian", "deviation": 0.04}
    taste = {
        "name": "taste",
        "units": units,
        "activation": "linear",
        "bias": False,
        "initializer": initializer,
    }
    output = {
        "name": "next",
        "kind": "output",
        "field": "items",
        "loss": "cross_entropy",
        "cosine": {"temperature": 0.1},
        "weights": {"layer": "taste", "transposed": True},
    }
    return NetworkSpec.of({"layers": [history, taste, output]})


def _following(stream: Stream, network: Network, done: int) -> Generator[tuple[Batch, Prepared]]:
    """Yield the batches after the first `done`.

    They are read when the turn starts, so none is prepared while another program runs.
    """
    beside = Ahead(network.device)

    def prepared(number: int) -> tuple[Batch, Prepared]:
        with torch.no_grad():
            batch = stream.batch(*divmod(number, stream.steps_per_epoch))
            return batch, network.prepare(batch.fields, (batch.epoch, batch.step), batch.weights)

    with closing(
        ahead(
            lambda number: beside.make(lambda: prepared(number)),
            range(done, _EPOCHS * stream.steps_per_epoch),
        )
    ) as made:
        yield from map(beside.take, made)


def _kept(network: Network) -> dict[str, int]:
    """Return the bytes of all weights, and of all other training state."""
    weights = [part.weight for wide in network.wide.values() for part in wide.parts.values()]
    weights += [trunk.tensor for trunk in network.trunk.values()]
    state = [
        tensor
        for wide in network.wide.values()
        for part in wide.parts.values()
        for tensor in part.tensors().values()
    ]
    state += [tensor for trunk in network.trunk.values() for tensor in (trunk.tensor, *trunk.state.values())]
    total = sum(tensor.nbytes for tensor in weights)
    return {"weight_bytes": total, "state_bytes": sum(tensor.nbytes for tensor in state) - total}
