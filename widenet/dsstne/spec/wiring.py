"""DSSTNE's networks wired as this project needs them: outputs that feed nothing, and nothing beside what
feeds an output.
"""

from typing import Any

from widenet.errors import DocumentError

Layers = list[dict[str, Any]]


def rewired(layers: Layers, notes: list[str], where: str) -> Layers:
    """The layers of a translation, of which some layer is an output, no output feeds a layer, and every other
    layer feeds one.

    Of an output that feeds layers, a hidden layer has the sums and the output's activation is computed for
    those layers once more. Layers that feed no output are left out. Without an output, those that feed
    nothing become outputs. notes: told of each. Raises DocumentError, which begins with `where`, for an
    output that feeds layers and has no number of units. Layers stay as they are if one names a layer that
    does not exist, or two have one name: the rules of network documents say so.
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
    found = [layer | ({"source": named} if (named := sources[layer["name"]]) else {}) for layer in layers]
    if not outputs:
        ends = [layer for layer in found if layer["name"] not in feeding and layer.get("kind") != "input"]
        for layer in ends:
            notes.append(
                f'The network has no output: "{layer["name"]}", which feeds nothing, is read as one, of a'
                " data set of its name."
            )
        found += [_taking(layer) for layer in ends]
        outputs = [layer["name"] for layer in found if layer.get("kind") == "output"]
    for name in [name for name in outputs if name in feeding]:
        notes.append(
            f'The output "{name}" feeds other layers: they take its units, with the derivative of its'
            " activation on the way back."
        )
        found = _parted(found, name, where)
    return _only_used(found, notes)


def _sources(layers: Layers, place: int) -> list[str]:
    """The sources of a layer: those it names, or the layer before it."""
    layer = layers[place]
    if layer.get("kind") == "input":
        return []
    before = [layers[place - 1]["name"]] if place else []
    named = layer.get("source", before)
    return list(named) if isinstance(named, list) else [str(named)]


def _feeding(layer: dict[str, Any], sources: dict[str, list[str]]) -> list[str]:
    skip = layer.get("skip", [])
    return [*sources[layer["name"]], *(skip if isinstance(skip, list) else [skip])]


def _taking(layer: dict[str, Any]) -> dict[str, Any]:
    """An output that takes the units of a layer as they are."""
    asked = {
        "kind": "output",
        "field": layer["name"],
        "units": layer.get("units", "auto"),
        "activation": "linear",
        "loss": "l2",
    }
    return {
        "name": f"{layer['name']} units",
        **asked,
        "source": [layer["name"]],
        "bias": False,
        "weightless": True,
    }


def _parted(layers: Layers, name: str, where: str) -> Layers:
    """The layers, an output of which leaves its sums to a layer that others may take, by way of its
    activation.
    """
    place = next(place for place, layer in enumerate(layers) if layer["name"] == name)
    output, before = layers[place], []
    if output["units"] == "auto" and not (output.get("weightless") and output["activation"] == "linear"):
        raise DocumentError(
            f'{where}: the output "{name}" feeds other layers, so that its N must say how many units it has.'
            " Write all sides."
        )
    sums = f"{name} summed"
    if output.get("weightless"):
        (sums,) = output["source"]
    else:
        of_weights = ("units", "source", "initializer", "bias_start", "weight_norm", "weights")
        before = [
            {"name": sums, "activation": "linear"} | {key: output[key] for key in of_weights if key in output}
        ]
        asked = {key: value for key, value in output.items() if key not in of_weights[2:]}
        output = asked | {"source": [sums], "bias": False, "weightless": True}
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
    """A layer that takes `other` where it took `name`."""
    found = dict(layer)
    for key in ("source", "skip"):
        if key in found:
            named = found[key] if isinstance(found[key], list) else [found[key]]
            found[key] = [other if one == name else one for one in named]
    shares = found.get("weights", [])
    for share in shares if isinstance(shares, list) else [shares]:
        for key in ("source", "layer_source"):
            if share.get(key) == name:
                share[key] = other
    return found


def _only_used(layers: Layers, notes: list[str]) -> Layers:
    """The layers that feed an output, and the outputs."""
    used = {layer["name"] for layer in layers if layer.get("kind") == "output"}
    before = 0
    while len(used) > before:
        before = len(used)
        for layer in layers:
            if layer["name"] in used:
                used.update(_feeding(layer, {layer["name"]: layer.get("source", [])}))
    if not any(layer.get("kind") == "input" for layer in layers if layer["name"] in used):
        # The rules of network documents refuse the circle or the missing input.
        return layers
    for layer in layers:
        if layer["name"] not in used:
            notes.append(f'The layer "{layer["name"]}" feeds no output: left out.')
    return [layer for layer in layers if layer["name"] in used]
