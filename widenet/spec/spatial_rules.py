"""The rules of layers over channels and places."""

from collections.abc import Sequence

from widenet.spec.layers import Layer
from widenet.spec.pooling import COMPARING, WINDOWED
from widenet.spec.spatial import ConvolutionLayer, PoolingLayer
from widenet.spec.wiring import sources_of


def check_spatial(place: str, layer: ConvolutionLayer | PoolingLayer, layers: Sequence[Layer]) -> None:
    """Raise ValueError, with a JSON path, for the first broken rule of a layer."""
    if isinstance(layer, PoolingLayer):
        _check_pooling(place, layer, len(sources_of(layers, layer)))
    if layer.kernel is not None:
        _check_axes(place, layer)


def _check_pooling(place: str, layer: PoolingLayer, num_sources: int) -> None:
    function = layer.function.kind
    if function in COMPARING and num_sources < 2:
        raise ValueError(
            f'{place}.source must name at least two layers for the function "{function}"; got {num_sources}.'
        )
    if function not in COMPARING and num_sources > 1:
        raise ValueError(
            f'{place}.source must name one layer for the function "{function}"; got {num_sources}. Pool each'
            " by itself."
        )
    if function in WINDOWED and layer.kernel is None:
        raise ValueError(f'{place}.kernel is missing: the function "{function}" needs it. Add "kernel".')
    given = [key for key, value, usual in _windows(layer) if value != usual]
    if function not in WINDOWED and given:
        raise ValueError(
            f'{place}.{given[0]} belongs to the functions "max" and "average"; got it for "{function}".'
            " Remove it."
        )


def _windows(layer: PoolingLayer) -> tuple[tuple[str, object, object], ...]:
    return ("kernel", layer.kernel, None), ("stride", layer.stride, None), ("padding", layer.padding, "same")


def _check_axes(place: str, layer: ConvolutionLayer | PoolingLayer) -> None:
    """Lists of one length, and windows that cover more than padding."""
    written = {"kernel": layer.kernel, "stride": layer.stride, "padding": layer.padding}
    listed = {key: len(value) for key, value in written.items() if isinstance(value, tuple)}
    for key, length in listed.items():
        first = next(iter(listed))
        if length != listed[first]:
            raise ValueError(
                f'{place}.{key} must have one number an axis, {listed[first]} as "{first}"; got {length}.'
            )
    if isinstance(layer.padding, str):
        return
    kernel = layer.kernel if isinstance(layer.kernel, tuple) else (layer.kernel,)
    padding = layer.padding if isinstance(layer.padding, tuple) else (layer.padding,)
    num = max(len(kernel), len(padding))
    for size, room in zip(kernel * (num // len(kernel)), padding * (num // len(padding)), strict=True):
        if size is not None and room >= size:
            raise ValueError(
                f'{place}.padding must be less than the kernel, {size}; got {room}. Lower it, or use "same".'
            )
