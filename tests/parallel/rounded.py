"""Cases of `matrix` with weights in bfloat16: what they have of their own."""

_STORED = {"weight_precision": "bfloat16"}
_IN_8_BITS = {**_STORED, "state_precision": "float8"}
_SAMPLE = {"kind": "uniform", "units": 4}
CASES = [
    {"output": {}, "shape": "two inputs", "data": "ones", "optimizer": "adam", "rounded": _STORED},
    {
        "output": {"activation": "sigmoid"},
        "shape": "tied",
        "data": "values",
        "optimizer": "adam",
        "limits": {"gradient": 0.05},
        "cosine": True,
        "rounded": _IN_8_BITS,
    },
    {"output": {}, "data": "values", "optimizer": "momentum", "sample": _SAMPLE, "rounded": _IN_8_BITS},
    {
        "shape": "two outputs",
        "data": "ones",
        "limits": {"delta": 0.05},
        "rounded": {**_STORED, "weight_rounding": "compensated"},
    },
]
