"""Networks along sequences that PyTorch wrote as ONNX, and nodes as no exporter here writes them:
onnxruntime scores what the run does.
"""

import warnings

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.interop.outcomes import scored
from widenet.errors import DataError
from widenet.interop.import_network import import_network

ROWS = [[3, 1, 1, 8], [2, 0, 5, 5], [7, 7, 7, 7]]


class Recurrent(nn.Module):
    """An Embedding, one or two recurrent layers, and a product of the state at the end, picked in one of
    the usual ways.
    """

    def __init__(self, kind, layers=1, batch_first=True, end="hidden", bias=True):
        super().__init__()
        self.table, self.end, self.batch_first = nn.Embedding(9, 5), end, batch_first
        self.layers = getattr(nn, kind)(5, 6, layers, batch_first=batch_first, bias=bias)
        self.scores = nn.Linear(6, 4)

    def forward(self, items):
        states, last = self.layers(self.table(items))
        last = last[0] if isinstance(last, tuple) else last
        if self.end == "hidden":
            return self.scores(last[-1])
        if self.end == "squeezed":
            return self.scores(last.squeeze(0))
        return self.scores(states[:, -1] if self.batch_first else states[-1])


def exported(path, module, batch_first=True, dynamic=True):
    torch.manual_seed(3)
    for parameter in module.parameters():
        nn.init.uniform_(parameter, -0.9, 0.9)
    names = ("examples", "times") if batch_first else ("times", "examples")
    axes = {"items": dict(enumerate(names)), "next": {0: "examples"}} if dynamic else None
    given = torch.zeros((3, 4) if batch_first else (4, 3), dtype=torch.long)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        torch.onnx.export(
            module.eval(),
            (given,),
            path,
            input_names=["items"],
            output_names=["next"],
            dynamic_axes=axes,
            dynamo=False,
        )
    return path


def computed(path, rows):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"items": np.array(rows, np.int64)}
    )[0]


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize(
    "form",
    [
        {},
        {"layers": 2},
        {"layers": 2, "end": "states", "bias": False},
        {"batch_first": False, "end": "states"},
        {"end": "squeezed"},
        {"dynamic": False, "layers": 2},
    ],
    ids=str,
)
def test_what_pytorch_exports_scores_as_onnxruntime_computes_it(kind, form, tmp_path):
    dynamic, batch_first = form.get("dynamic", True), form.get("batch_first", True)
    module = Recurrent(kind, **{key: value for key, value in form.items() if key != "dynamic"})
    path = exported(tmp_path / "m.onnx", module, batch_first, dynamic)
    model = import_network(path, tmp_path / "run")
    assert (model.run.fields["items"].kind, model.run.network.layer("items").last) == (
        "sequence",
        2**31 - 1 if dynamic else 4,
    )
    wanted = computed(path, ROWS if batch_first else np.transpose(ROWS))
    assert np.allclose(scored(model, items=ROWS)["next"], wanted, atol=1e-5)
    for length in (1, 70) if dynamic and batch_first else ():
        long = np.random.default_rng(length).integers(0, 9, (2, length)).tolist()
        assert np.allclose(scored(model, items=long)["next"], computed(path, long), atol=1e-5)


def numbers(*shape):
    return np.random.default_rng(sum(shape)).uniform(-0.9, 0.9, shape).astype(np.float32)


def written(path, kind, *, output="end", inputs=None, end=(), **attributes):
    """A model of single nodes: rows of a table, a recurrent node in the layout of batches first, and a
    product of its end.
    """
    gates = {"GRU": 3, "LSTM": 4}[kind]
    held = {
        "table": numbers(9, 5),
        "W": numbers(1, 6 * gates, 5),
        "R": numbers(1, 6 * gates, 6),
        "B": numbers(1, 12 * gates),
    }
    held |= {
        "first": numbers(1, 3, 6),
        "lengths": np.full(3, 2, np.int32),
        "axis": np.array([0]),
        "scores": numbers(6, 4),
        "last": np.array(-1),
    }
    usual = {"hidden_size": 6} | ({"linear_before_reset": 1} if kind == "GRU" else {})
    nodes = [
        helper.make_node("Gather", ["table", "items"], ["rows"]),
        helper.make_node("Transpose", ["rows"], ["by time"], perm=[1, 0, 2]),
        helper.make_node(
            kind,
            inputs or ["by time", "W", "R", "B"],
            ["all", "last state", *(["memory"] if kind == "LSTM" else [])],
            **usual | attributes,
        ),
        *(end or [helper.make_node("Squeeze", ["last state", "axis"], ["end"])]),
        helper.make_node("MatMul", [output, "scores"], ["next"]),
    ]
    given = [helper.make_tensor_value_info("items", TensorProto.INT64, ["examples", "times"])]
    gives = [helper.make_tensor_value_info("next", TensorProto.FLOAT, [None] * (4 if output == "all" else 2))]
    graph = helper.make_graph(
        nodes, "m", given, gives, [numpy_helper.from_array(array, name) for name, array in held.items()]
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    return path


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_single_nodes_score_as_onnxruntime_computes_them(kind, tmp_path):
    path = written(tmp_path / "m.onnx", kind)
    assert np.allclose(
        scored(import_network(path, tmp_path / "run"), items=ROWS)["next"], computed(path, ROWS), atol=1e-5
    )


SLICED = [
    helper.make_node("Constant", [], ["minus one"], value=numpy_helper.from_array(np.array([-1]))),
    helper.make_node("Constant", [], ["far"], value=numpy_helper.from_array(np.array([2**62]))),
    helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.array([1]))),
    helper.make_node("Slice", ["all", "minus one", "far", "axis"], ["newest"]),
    helper.make_node("Squeeze", ["newest", "axis"], ["of one direction"]),
    helper.make_node("Squeeze", ["of one direction", "axis"], ["end"]),
]


