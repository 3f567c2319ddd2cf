"""Keras's recurrent layers read: models that go along a sequence, written by hand in Keras's layouts."""

import numpy as np
import pytest

from tests.frameworks.test_keras_import import before_keras_3, dense, layer, numbers, save, save_h5
from tests.interop.outcomes import scored
from widenet.errors import DataError
from widenet.interop.import_network import import_network


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gone_along(kind, table, kernel, own, bias, row):
    """Keras's formulas, in its own order of gates: the state after every position."""
    units = own.shape[0]
    state, memory, found = np.zeros(units), np.zeros(units), []
    for feature in row:
        x = table[feature] if table is not None else feature
        if kind == "GRU":
            z, r, n = np.split(x @ kernel + bias[0], 3)
            from_z, from_r, from_n = np.split(state @ own + bias[1], 3)
            z, n = sigmoid(z + from_z), np.tanh(n + sigmoid(r + from_r) * from_n)
            state = z * state + (1 - z) * n
        else:
            i, f, c, o = np.split(x @ kernel + state @ own + bias, 4)
            memory = sigmoid(f) * memory + sigmoid(i) * np.tanh(c)
            state = sigmoid(o) * np.tanh(memory)
        found.append(state)
    return np.array(found).reshape(-1, units)


def layer_of(kind, name, **config):
    usual = {
        "activation": "tanh",
        "recurrent_activation": "sigmoid",
        "use_bias": True,
        "return_sequences": False,
    }
    return layer(kind, name, **usual, **({"reset_after": True} if kind == "GRU" else {}), **config)


@pytest.mark.parametrize("as_keras_3", [True, False])
@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_recurrent_models_score_as_their_formulas_do(kind, as_keras_3, tmp_path):
    gates = {"GRU": 3, "LSTM": 4}[kind]
    table, w, b = numbers(9, 5), numbers(4, 3), numbers(3)
    arrays = [[numbers(5, 6 * gates), numbers(6, 6 * gates)], [numbers(6, 4 * gates), numbers(4, 4 * gates)]]
    for each, units in zip(arrays, (6, 4), strict=True):
        each.append(numbers(2, units * gates) if kind == "GRU" else numbers(units * gates))
    layers = [
        layer("InputLayer", "history", batch_shape=[None, 4]),
        layer("Embedding", "table", mask_zero=True),
        {
            **layer_of(kind, "first"),
            "config": {**layer_of(kind, "first")["config"], "return_sequences": True},
        },
        layer_of(kind, "second"),
        dense("end"),
    ]
    by_layer = {"table": [table], "first": arrays[0], "second": arrays[1], "end": [w, b]}
    if as_keras_3:
        groups = {
            "embedding": "table",
            f"{kind.lower()}/cell": "first",
            f"{kind.lower()}_1/cell": "second",
            "dense": "end",
        }
        weights = {group: (name, by_layer[name]) for group, name in groups.items()}
        path = save(tmp_path / "m.keras", "Sequential", {"layers": layers}, weights, names=False)
    else:
        path = save_h5(tmp_path / "m.h5", "Sequential", {"layers": layers}, by_layer)
    model = import_network(path, tmp_path / "run")
    assert (model.run.fields["history"].kind, model.run.network.layer("history").last) == ("sequence", 4)
    rows = [[3, 1, 1, 8], [2], [5, 5]]
    ends = [gone_along(kind, None, *arrays[1], gone_along(kind, table, *arrays[0], row))[-1] for row in rows]
    assert np.allclose(scored(model, history=rows)["end"], np.array(ends) @ w + b, atol=1e-5)


def test_a_recurrent_model_of_one_field_predicts_the_next(tmp_path):
    layers = [
        layer("InputLayer", "history", batch_shape=[None, None]),
        layer("Embedding", "table"),
        layer_of("LSTM", "state"),
        dense("end"),
    ]
    weights = {
        "table": [numbers(9, 5)],
        "state": [numbers(5, 24), numbers(6, 24), numbers(24)],
        "end": [numbers(6, 9), numbers(9)],
    }
    path = save_h5(tmp_path / "m.h5", "Sequential", {"layers": layers}, weights)
    model = import_network(path, tmp_path / "run", fields={"history": "items", "end": "items"})
    assert (model.run.fields["items"].kind, model.run.network.layer("end").predict) == ("sequence", "next")
    assert len(model.recommend(["3", "1", "3"], 9)) == 7


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"reset_after": False}, r"GRU with the reset gate before the product \(reset_after=False\)"),
        ({"recurrent_activation": "hard_sigmoid"}, '"recurrent_activation": "hard_sigmoid"'),
        ({"go_backwards": True}, '"go_backwards"'),
        ({"return_sequences": True}, "Dense at every position of a sequence"),
    ],
)
def test_what_no_recurrent_layer_here_does_is_named(change, why, tmp_path):
    gru = layer_of("GRU", "gru")
    gru["config"] |= change
    layers = [
        layer("InputLayer", "history", batch_shape=[None, 4]),
        layer("Embedding", "table"),
        gru,
        dense("end"),
    ]
    weights = {
        "table": [numbers(9, 5)],
        "gru": [numbers(5, 18), numbers(6, 18), numbers(2, 18)],
        "end": [numbers(6, 2), numbers(2)],
    }
    with pytest.raises(DataError, match=why):
        import_network(
            save_h5(tmp_path / "m.h5", "Sequential", {"layers": layers}, weights), tmp_path / "run"
        )


