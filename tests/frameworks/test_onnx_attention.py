"""Attention layers in ONNX: onnxruntime scores and recommends what the network does, and what torch's own
attention gives in float64.
"""

import numpy as np
import pytest

from tests.frameworks.test_onnx_export import answers
from tests.interop.networks import model_of, scores
from tests.sequences import EMBEDDED, HISTORY, NEXT, TIED, WIDTH, attention, gru
from widenet.data.lists import dataset_from_lists
from widenet.frameworks.onnx_export import export_onnx
from widenet.sparse import SparseBatch

ROWS = [[0, 3, 5, 3], [], [1], np.random.default_rng(0).integers(0, WIDTH, 60).tolist(), [4, 9], [7] * 5]
"""None, one, several, and more items than the 50 that are read."""
COSINE = {"cosine": {"temperature": 0.3}}
NETWORKS = {
    "relative": [*EMBEDDED, attention(heads=2, normalize_output=True), TIED],
    "absolute": [
        *EMBEDDED,
        attention(positions="absolute", heads=3, feed_forward=9, activation="gelu", skip="item"),
        {**TIED, **COSINE},
    ],
    "none": [{**HISTORY, "last": 3}, EMBEDDED[1], attention(positions="none", activation="softmax"), NEXT],
    "several": [
        *EMBEDDED,
        attention(name="first", positions="absolute", dropout=0.5),
        attention(name="second", positions="none", heads=6, activation="relu_max"),
        attention(skip=["item", "first"], normalize_output=True),
        {**NEXT, "source": ["state", "item"]},
    ],
    "between": [*EMBEDDED, gru(name="below"), attention(name="block", heads=2), gru(cell="lstm"), TIED],
}


def dataset(path):
    return dataset_from_lists(path / "data", ROWS, width=WIDTH, sequence=True)


def outputs(path, rows):
    return answers(path, {"items": SparseBatch.from_lists(rows)})


@pytest.mark.parametrize("name", NETWORKS)
def test_onnxruntime_scores_and_recommends_as_the_network_does(name, tmp_path):
    data = dataset(tmp_path)
    model = model_of(NETWORKS[name], data, tmp_path / "run")
    export_onnx(model, tmp_path / "all.onnx")
    wanted = scores(model, {"items": SparseBatch.from_lists(ROWS)}, "out")
    assert np.abs(outputs(tmp_path / "all.onnx", ROWS)["out"] - wanted).max() <= 1e-5
    for row, alone in zip(ROWS, wanted, strict=True):
        assert np.abs(outputs(tmp_path / "all.onnx", [row])["out"] - alone).max() <= 1e-5
    for exclude_seen in (True, False):
        path = tmp_path / f"best {exclude_seen}.onnx"
        export_onnx(model, path, top_k=WIDTH, exclude_seen=exclude_seen)
        found = outputs(path, ROWS)
        users = [str(user) for user in range(len(ROWS))]
        best = model.recommend(users=users, data=data, k=WIDTH, exclude_seen=exclude_seen)
        for units, values, items in zip(found["out.units"], found["out.scores"], best, strict=True):
            own = dict(zip(units.tolist(), values.tolist(), strict=True))
            assert own.pop(-1, -np.inf) == -np.inf
            assert own == pytest.approx({int(item.item): item.score for item in items}, abs=1e-5)
