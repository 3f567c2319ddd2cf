"""PyTorch on a GPU, in the forms that are fast there."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.steps.histories import orders
from benchmarks.steps.torch_bags import Autoencoder, arguments_of
from benchmarks.steps.torch_chunks import ChunkedCrossEntropy, shares
from benchmarks.steps.torch_dense import loss_of, optimizer_of, steps_of

Form = Literal["bags", "chunks", "dense", "linear", "liger"]
Batch = tuple[Tensor, Tensor, Tensor, Tensor]


def train(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    form: Form,
    precision: Literal["bfloat16", "tf32"],
    mode: str | None = None,
    cells: int = 2**31,
    device: str = "cuda",
) -> Callable[[int], dict[str, Any]]:
    """Return training steps.

    Args:
        folder: Folder of the data.
        hidden: Units of the hidden layers.
        softmax: Whether the output is a softmax.
        batch: Batch size.
        optimizer: Name of the optimizer.
        form: "bags" adds item vectors, and computes the loss from target indices; "chunks" does so for some
            examples at a time, see `ChunkedCrossEntropy`; "dense" has multi-hot inputs and targets. "linear"
            and "liger" have an example's first item as its only target: torch's `linear_cross_entropy`, and
            Liger's loss.
        precision: "bfloat16" for autocast, "tf32" for products of float32.
        mode: Mode of `torch.compile` for the loss; None: nothing is compiled.
        cells: Most logits of a chunk.
        device: The device.
    """
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    indptr, indices, width = (
        np.load(Path(folder) / f"{name}.npy") for name in ("indptr", "indices", "width")
    )

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return function if mode is None else torch.compile(function, mode=mode)

    with torch.device(device):
        if form == "dense":
            parameters, objective = _dense(int(width), hidden, softmax, batch, compiled, device)
        else:
            dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
            model = Autoencoder(int(width), hidden, softmax, sparse=optimizer == "sgd")
            _fill(model)
            parameters = list(model.parameters())
            if form == "chunks":
                objective = _chunks(model, compiled, dtype, cells)
            elif form == "bags":
                objective = _bags(model, compiled)
            else:
                objective = _of_one_target(model, form)

    def loss(*targets: Tensor) -> Tensor:
        with torch.autocast(device, torch.bfloat16, enabled=precision == "bfloat16"):
            return objective(targets)

    is_sparse = form != "dense" and optimizer == "sgd"
    chosen = (
        torch.optim.SGD(parameters, lr=0.1, foreach=True)
        if is_sparse
        else optimizer_of(optimizer, parameters)
    )
    update = chosen.step if mode is None or is_sparse else torch.compile(chosen.step)
    stream = _sent(_batches(indices, indptr, batch), device, mode is not None)
    return steps_of(loss, chosen, stream, compiled=False, update=update)


def _bags(model: Autoencoder, compiled: Callable[..., Any]) -> Callable[[Any], Tensor]:
    """Return the loss of a batch. The sums are not compiled: the gradient to them may be sparse."""
    loss = compiled(model.loss)

    def objective(targets: Batch) -> Tensor:
        indices, indptr, examples, parts = targets
        found: Tensor = loss(model.bag(indices, indptr), indices, examples, parts)
        return found

    return objective


def _chunks(
    model: Autoencoder, compiled: Callable[..., Any], dtype: torch.dtype, cells: int
) -> Callable[[Any], Tensor]:
    divide, scores = compiled(shares), model.scores

    def objective(targets: Batch) -> Tensor:
        x_EH = model.last_hidden(model.bag(targets[0], targets[1]))
        found: Tensor = ChunkedCrossEntropy.apply(  # type: ignore[no-untyped-call]
            x_EH, scores.weight, scores.bias, targets, dtype, cells, divide
        )
        return found

    return objective


def _of_one_target(model: Autoencoder, form: Form) -> Callable[[Any], Tensor]:
    if form == "liger":
        from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss

        fused = LigerFusedLinearCrossEntropyLoss()
    weight, bias = model.scores.weight, model.scores.bias

    def objective(targets: Batch) -> Tensor:
        indices, indptr, *_ = targets
        x_EH, one_E = model.last_hidden(model.bag(indices, indptr)), indices[indptr[:-1]]
        if form == "liger":
            found: Tensor = fused(weight, x_EH, one_E, bias)
            return found
        return functional.linear_cross_entropy(x_EH, weight, one_E, linear_bias=bias)

    return objective


def _dense(
    width: int, hidden: Sequence[int], softmax: bool, batch: int, compiled: Callable[..., Any], device: str
) -> tuple[list[nn.Parameter], Callable[[Any], Tensor]]:
    layers: list[nn.Module] = []
    for inputs, units in zip([width, *hidden], hidden, strict=False):
        layers += [nn.Linear(inputs, units), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(hidden[-1], width))
    _fill(model)
    loss = compiled(lambda x: loss_of(softmax, model(x), x))

    def objective(targets: Batch) -> Tensor:
        indices, _, examples, _ = targets
        x = torch.zeros(batch, width, device=device)
        x[examples, indices] = 1.0
        found: Tensor = loss(x)
        return found

    return list(model.parameters()), objective


def _fill(model: nn.Module) -> None:
    """Begin as widenet does, so that first losses are alike."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


def _batches(indices: np.ndarray, indptr: np.ndarray, batch: int) -> Iterator[Batch]:
    """Yield arguments of `Autoencoder.forward` in the host's memory, without end."""
    for rows in orders(len(indptr) - 1, batch):
        counts = indptr[rows + 1] - indptr[rows]
        ends = np.concatenate([[0], np.cumsum(counts)])
        places = np.arange(ends[-1]) + np.repeat(indptr[rows] - ends[:-1], counts)
        yield arguments_of(indices[places], ends)


def _sent(batches: Iterator[Batch], device: str, is_dynamic: bool) -> Iterator[Batch]:
    """Yield batches on a device; a thread prepares the next one in pinned memory and copies it meanwhile."""
    if device == "cpu":
        yield from map(_dynamic, batches) if is_dynamic else batches
        return
    beside = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def send() -> Batch:
        with torch.cuda.stream(beside):
            sent = [tensor.pin_memory().to(device, non_blocking=True) for tensor in next(batches)]
        beside.synchronize()
        return sent[0], sent[1], sent[2], sent[3]

    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(send)
        while True:
            targets = coming.result()
            coming = pool.submit(send)
            for tensor in targets:
                tensor.record_stream(torch.cuda.current_stream())
            yield _dynamic(targets) if is_dynamic else targets


def _dynamic(targets: Batch) -> Batch:
    """Let `torch.compile` expect other numbers of entries."""
    for tensor in (targets[0], targets[2], targets[3]):
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    return targets