@pytest.mark.parametrize("averaged_first", [True, False])
def test_an_embedding_that_is_gone_along_and_averaged_is_named(averaged_first, tmp_path):
    average = before_keras_3("GlobalAveragePooling1D", "average", ["table"])
    along = before_keras_3("LSTM", "along", ["table"], activation="tanh", recurrent_activation="sigmoid")
    config = {
        "layers": [
            before_keras_3("InputLayer", "history", [], batch_shape=[None, 4]),
            before_keras_3("Embedding", "table", ["history"]),
            *([average, along] if averaged_first else [along, average]),
            before_keras_3("Concatenate", "both", ["along", "average"]),
            before_keras_3("Dense", "end", ["both"], activation="linear", use_bias=True),
        ],
        "output_layers": [["end", 0, 0]],
    }
    weights = {
        "table": [numbers(4, 4)],
        "along": [numbers(4, 12), numbers(3, 12), numbers(12)],
        "end": [numbers(7, 2), numbers(2)],
    }
    path = save_h5(tmp_path / "m.h5", "Functional", config, weights)
    with pytest.raises(
        DataError,
        match=r"an Embedding that is also averaged|GlobalAveragePooling1D at every position of a sequence",
    ):
        import_network(path, tmp_path / "run")


def test_two_recurrent_layers_go_along_one_embedding(tmp_path):
    table, ends = numbers(9, 5), numbers(6, 2)
    own = {name: [numbers(5, 12), numbers(3, 12), numbers(12)] for name in ("left", "right")}
    recurrent = {"activation": "tanh", "recurrent_activation": "sigmoid"}
    config = {
        "layers": [
            before_keras_3("InputLayer", "history", [], batch_shape=[None, 4]),
            before_keras_3("Embedding", "table", ["history"]),
            *(before_keras_3("LSTM", name, ["table"], **recurrent) for name in own),
            before_keras_3("Concatenate", "both", ["left", "right"]),
            before_keras_3("Dense", "end", ["both"], activation="linear", use_bias=False),
        ],
        "output_layers": [["end", 0, 0]],
    }
    path = save_h5(tmp_path / "m.h5", "Functional", config, {"table": [table], "end": [ends], **own})
    rows = [[3, 1, 1, 8], [2]]
    states = [
        np.concatenate([gone_along("LSTM", table, *arrays, row)[-1] for arrays in own.values()])
        for row in rows
    ]
    model = import_network(path, tmp_path / "run")
    assert np.allclose(scored(model, history=rows)["end"], np.array(states) @ ends, atol=1e-5)


def test_a_sequence_beside_what_is_none_is_named(tmp_path):
    config = {
        "layers": [
            before_keras_3("InputLayer", "history", [], batch_shape=[None, 4]),
            before_keras_3("Embedding", "table", ["history"]),
            before_keras_3(
                "LSTM",
                "along",
                ["table"],
                activation="tanh",
                recurrent_activation="sigmoid",
                return_sequences=True,
            ),
            before_keras_3("LSTM", "state", ["along"], activation="tanh", recurrent_activation="sigmoid"),
            before_keras_3("Add", "both", ["state", "along"]),
            before_keras_3("Dense", "end", ["both"], activation="linear", use_bias=False),
        ],
        "output_layers": [["end", 0, 0]],
    }
    arrays = [numbers(3, 12), numbers(3, 12), numbers(12)]
    path = save_h5(
        tmp_path / "m.h5",
        "Functional",
        config,
        {"table": [numbers(9, 3)], "along": arrays, "state": arrays, "end": [numbers(3, 2)]},
    )
    with pytest.raises(DataError, match="Add at every position of a sequence"):
        import_network(path, tmp_path / "run")
