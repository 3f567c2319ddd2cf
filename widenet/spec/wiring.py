"""The rules of wiring: names, sources, and an order in which every layer follows its sources."""

from collections.abc import Sequence

from widenet.errors import did_you_mean
from widenet.spec.layers import InputLayer, Layer, OutputLayer


def sources_of(layers: Sequence[Layer], layer: Layer) -> tuple[str, ...]:
    """The names of a layer's sources: those it names, or the layer before it."""
    if isinstance(layer, InputLayer):
        return ()
    if layer.source is not None:
        return layer.source
    position = next(index for index, other in enumerate(layers) if other is layer)
    return (layers[position - 1].name,) if position else ()


def in_order(layers: Sequence[Layer]) -> list[Layer]:
    """The layers, each after all its sources; ties in document order. Raises ValueError where they form a cycle."""
    placed: dict[str, Layer] = {}
    pending = list(layers)
    while pending:
        ready = next((layer for layer in pending if all(source in placed for source in sources_of(layers, layer))), None)
        if ready is None:
            raise ValueError(f"layers must not feed themselves; got {' -> '.join(_circle(pending, layers))}. Remove one source.")
        placed[ready.name] = ready
        pending.remove(ready)
    return list(placed.values())


def _circle(pending: Sequence[Layer], layers: Sequence[Layer]) -> list[str]:
    """The names along a cycle among layers of which each waits for another, in the direction of flow, ending where it begins."""
    waiting = {layer.name: layer for layer in pending}
    path = [pending[0].name]
    while path[-1] not in path[:-1]:
        path.append(next(source for source in sources_of(layers, waiting[path[-1]]) if source in waiting))
    return path[path.index(path[-1]) :][::-1]


def check_wiring(layers: Sequence[Layer]) -> None:
    """Raise ValueError, with a JSON path, for the first broken rule of wiring."""
    names = [layer.name for layer in layers]
    for index, layer in enumerate(layers):
        if names.index(layer.name) < index:
            raise ValueError(f'layers[{index}].name must be unique; "{layer.name}" is also layers[{names.index(layer.name)}]. Rename one.')
        owner = layer.name.removesuffix(" bias")
        if owner != layer.name and owner in names:
            raise ValueError(f'layers[{index}].name must not be "{layer.name}" beside "{owner}", whose biases are called so. Rename one.')
        if not isinstance(layer, InputLayer):
            _check_sources(layers, index, names)
    for kind, words in (("input", "an input"), ("output", "an output")):
        if all(layer.kind != kind for layer in layers):
            raise ValueError(f'layers must have {words} layer. Add one with "kind": "{kind}".')
    in_order(layers)
    _check_all_used(layers)


def _check_sources(layers: Sequence[Layer], index: int, names: list[str]) -> None:
    layer = layers[index]
    sources = sources_of(layers, layer)
    if not sources:
        raise ValueError(f'layers[{index}] ("{layer.name}") has no layer before it. Put an input layer first, or name its "source".')
    for source in sources:
        if source not in names:
            raise ValueError(f'layers[{index}].source must name a layer; got "{source}".{did_you_mean(source, names)}')
        if isinstance(layers[names.index(source)], OutputLayer):
            remedy = 'Name the layer\'s "source".' if getattr(layer, "source", None) is None else "Take its source instead."
            raise ValueError(f'layers[{index}].source must not be an output layer; got "{source}". {remedy}')
    if len(set(sources)) < len(sources):
        raise ValueError(f"layers[{index}].source must name each layer once; got {', '.join(sources)}.")


def _check_all_used(layers: Sequence[Layer]) -> None:
    used = {source for layer in layers for source in sources_of(layers, layer)}
    for index, layer in enumerate(layers):
        if not isinstance(layer, OutputLayer) and layer.name not in used:
            raise ValueError(f'layers[{index}] ("{layer.name}") feeds no other layer. Name it as a "source", or remove it.')
