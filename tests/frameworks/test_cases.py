"""Caffe networks of layouts that were refused once; README.md beside them says what is right."""

import os
from pathlib import Path

import numpy as np
import pytest

from tests.interop.outcomes import scored
from tests.mistakes import mistake
from widenet.errors import DataError
from widenet.interop.import_network import import_network

CASES = (
    Path(os.environ.get("WIDENET_DATA", Path(__file__).parents[3] / "shared" / "data")) / "cases" / "caffe"
)
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason="WIDENET_DATA has no cases")


def imported(name, as_text, out):
    files = [CASES / f"{name}.{kind}" for kind in ("prototxt", "caffemodel")]
    return import_network(files[0], out, weights=files[1]) if as_text else import_network(files[1], out)


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("name", ["own_data_crop", "own_pool_of_concat"])
def test_a_network_scores_as_caffe_does(name, as_text, tmp_path):
    model, truth = imported(name, as_text, tmp_path / "run"), np.load(CASES / f"{name}.npz")
    found = scored(model, data=truth["x"].reshape(len(truth["x"]), -1))
    [scores] = found.values()
    assert np.allclose(scores, truth["y"], rtol=1e-4, atol=1e-5)


def test_an_activation_after_a_pooling_is_refused_by_its_name(tmp_path):
    with mistake(DataError, place="own_relu_after_pool.prototxt") as caught:
        imported("own_relu_after_pool", True, tmp_path / "run")
    assert '"ra"' in str(caught.value)
