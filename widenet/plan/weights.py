"""The weights that the layers of a network own or share."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from widenet.plan.layers import plan_of
from widenet.plan.layout import Key, Layout, Link, Weight, is_sparse_input
from widenet.plan.place import Place
from widenet.plan.sharing import link_of
from widenet.plan.windows import Shape, Windows
from widenet.spec.layers import OutputLayer, Trunk
from widenet.spec.network import NetworkSpec


def weights_of(layout: Layout) -> dict[str, Weight]:
    """Return every weight by its name, given a layout in which all else is known."""
    weights = dict(pair for layer in layout.network.hidden for pair in _of_hidden(layout, layer))
    weights |= dict(pair for output in layout.network.outputs for pair in _of_output(layout, output))
    stepped = {
        layout.links[output.name, ""].weight for output in layout.network.outputs if output.sample is None
    }
    return {
        name: replace(weight, by_tiles=not weight.by_columns and (weight.by_tiles or name in stepped))
        for name, weight in weights.items()
    }


def windows_between(spec: NetworkSpec, shapes: Mapping[str, Shape]) -> dict[Key, Windows]:
    """Return how kernels move, by (layer, source)."""
    windows = {}
    for layer in spec.hidden:
        for source in spec.sources(layer):
            found = plan_of(layer).windows(Place.find(spec, layer), layer, source, shapes[source])
            if found is not None:
                windows[layer.name, source] = found
    return windows


def links_of(spec: NetworkSpec) -> dict[Key, Link]:
    """Return the weight of every layer and source, in the order in which they are computed."""
    links = {
        (layer.name, source): link
        for layer in spec.hidden
        for source, link in plan_of(layer).links(spec, layer).items()
    }
    for output in spec.outputs:
        source = spec.sources(output)[0]
        links[output.name, ""] = link_of(spec, output, source) if output.weights else Link(output.name)
    return links


def _of_hidden(layout: Layout, layer: Trunk) -> Iterator[tuple[str, Weight]]:
    """One for each source whose weights are its own, and those of which it has a number for each unit."""
    plan = plan_of(layer)
    for (name, source), link in layout.links.items():
        if name == layer.name and link.weight == f"{name}/{source}":
            yield link.weight, plan.weight(layout, layer, source)
    yield from plan.numbers(layout, layer)


def _of_output(layout: Layout, output: OutputLayer) -> Iterator[tuple[str, Weight]]:
    """Its own weight, to all sources together, if it shares none; and its biases."""
    sources, rows = layout.network.sources(output), layout.units[output.name]
    if layout.links[output.name, ""].weight == output.name:
        columns = 0 if output.weightless else sum(layout.units[source] for source in sources)
        features = sources[0] if is_sparse_input(layout.network, sources[0], layout.fields) else None
        yield (
            output.name,
            Weight(
                output.name,
                rows,
                columns,
                wide=True,
                input=features,
                by_columns=features is not None,
                norm_limit=output.weight_norm,
            ),
        )
    if output.bias:
        yield (
            f"{output.name} bias",
            Weight(output.name, rows, None, wide=True, by_tiles=output.sample is None),
        )
