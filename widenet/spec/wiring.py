"""The rules of wiring: names, sources, and an order in which every layer follows its sources."""

from collections.abc import Sequence

from widenet.errors import did_you_mean
from widenet.spec.layers import InputLayer, Layer, OutputLayer

_OWN_NUMBERS = {
    "bias": "biases",
    "normalization scale": "scales",
    "normalization shift": "shifts",
    "normalization mean": "means",
    "normalization variance": "variances",
    "description": "vectors of attributes",
}
"""Numbers of each unit of a layer: the ending of their name, and the word for them."""


def sources_of(layers: Sequence[Layer], layer: Layer) -> tuple[str, ...]:
    """Return the names of a layer's sources; by default, the layer before it."""
    if isinstance(layer, InputLayer):
        return ()
    if layer.source is not None:
        return layer.source
    position = next(index for index, other in enumerate(layers) if other is layer)
    return (layers[position - 1].name,) if position else ()


def feeding(layers: Sequence[Layer], layer: Layer) -> tuple[str, ...]:
    """Return the names of the layers that a layer needs: its sources and its `skip` layers."""
    return sources_of(layers, layer) + (getattr(layer, "skip", None) or ())


def in_order(layers: Sequence[Layer]) -> list[Layer]:
    """Return the layers, each after all that feed it; ties in document order.

    Raises:
        ValueError: The layers form a cycle.
    """
    placed: dict[str, Layer] = {}
    pending = list(layers)
    while pending:
        ready = next(
            (layer for layer in pending if all(source in placed for source in feeding(layers, layer))), None
        )
        if ready is None:
            raise ValueError(
                f"layers must not feed themselves; got {' -> '.join(_circle(pending, layers))}. Remove one"
                " source."
            )
        placed[ready.name] = ready
        pending.remove(ready)
    return list(placed.values())


def _circle(pending: Sequence[Layer], layers: Sequence[Layer]) -> list[str]:
    """The names along a cycle, in the direction of flow; the last name is the first."""
    waiting = {layer.name: layer for layer in pending}
    path = [pending[0].name]
    while path[-1] not in path[:-1]:
        path.append(next(source for source in feeding(layers, waiting[path[-1]]) if source in waiting))
    return path[path.index(path[-1]) :][::-1]


def check_wiring(layers: Sequence[Layer]) -> None:
    """Raise ValueError, with a JSON path, for the first broken rule of wiring."""
    names = [layer.name for layer in layers]
    for index, layer in enumerate(layers):
        if names.index(layer.name) < index:
            raise ValueError(
                f'layers[{index}].name must be unique; "{layer.name}" is also'
                f" layers[{names.index(layer.name)}]. Rename one."
            )
        for suffix, numbers in _OWN_NUMBERS.items():
            owner = layer.name.removesuffix(f" {suffix}")
            if owner != layer.name and owner in names:
                rule = f'must not be "{layer.name}" beside "{owner}", whose {numbers} are called so'
                raise ValueError(f"layers[{index}].name {rule}. Rename one.")
        if not isinstance(layer, InputLayer):
            _check_sources(layers, index, names)
    for kind, words in (("input", "an input"), ("output", "an output")):
        if all(layer.kind != kind for layer in layers):
            raise ValueError(f'layers must have {words} layer. Add one with "kind": "{kind}".')
    in_order(layers)
    _check_all_used(layers)


def _check_sources(layers: Sequence[Layer], index: int, names: list[str]) -> None:
    layer = layers[index]
    assert not isinstance(layer, InputLayer)
    sources = sources_of(layers, layer)
    if layer.source == ():
        given = [key for key in ("weights", "weight_norm") if getattr(layer, key, None) is not None]
        if not getattr(layer, "skip", None) or given:
            rule = 'may be empty only beside "skip", without "weights" and "weight_norm"'
            raise ValueError(f"layers[{index}].source {rule}. Name a layer, or remove the key.")
    elif not sources:
        raise ValueError(
            f'layers[{index}] ("{layer.name}") has no layer before it. Put an input layer first, or name its'
            ' "source".'
        )
    for key, named in (("source", sources), ("skip", getattr(layer, "skip", None) or ())):
        for source in named:
            if source not in names:
                raise ValueError(
                    f'layers[{index}].{key} must name a layer; got "{source}".{did_you_mean(source, names)}'
                )
            if isinstance(layers[names.index(source)], OutputLayer):
                remedy = (
                    'Name the layer\'s "source".'
                    if getattr(layer, "source", None) is None
                    else "Take its source instead."
                )
                raise ValueError(
                    f'layers[{index}].{key} must not be an output layer; got "{source}". {remedy}'
                )
        if len(set(named)) < len(named):
            raise ValueError(f"layers[{index}].{key} must name each layer once; got {', '.join(named)}.")


def _check_all_used(layers: Sequence[Layer]) -> None:
    used = {source for layer in layers for source in feeding(layers, layer)}
    for index, layer in enumerate(layers):
        if not isinstance(layer, OutputLayer) and layer.name not in used:
            raise ValueError(
                f'layers[{index}] ("{layer.name}") feeds no other layer. Name it as a "source", or remove it.'
            )
