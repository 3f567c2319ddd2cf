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


def write_model(path, layers, connections, *, old=False, **changes):
    """A network as DSSTNE writes it. connections: weights [in, out] and bias, or (owner, transposed) and
    bias, by source and layer.
    """
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        for name, value in (
            GLOBALS | {"layers": np.uint32(len(layers)), "weights": np.uint32(len(connections))} | changes
        ).items():
            if value is not None:
                file.setncattr(name, value)
        for number, layer in enumerate(layers):
            values = {
                "name": layer["name"],
                "kind": np.uint32(["Input", "Hidden", "Output"].index(layer["kind"])),
                "type": np.uint32(0),
            }
            values |= {
                "dataSet": layer["data"],
                "Nx": np.uint32(layer["units"]),
                "Ny": np.uint32(1),
                "Nz": np.uint32(1),
            }
            values |= {
                "dimensions": np.uint32(1),
                "poolingfunction": np.uint32(0),
                "pDropout": np.float32(layer.get("dropout", 0)),
            }
            values |= {
                "weightInit": np.uint32(2),
                "weightInitScale": np.float32(0.01),
                "biasInit": np.float32(-1.5),
            }
            values |= {
                "weightNorm": np.float32(0),
                "deltaNorm": np.float32(0),
                "attributes": np.uint32(layer["attributes"]),
            }
            values |= {
                "activation": np.uint32(ACTIVATIONS[layer["activation"]][0]),
                "sources": np.uint32(len(layer["source"])),
                "skips": np.uint32(0),
            }
            if not old:
                values |= {
                    "Nw": np.uint32(1),
                    "RELUSlope": np.float32(0.25),
                    "ELUAlpha": np.float32(0.7),
                    "SELULambda": np.float32(1.050701),
                }
            values |= {f"skip{place}": name for place, name in enumerate(layer.get("skip", ()))} | {
                "skips": np.uint32(len(layer.get("skip", ())))
            }
            values |= {name: np.uint32(value) for name, value in layer.get("more", {}).items()}
            if "normalization" in layer:
                values["attributes"] = np.uint32(layer["attributes"] | 4)
                file.createDimension(f"layer{number}_bnDim", len(next(iter(layer["normalization"].values()))))
                for name, numbers in layer["normalization"].items():
                    file.createVariable(f"layer{number}_{name}", "f4", (f"layer{number}_bnDim",))[:] = numbers
            values |= {f"source{place}": source for place, source in enumerate(layer["source"])}
            for name, value in values.items():
                file.setncattr(f"layer{number}_{name}", value)
        for number, ((source, layer), (weights, bias)) in enumerate(connections.items()):
            prefix = f"weight{number}_"
            shared = isinstance(weights, tuple)
            values = {
                "inputLayer": source,
                "outputLayer": layer,
                "bShared": np.uint32(shared),
                "bLocked": np.uint32(0),
                "norm": np.float32(0),
            }
            if shared:
                values |= {
                    "sourceInputLayer": weights[0][0],
                    "sourceOutputLayer": weights[0][1],
                    "bTransposed": np.uint32(weights[1]),
                }
            else:
                values |= {"width": np.uint64(weights.shape[1]), "height": np.uint64(weights.shape[0])}
            for name, value in values.items():
                file.setncattr(f"{prefix}{name}", value)
            for name, flat in ({"bias": bias} | ({} if shared else {"weight": weights.ravel()})).items():
                file.createDimension(f"{prefix}{name}Dim", len(flat))
                variable = f"{prefix}{'weights' if name == 'weight' else name}"
                file.createVariable(variable, "f4", (f"{prefix}{name}Dim",))[:] = flat
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