def test_the_newest_position_may_be_sliced(tmp_path):
    path = written(tmp_path / "m.onnx", "GRU", end=SLICED)
    assert np.allclose(
        scored(import_network(path, tmp_path / "run"), items=ROWS)["next"], computed(path, ROWS), atol=1e-5
    )


@pytest.mark.parametrize(
    ("kind", "change", "why"),
    [
        (
            "GRU",
            {"linear_before_reset": 0},
            r"GRU with the reset gate before the product \(linear_before_reset=0\)",
        ),
        ("GRU", {"direction": "reverse"}, 'GRU with the direction "reverse"'),
        (
            "LSTM",
            {"activations": ["Sigmoid", "Relu", "Tanh"]},
            "LSTM with other activations, a clip or coupled gates",
        ),
        ("LSTM", {"clip": 3.0}, "LSTM with other activations, a clip or coupled gates"),
        (
            "LSTM",
            {"inputs": ["by time", "W", "R", "B", "lengths"]},
            "LSTM with a length for each sequence",
        ),
        (
            "LSTM",
            {"inputs": ["by time", "W", "R", "B", "", "first", "first"]},
            "LSTM with an initial state other than zeros, or peepholes",
        ),
        (
            "GRU",
            {"inputs": ["by time", "W", "R", "B", "", "first"]},
            "GRU with an initial state other than zeros, or peepholes",
        ),
        ("GRU", {"output": "all"}, "MatMul at every position of a sequence"),
        (
            "LSTM",
            {"end": [helper.make_node("Squeeze", ["memory", "axis"], ["end"])]},
            "the final cell state of an LSTM",
        ),
        (
            "GRU",
            {"end": [helper.make_node("Gather", ["all", "axis"], ["end"])]},
            "Gather at every position of a sequence",
        ),
    ],
)
def test_what_no_recurrent_layer_here_does_is_named(kind, change, why, tmp_path):
    path = written(tmp_path / "m.onnx", kind, **change)
    with pytest.raises(DataError, match=why):
        import_network(path, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_bidirectional_layer_is_named(tmp_path):
    module = Recurrent("GRU")
    module.layers, module.scores = nn.GRU(5, 6, batch_first=True, bidirectional=True), nn.Linear(12, 4)
    module.end = "states"
    with pytest.raises(DataError, match='GRU with the direction "bidirectional"'):
        import_network(exported(tmp_path / "m.onnx", module), tmp_path / "run")


def stacked(index):
    """The end of one of three layers, from a stack of two that another is put on."""
    return [
        helper.make_node("Constant", [], ["second"], value=numpy_helper.from_array(np.array([1]))),
        helper.make_node("Constant", [], ["index"], value=numpy_helper.from_array(np.array(index))),
        helper.make_node("Squeeze", ["all", "second"], ["states"]),
        helper.make_node(
            "GRU", ["states", "R", "R", "B"], ["", "other state"], hidden_size=6, linear_before_reset=1
        ),
        helper.make_node(
            "GRU", ["states", "R", "R"], ["", "third state"], hidden_size=6, linear_before_reset=1
        ),
        helper.make_node("Concat", ["last state", "other state"], ["two"], axis=0),
        helper.make_node("Concat", ["two", "third state"], ["three"], axis=0),
        helper.make_node("Gather", ["three", "index"], ["end"], axis=0),
    ]


@pytest.mark.parametrize("index", [0, 1, 2, -1])
def test_an_end_is_picked_from_a_stack_of_stacks(index, tmp_path):
    path = written(tmp_path / "m.onnx", "GRU", end=stacked(index))
    assert np.allclose(
        scored(import_network(path, tmp_path / "run"), items=ROWS)["next"], computed(path, ROWS), atol=1e-5
    )


def by_newer_exporter(path, kind, end="hidden", reshaped=None):
    """An Embedding, a GRU or an LSTM of two layers, batch first, and a Linear on the state at the end, both
    axes of the items dynamic.

    The nodes are those that torch.onnx.export(dynamo=True) of torch 2.13 writes.
    """
    gates, others = {"GRU": 3, "LSTM": 4}[kind], {"GRU": [], "LSTM": ["first zeros"]}[kind]
    held = {
        "table": numbers(9, 5),
        "W": numbers(1, 6 * gates, 5),
        "R": numbers(1, 6 * gates, 6),
        "B": numbers(1, 12 * gates),
    }
    held |= {
        "W2": numbers(1, 6 * gates, 6),
        "R2": numbers(1, 6 * gates, 6),
        "B2": numbers(1, 12 * gates),
        "scores": numbers(4, 6),
    }
    held |= {str(number): np.array([number]) for number in (-1, 0, 1, 2, 3, 4, 6)} | {
        "last": np.array(-1),
        "zero": np.float32(0),
    }
    usual = {"hidden_size": 6, "layout": 0, "direction": "forward"} | (
        {"linear_before_reset": 1} if kind == "GRU" else {"input_forget": 0}
    )
    held |= {"reshaped": np.array(reshaped)} if reshaped else {}

    def op(kind, inputs, *outputs, **attributes):
        return helper.make_node(kind, inputs, outputs, **attributes)

    def flattened(states, to):
        sizes = [
            op("Slice", [f"{to} shape", str(place), str(place + 1)], f"{to} size {place}")
            for place in range(4)
        ]
        return [
            op("Transpose", [states], f"{to} turned", perm=[0, 2, 1, 3]),
            op("Shape", [f"{to} turned"], f"{to} shape", start=0),
            *sizes,
            op("Mul", [f"{to} size 2", f"{to} size 3"], f"{to} product"),
            op("Reshape", [f"{to} product", "-1"], f"{to} width", allowzero=0),
            op("Concat", [f"{to} size 0", f"{to} size 1", f"{to} width"], f"{to} wanted", axis=0),
            op("Reshape", [f"{to} turned", "reshaped" if reshaped else f"{to} wanted"], to, allowzero=0),
        ]

    nodes = [
        op("Shape", ["items"], "examples", start=0, end=1),
        op("Gather", ["table", "items"], "rows", axis=0),
        op("Concat", ["2", "examples", "6"], "zeros shape", axis=0),
        op("Expand", ["zero", "zeros shape"], "zeros"),
        op("Transpose", ["rows"], "by time", perm=[1, 0, 2]),
        op("Slice", ["zeros", "0", "1", "0"], "first zeros"),
        op(kind, ["by time", "W", "R", "B", "", "first zeros", *others], "states", "end", **usual),
        *flattened("states", "between"),
        op("Slice", ["zeros", "1", "2", "0"], "second zeros"),
        op(
            kind,
            ["between", "W2", "R2", "B2", "", "second zeros", *["second zeros" for _ in others]],
            "states 2",
            "end 2",
            **usual,
        ),
    ]
    if end == "hidden":
        nodes += [
            op("Concat", ["end", "end 2"], "ends", axis=0),
            op("Gather", ["ends", "last"], "select", axis=0),
        ]
    else:
        nodes += [*flattened("states 2", "over"), op("Transpose", ["over"], "back", perm=[1, 0, 2])]
        nodes += [op("Gather", ["back", "last"], "select", axis=1)]
    nodes += [op("Gemm", ["select", "scores"], "next", transB=1)]
    given = [helper.make_tensor_value_info("items", TensorProto.INT64, ["s77", "s27"])]
    gives = [helper.make_tensor_value_info("next", TensorProto.FLOAT, ["s77", 4])]
    graph = helper.make_graph(
        nodes, "m", given, gives, [numpy_helper.from_array(array, name) for name, array in held.items()]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize("end", ["hidden", "states"])
def test_recurrent_layers_of_the_newer_exporter_score_as_onnxruntime_computes_them(kind, end, tmp_path):
    path = by_newer_exporter(tmp_path / "m.onnx", kind, end)
    (wanted,) = onnxruntime.InferenceSession(path).run(None, {"items": np.array(ROWS)})
    assert np.allclose(scored(import_network(path, tmp_path / "run"), items=ROWS)["next"], wanted, atol=1e-5)


@pytest.mark.parametrize("reshaped", [[4, -1, 6], [-1, 3, 6], [-1, 2, 3]])
def test_states_that_are_put_into_other_axes_are_refused(reshaped, tmp_path):
    with pytest.raises(DataError, match="Reshape at every position of a sequence"):
        import_network(by_newer_exporter(tmp_path / "m.onnx", "GRU", reshaped=reshaped), tmp_path / "run")
