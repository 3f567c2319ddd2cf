"""Networks written value by value, as DSSTNE writes them, and what they compute, in float64."""

import netCDF4
import numpy as np

ACTIVATIONS = {
    "Sigmoid": (0, lambda x: 1 / (1 + np.exp(-x))),
    "Tanh": (1, np.tanh),
    "RectifiedLinear": (2, lambda x: np.maximum(x, 0)),
    "Linear": (3, lambda x: x),
    "SoftPlus": (5, lambda x: x),
    "SoftSign": (6, lambda x: x),
    "SoftMax": (
        7,
        lambda x: (
            np.exp(x - x.max(1, keepdims=True)) / np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)
        ),
    ),
    "RELUMax": (8, lambda x: x),
    "LinearMax": (9, lambda x: x),
    "ExponentialLinear": (10, lambda x: np.where(x > 0, x, 0.7 * np.expm1(np.minimum(x, 0)))),
    "LeakyRectifiedLinear": (11, lambda x: np.maximum(x, 0.25 * x)),
}
"""Codes and formulas, with the slope .25 and the alpha .7."""
GLOBALS = {
    "version": np.float32(0.9), "name": "net", "kind": np.uint32(1), "errorFunction": np.uint32(2),
    "maxout_k": np.int32(2), "LRN_k": np.float32(2), "LRN_n": np.int32(5), "LRN_alpha": np.float32(1e-4),
    "LRN_beta": np.float32(0.75), "bSparsenessPenalty": np.uint32(0), "sparsenessPenalty_p": np.float32(0),
    "sparsenessPenalty_beta": np.float32(0), "bDenoising": np.uint32(1), "denoising_p": np.float32(0.2),
    "deltaBoost_one": np.float32(1), "deltaBoost_zero": np.float32(1), "SMCE_oneScale": np.float32(1),
    "SMCE_zeroScale": np.float32(1), "SMCE_oneTarget": np.float32(0.9), "SMCE_zeroTarget": np.float32(0.1),
    "ShuffleIndices": np.uint32(0), "checkpoint_name": "check", "checkpoint_interval": np.int32(0),
    "checkpoint_epochs": np.int32(0),
}  # fmt: skip


def fully(name, kind, units, source=(), *, activation="Sigmoid", data="", attributes=0, **more):
    return {
        "name": name,
        "kind": kind,
        "units": units,
        "source": source,
        "activation": activation,
        "data": data,
        "attributes": attributes,
        **more,
    }


LAYER_WHOLE = {"type": 0, "Ny": 1, "Nz": 1, "dimensions": 1, "poolingfunction": 0, "weightInit": 2}
LAYER_FLOATS = {"weightInitScale": 0.01, "biasInit": -1.5, "weightNorm": 0, "deltaNorm": 0}
NEWER_FLOATS = {"RELUSlope": 0.25, "ELUAlpha": 0.7, "SELULambda": 1.050701}


def write_model(path, layers, connections, *, old=False, **changes):
    """A network as DSSTNE writes it. connections: weights [in, out] and bias, or (owner, transposed) and
    bias, by source and layer.
    """
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:

        def put(prefix, values, kind=lambda value: value):
            for name, value in values.items():
                file.setncattr(f"{prefix}{name}", kind(value))

        def put_numbers(dimension, variables):
            file.createDimension(dimension, len(next(iter(variables.values()))))
            for name, numbers in variables.items():
                file.createVariable(name, "f4", (dimension,))[:] = numbers

        counts = {"layers": np.uint32(len(layers)), "weights": np.uint32(len(connections))}
        whole = {name: value for name, value in (GLOBALS | counts | changes).items() if value is not None}
        put("", whole)
        for number, layer in enumerate(layers):
            at, normalization = f"layer{number}_", layer.get("normalization", {})
            put(at, {"name": layer["name"], "dataSet": layer["data"]})
            floats = LAYER_FLOATS | {"pDropout": layer.get("dropout", 0)} | ({} if old else NEWER_FLOATS)
            put(at, floats, np.float32)
            numbers = LAYER_WHOLE | ({} if old else {"Nw": 1}) | {"Nx": layer["units"]}
            numbers |= {
                "kind": ["Input", "Hidden", "Output"].index(layer["kind"]),
                "attributes": layer["attributes"] | 4 * bool(normalization),
                "activation": ACTIVATIONS[layer["activation"]][0],
            }
            for kind in ("source", "skip"):
                others = layer.get(kind, ())
                numbers[f"{kind}s"] = len(others)
                put(at, {f"{kind}{place}": other for place, other in enumerate(others)})
            put(at, numbers | layer.get("more", {}), np.uint32)
            if normalization:
                put_numbers(f"{at}bnDim", {f"{at}{name}": own for name, own in normalization.items()})
        for number, ((source, layer), (weights, bias)) in enumerate(connections.items()):
            at, shared = f"weight{number}_", isinstance(weights, tuple)
            put(at, {"inputLayer": source, "outputLayer": layer, "norm": np.float32(0)})
            put(at, {"bShared": shared, "bLocked": 0}, np.uint32)
            put_numbers(f"{at}biasDim", {f"{at}bias": bias})
            if shared:
                put(at, {"sourceInputLayer": weights[0][0], "sourceOutputLayer": weights[0][1]})
                put(at, {"bTransposed": weights[1]}, np.uint32)
            else:
                put(at, {"width": weights.shape[1], "height": weights.shape[0]}, np.uint64)
                put_numbers(f"{at}weightDim", {f"{at}weights": weights.ravel()})
    return path


def forward(layers, connections, inputs):
    """What every layer gives, float64 [E, units]: x W + b over its sources, added up, then the activation."""
    values = {name: np.asarray(rows, np.float64) for name, rows in inputs.items()}
    for layer in layers:
        if layer["kind"] != "Input":
            sums = 0
            for source in layer["source"]:
                weights, bias = connections[source, layer["name"]]
                if isinstance(weights, tuple):
                    owner, transposed = weights
                    weights = connections[owner][0].T if transposed else connections[owner][0]
                sums = sums + values[source] @ weights.astype(np.float64) + bias.astype(np.float64)
            values[layer["name"]] = ACTIVATIONS[layer["activation"]][1](sums)
    return values


def connected(seed, layers):
    """Random weights and biases for every source of every layer."""
    rng, units = np.random.default_rng(seed), {layer["name"]: layer["units"] for layer in layers}
    return {
        (source, layer["name"]): (
            rng.normal(size=(units[source], layer["units"])).astype("f4"),
            rng.normal(size=layer["units"]).astype("f4"),
        )
        for layer in layers
        for source in layer["source"]
    }
