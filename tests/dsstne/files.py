"""NetCDF files written value by value, as DSSTNE has them."""

import netCDF4
import numpy as np

FLAGS = [
    "Sparse", "Boolean", "Compressed", "Recurrent", "Mutable", "SparseIgnoreZero", "Indexed", "Weighted",
]  # fmt: skip
"""By the number of their bit."""
LETTERS = {
    "UInt": "u4", "Int": "i4", "LLInt": "i8", "ULLInt": "u8", "Float": "f4", "Double": "f8", "RGB8": "u1",
    "RGB16": "u2", "UChar": "u1", "Char": "S1",
}  # fmt: skip
"""NetCDF's types, in the order of DSSTNE's codes."""


def write_netcdf(path, attributes, dimensions, variables):
    """variables: (letter, dimension, values) by name."""
    with netCDF4.Dataset(path, "w", format="NETCDF4") as file:
        for name, value in attributes.items():
            file.setncattr(name, value)
        for name, length in dimensions.items():
            file.createDimension(name, length)
        for name, (letter, dimension, values) in variables.items():
            kind = str if letter == "text" else letter
            if kind == "S1" and not isinstance(values[0], bytes):
                values = np.array(values, "i1").view("S1")
            file.createVariable(name, kind, (dimension,))[:] = np.array(
                values, object if kind is str else kind
            )
    return path


def described(number, name, flags, data_type, sides, kind=0):
    values = {
        f"attributes{number}": np.uint32(sum(1 << FLAGS.index(flag) for flag in flags)),
        f"kind{number}": np.uint32(kind),
        f"dataType{number}": np.uint32([*LETTERS].index(data_type)),
        f"dimensions{number}": np.uint32(len(sides)),
    }
    for side, length in zip(("width", "height", "length"), sides, strict=False):
        values[f"{side}{number}"] = np.uint32(length)
    return {f"name{number}": name, **values}


def sparse_set(number, name, rows, values=None, *, data_type=None, sides=(8,), flags=(), starts="u4"):
    """Attributes, dimensions and variables of a sparse set, rows one after the other."""
    data_type = data_type or ("UInt" if values is None else "Float")
    flags = ["Sparse", *([] if values is not None else ["Boolean"]), *flags]
    ends = np.cumsum([len(row) for row in rows])
    entries = [index for row in rows for index in row]
    dimensions = {
        f"examplesDim{number}": len(rows),
        f"uniqueExamplesDim{number}": len(rows),
        f"sparseDataDim{number}": len(entries),
    }
    variables = {
        f"sparseStart{number}": (starts, f"uniqueExamplesDim{number}", ends - [len(row) for row in rows]),
        f"sparseEnd{number}": (starts, f"uniqueExamplesDim{number}", ends),
        f"sparseIndex{number}": ("u4", f"sparseDataDim{number}", entries),
    }
    if values is not None:
        flat = [value for row in values for value in row]
        variables[f"sparseData{number}"] = (LETTERS[data_type], f"sparseDataDim{number}", flat)
    return described(number, name, flags, data_type, sides), dimensions, variables


def dense_set(number, name, rows, *, data_type="Float", sides, flags=(), kind=0):
    """Attributes, dimensions and variables of a dense set; rows of a Boolean one are single numbers."""
    flat = np.ravel(rows)
    dimensions = {f"examplesDim{number}": len(rows), f"dataDim{number}": len(flat)}
    variables = {f"data{number}": (LETTERS[data_type], f"dataDim{number}", flat)}
    return described(number, name, flags, data_type, sides, kind), dimensions, variables
