"""An overflow names the layer in which it arose, whatever it then did to the weights; all processes name
the same.
"""

import pytest

from tests.mistakes import mistake
from widenet.data.lists import dataset_from_lists
from widenet.errors import NumericsError
from widenet.runs import train

HISTORY = {"name": "history", "kind": "input", "field": "items"}
NEXT = {"name": "next", "kind": "output", "field": "items"}
TRAINING = {"epochs": 1, "batch_size": 2, "shards": 2, "optimizer": {"kind": "sgd", "learning_rate": 1e-9}}


def overflow(tmp_path, large, limit=None):
    """The sentence with which a training ends of which the weights of one layer begin so large that its
    sums are no float32.
    """
    layers = [
        HISTORY,
        *({"name": name, "units": 3, "activation": "linear"} for name in ("first", "second", "third")),
        NEXT,
    ]
    for layer in layers[1:]:
        layer["initializer"] = {"kind": "constant", "value": 2e38 if layer["name"] == large else 1.0}
    data = dataset_from_lists(tmp_path / "data", [[0, 1], [1, 2], [2, 3], [0, 3]], width=4)
    with mistake(NumericsError, place="epoch 1, step 1") as caught:
        train({"layers": layers}, {**TRAINING, "gradient_norm_limit": limit}, data, tmp_path / "run")
    return caught.value.rule


@pytest.mark.parametrize("limit", [None, 1.0], ids=["updated at once", "updated last"])
@pytest.mark.parametrize("large", ["first", "second", "third", "next"])
def test_the_layer_whose_sums_are_too_large_is_named_although_the_step_then_broke_all_weights(
    large, limit, tmp_path
):
    assert f'layer "{large}"' in overflow(tmp_path, large, limit)
