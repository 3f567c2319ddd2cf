"""What a single layer reads in a step, by hand."""

from types import SimpleNamespace

from widenet.model.flow import Flow
from widenet.model.weight import TrunkWeight


def flow(layer, weights=None, shape=(), windows=None, **parts):
    """A flow for a layer of a source "in"; shape: that of the source, and of a layer that keeps it."""
    layout = SimpleNamespace(
        network=SimpleNamespace(sources=lambda _: ["in"]),
        shapes={"in": shape, layer.name: shape},
        windows={(layer.name, "in"): windows} if windows is not None else {},
    )
    trunk = {f"{layer.name} {name}": TrunkWeight(tensor) for name, tensor in (weights or {}).items()}
    empty = {"sources": [], "sums": [], "skips": [], "penalties": [], "statistics": {}}
    rest = dict.fromkeys(("random", "positions", "state", "blocks"))
    return Flow(**{**empty, **rest, **parts, "layout": layout, "trunk": trunk})
