"""Rewiring of DSSTNE's networks to widenet's rules.

In a network document an output feeds no layer, and every other layer feeds an output.
"""

from typing import Any

from widenet.errors import DocumentError

Layers = list[dict[str, Any]]


def rewired(layers: Layers, notes: list[str], where: str) -> Layers:
    """Rewire the layers so that no output feeds a layer, and every other layer feeds an output.

    - An output that feeds layers is split: a hidden layer computes the sums, and a second one computes the
      activation for those layers.
    - Layers that feed no output are removed.
    - If there is no output, layers that feed nothing become outputs.

    Layers stay unchanged if one names an unknown layer, or two have the same name; the checks of network
    documents report that.

    Args:
        layers: Translated layers.
        notes: Receives a sentence for each change.
        where: Beginning of error messages.

    Raises:
        DocumentError: An output feeds layers but has no number of units.
    """
    sources = {layer["name"]: _sources(layers, place) for place, layer in enumerate(layers)}
    feeding = {name for layer in layers for name in _feeding(layer, sources)}
    if not feeding <= sources.keys() or len(sources) < len(layers):
        return layers
    outputs = [layer["name"] for layer in layers if layer.get("kind") == "output"]
    if (
        outputs
        and not feeding & set(outputs)
        and all(layer["name"] in feeding or layer["name"] in outputs for layer in layers)
    ):
        return layers
    changed = [layer | ({"source": named} if (named := sources[layer["name"]]) else {}) for layer in layers]
    if not outputs:
        ends = [layer for layer in changed if layer["name"] not in feeding and layer.get("kind") != "input"]
        for layer in ends:
            notes.append(
                f'The network has no output; "{layer["name"]}" feeds nothing and becomes an output with a'
                " data set of its name."
            )
        changed += [_weightless_output(layer) for layer in ends]
        outputs = [layer["name"] for layer in changed if layer.get("kind") == "output"]
    for name in [name for name in outputs if name in feeding]:
        notes.append(
            f'The output "{name}" feeds other layers; they get its units, and their gradients include the'
            " derivative of its activation."
        )
        changed = _split_output(changed, name, where)
    return _only_used(changed, notes)


def _sources(layers: Layers, place: int) -> list[str]:
    """Return the sources of a layer: those it names, or the layer before it."""
    layer = layers[place]
    if layer.get("kind") == "input":
        return []
    before = [layers[place - 1]["name"]] if place else []
    named = layer.get("source", before)
    return list(named) if isinstance(named, list) else [str(named)]


def _feeding(layer: dict[str, Any], sources: dict[str, list[str]]) -> list[str]:
    skip = layer.get("skip", [])
    return [*sources[layer["name"]], *(skip if isinstance(skip, list) else [skip])]


def _weightless_output(layer: dict[str, Any]) -> dict[str, Any]:
    """Return an output that takes the units of a layer unchanged."""
    settings = {
        "kind": "output",
        "field": layer["name"],
        "units": layer.get("units", "auto"),
        "activation": "linear",
        "loss": "l2",
    }
    return {
        "name": f"{layer['name']} units",
        **settings,
        "source": [layer["name"]],
        "bias": False,
        "weightless": True,
    }


def _split_output(layers: Layers, name: str, where: str) -> Layers:
    """Split an output into a hidden layer for its sums, one for its activation, and a weightless output.

    Layers that the output fed get the hidden layer's units instead.
    """
    place = next(place for place, layer in enumerate(layers) if layer["name"] == name)
    output, before = layers[place], []
    if output["units"] == "auto" and not (output.get("weightless") and output["activation"] == "linear"):
        raise DocumentError(
            f'{where}: the output "{name}" feeds other layers, so its N must be the number of units. Write'
            " all sides."
        )
    sums = f"{name} summed"
    if output.get("weightless"):
        (sums,) = output["source"]
    else:
        weight_keys = ("units", "source", "initializer", "bias_start", "weight_norm", "weights")
        before = [
            {"name": sums, "activation": "linear"}
            | {key: output[key] for key in weight_keys if key in output}
        ]
        rest = {key: value for key, value in output.items() if key not in weight_keys[2:]}
        output = rest | {"source": [sums], "bias": False, "weightless": True}
    units = sums
    if output["activation"] != "linear":
        units = f"{name} units"
        own = {"activation": output["activation"], "source": [], "skip": sums, "bias": False}
        before.append({"name": units, "units": output["units"], **own})
    parts = [*before, output]
    return [
        *(_renamed(layer, name, units) for layer in layers[:place]),
        *parts,
        *(_renamed(one, name, units) for one in layers[place + 1 :]),
    ]


def _renamed(layer: dict[str, Any], name: str, other: str) -> dict[str, Any]:
    """Return the layer with every reference to `name` replaced by `other`."""
    renamed = dict(layer)
    for key in ("source", "skip"):
        if key in renamed:
            named = renamed[key] if isinstance(renamed[key], list) else [renamed[key]]
            renamed[key] = [other if one == name else one for one in named]
    shares = renamed.get("weights", [])
    for share in shares if isinstance(shares, list) else [shares]:
        for key in ("source", "layer_source"):
            if share.get(key) == name:
                share[key] = other
    return renamed


def _only_used(layers: Layers, notes: list[str]) -> Layers:
    """Return the outputs and the layers that feed one."""
    used = {layer["name"] for layer in layers if layer.get("kind") == "output"}
    before = 0
    while len(used) > before:
        before = len(used)
        for layer in layers:
            if layer["name"] in used:
                used.update(_feeding(layer, {layer["name"]: layer.get("source", [])}))
    if not any(layer.get("kind") == "input" for layer in layers if layer["name"] in used):
        # The checks of network documents report the cycle or the missing input.
        return layers
    for layer in layers:
        if layer["name"] not in used:
            notes.append(f'The layer "{layer["name"]}" feeds no output; it was left out.')
    return [layer for layer in layers if layer["name"] in used]
