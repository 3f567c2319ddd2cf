"""PyTorch with multi-hot input on a GPU; a CSR batch becomes a dense matrix on the host or the device."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.steps.torch_dense import loss_of, optimizer_of, steps_of


def train(
    folder: str,
    hidden: Sequence[int],
    softmax: bool,
    batch: int,
    optimizer: str,
    compiled: bool,
    dense_on_host: bool,
    device: str = "cuda",
) -> Callable[[int], dict[str, Any]]:
    """Return steps of a stack of `nn.Linear` in float32, compiled by `torch.compile` if `compiled`."""
    torch.manual_seed(0)
    width = int(np.load(Path(folder) / "width.npy"))
    layers: list[nn.Module] = []
    for inputs, units in zip([width, *hidden], hidden, strict=False):
        layers += [nn.Linear(inputs, units), nn.Sigmoid()]
    model = nn.Sequential(*layers, nn.Linear(hidden[-1], width)).to(device)

    def objective(x: Tensor) -> Tensor:
        return loss_of(softmax, model(x), x)

    place = "cpu" if dense_on_host else device
    stream = ((dense.to(device),) for dense in _dense(folder, width, batch, place))
    return steps_of(objective, optimizer_of(optimizer, model.parameters()), stream, compiled)


def _dense(folder: str, width: int, batch: int, device: str) -> Iterator[Tensor]:
    """Yield dense batches float32 [batch, width] without end, made on a device."""
    indptr, indices = (
        torch.from_numpy(np.load(Path(folder) / f"{name}.npy")).long() for name in ("indptr", "indices")
    )
    order = np.random.default_rng(0)
    while True:
        rows = torch.from_numpy(order.permutation(len(indptr) - 1))
        for chosen in torch.split(rows[: len(rows) // batch * batch], batch):
            counts = indptr[chosen + 1] - indptr[chosen]
            examples = torch.repeat_interleave(torch.arange(batch), counts)
            within = torch.arange(len(examples)) - (counts.cumsum(0) - counts)[examples]
            units = indices[indptr[chosen][examples] + within]
            x = torch.zeros(batch, width, device=device)
            x[examples.to(device), units.to(device)] = 1.0
            yield x
